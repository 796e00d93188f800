package inside

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"eggrun/internal/need"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// originalDestination is what the sidecar asks of an accepted connection.
func originalDestination(fd int) (netip.AddrPort, error) {
	local, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, err
	}
	const soOriginalDst = 80 // for both families
	if _, ok := local.(*unix.SockaddrInet4); ok {
		raw, err := unix.GetsockoptIPv6Mreq(fd, unix.IPPROTO_IP, soOriginalDst) // large enough
		if err != nil {
			return netip.AddrPort{}, err
		}
		a := raw.Multiaddr
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[4:8])), binary.BigEndian.Uint16(a[2:4])), nil
	}
	raw, err := unix.GetsockoptIPv6MTUInfo(fd, unix.IPPROTO_IPV6, soOriginalDst)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port := binary.NativeEndian.AppendUint16(nil, raw.Addr.Port)
	return netip.AddrPortFrom(netip.AddrFrom16(raw.Addr.Addr), binary.BigEndian.Uint16(port)), nil
}

// accepted waits for a connection on a listener that need not be in this
// namespace, and returns where the client wanted to go and comes from. It is
// closed when the test ends.
func accepted(t *testing.T, listener *os.File) (wanted, client netip.AddrPort, err error) {
	t.Helper()
	eventually(t, "a connection at "+listener.Name(), func() bool {
		poll := []unix.PollFd{{Fd: int32(listener.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 100)
		return err == nil && n == 1
	})
	fd, from, err := unix.Accept4(int(listener.Fd()), unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	wanted, err = originalDestination(fd)
	return wanted, addrPort(from), err
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// connected is a TCP connection of the container.
func (w *world) connected(to netip.AddrPort, proto int) (*os.File, error) {
	w.t.Helper()
	var client *os.File
	err := Within(w.netNS, func() error {
		fd, err := unix.Socket(familyOf(to.Addr()), unix.SOCK_STREAM|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			return err
		}
		client = os.NewFile(uintptr(fd), "client")
		w.t.Cleanup(func() { client.Close() })
		return unix.Connect(fd, sockaddr(to))
	})
	return client, err
}

func TestTransparent(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	// An internal network: there is no way to anywhere but the fake range.
	w := newWorld(t, false)
	if _, err := w.connected(at(fake, 5432), unix.IPPROTO_TCP); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("without the wall: %v, want unreachable", err)
	}
	s := w.build(w.wall())
	to := func(want netip.AddrPort, listener string, proto int) {
		t.Helper()
		client, err := w.connected(want, proto)
		if err != nil {
			t.Errorf("connect %s: %v", want, err)
			return
		}
		got, from, err := accepted(t, s.file(t, listener))
		if err != nil || got != want {
			t.Errorf("original destination %s (%v), want %s", got, err, want)
		}
		local, err := unix.Getsockname(int(client.Fd()))
		if err != nil || addrPort(local) != from {
			t.Errorf("the client at %v (%v) is seen as %s", addrPort(local), err, from)
		}
	}
	to(at(fake, 5432), Transparent4, unix.IPPROTO_TCP)
	to(at(fake, 443), Transparent4, unix.IPPROTO_TCP)
	to(at(fake, 443), Transparent4, ipprotoMPTCP(t))
	to(at(fake, Port), Transparent4, unix.IPPROTO_TCP)
	to(at(fake, 53), DNSTCP4, unix.IPPROTO_TCP)
	to(at(dockerResolver, 53), DNSTCP4, unix.IPPROTO_TCP)
	to(at(dockerResolver, 42222), DNSTCP4, unix.IPPROTO_TCP)
	if _, err := w.connected(at(evil4, 443), unix.IPPROTO_TCP); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("without a route: %v, want unreachable", err)
	}
	w.inside(func() error {
		ip(t, "route", "add", "default", "via", "10.77.0.1")
		ip(t, "-6", "route", "add", "default", "via", "fd77::1")
		return nil
	})
	to(at(evil4, 443), Transparent4, unix.IPPROTO_TCP)
	to(at(evil6, 443), Transparent6, unix.IPPROTO_TCP)
	to(at(gateway4, 8081), Transparent4, unix.IPPROTO_TCP)
	to(at(evil6, 53), DNSTCP6, unix.IPPROTO_TCP)
	// Who connects to the listener itself wanted nothing else, so that the
	// sidecar knows that there is no destination.
	for _, one := range []struct {
		to       netip.AddrPort
		listener string
	}{{at(localhost4, TransparentPort), Transparent4}, {at(localhost6, TransparentPort), Transparent6}} {
		if _, err := w.connected(one.to, unix.IPPROTO_TCP); err != nil {
			t.Fatal(err)
		}
		if got, _, err := accepted(t, s.file(t, one.listener)); err == nil && got != one.to {
			t.Errorf("%s: original destination %s", one.to, got)
		}
	}
}

// ipprotoMPTCP is the protocol of a client that asks for MPTCP.
func ipprotoMPTCP(t *testing.T) int {
	t.Helper()
	const proto = 262
	need.That(t, "MPTCP", func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, proto)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	})
	return proto
}

// ask sends a question from the container and returns who got it, and whether
// the client hears the answer, as one from where it had asked.
func (w *world) ask(to netip.AddrPort, resolver *os.File) (heard string) {
	w.t.Helper()
	w.inside(func() error {
		conn, err := net.Dial("udp", to.String())
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("question")); err != nil {
			return err
		}
		buffer := make([]byte, 100)
		eventually(w.t, "a question for "+to.String(), func() bool {
			poll := []unix.PollFd{{Fd: int32(resolver.Fd()), Events: unix.POLLIN}}
			n, err := unix.Poll(poll, 100)
			return err == nil && n == 1
		})
		_, from, err := unix.Recvfrom(int(resolver.Fd()), buffer, 0)
		if err != nil {
			return err
		}
		if err := unix.Sendto(int(resolver.Fd()), []byte("answer"), 0, from); err != nil {
			return err
		}
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			return err
		}
		n, err := conn.Read(buffer)
		heard = string(buffer[:n])
		return err
	})
	return heard
}

func TestQuestions(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	w := newWorld(t, true)
	s := w.build(w.wall())
	for _, one := range []struct {
		to       netip.AddrPort
		resolver string
	}{
		{at(netip.MustParseAddr("198.18.0.1"), 53), DNSUDP4},
		{at(evil4, 53), DNSUDP4},
		{at(gateway4, 53), DNSUDP4},
		{at(peer4, 53), DNSUDP4},
		{at(dockerResolver, 53), DNSUDP4},
		{at(dockerResolver, 42222), DNSUDP4},
		{at(evil6, 53), DNSUDP6},
		{at(peer6, 53), DNSUDP6},
	} {
		if heard := w.ask(one.to, s.file(t, one.resolver)); heard != "answer" {
			t.Errorf("%s: heard %q", one.to, heard)
		}
	}
	// A container may be a name server itself.
	for _, own := range []netip.AddrPort{at(localhost4, 53), at(own4, 53), at(own6, 53)} {
		var server *os.File
		w.inside(func() error {
			fd, err := bound(unix.SOCK_DGRAM, own)
			server = os.NewFile(uintptr(fd), "server")
			return err
		})
		if heard := w.ask(own, server); heard != "answer" {
			t.Errorf("%s: heard %q", own, heard)
		}
		server.Close()
	}
}

// TestDockersResolver plays docker: its socket, and its redirects, are in the
// namespace before the wall.
func TestDockersResolver(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	const dockersPort = 42222
	w := newWorld(t, true)
	var docker *os.File
	w.inside(func() error {
		fd, err := bound(unix.SOCK_DGRAM, at(dockerResolver, dockersPort))
		docker = os.NewFile(uintptr(fd), "docker")
		if err != nil {
			return err
		}
		return dockersRules(dockersPort)
	})
	defer docker.Close()
	for _, p := range []uint16{53, dockersPort} {
		if heard := w.ask(at(dockerResolver, p), docker); heard != "answer" {
			t.Errorf("without the wall, port %d: heard %q", p, heard)
		}
	}
	wall := w.wall()
	wall.New = false
	wall.Resolvers = []netip.Addr{dockerResolver}
	s := w.build(wall)
	for _, p := range []uint16{53, dockersPort} {
		if heard := w.ask(at(dockerResolver, p), s.file(t, DNSUDP4)); heard != "answer" {
			t.Errorf("port %d: heard %q", p, heard)
		}
	}
	// Only eggrun's own socket gets through, by docker's own redirect.
	engine := s.file(t, EngineUDP4)
	if err := unix.Sendto(int(engine.Fd()), []byte("question"), 0, sockaddr(at(dockerResolver, 53))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the question at docker's", func() bool {
		buffer := make([]byte, 100)
		n, from, err := unix.Recvfrom(int(docker.Fd()), buffer, unix.MSG_DONTWAIT)
		if err != nil {
			return false
		}
		return string(buffer[:n]) == "question" && unix.Sendto(int(docker.Fd()), []byte("answer"), 0, from) == nil
	})
	eventually(t, "docker's answer", func() bool {
		buffer := make([]byte, 100)
		n, from, err := unix.Recvfrom(int(engine.Fd()), buffer, unix.MSG_DONTWAIT)
		return err == nil && string(buffer[:n]) == "answer" && addrPort(from) == at(dockerResolver, 53)
	})
	// The redirects gone, a last rule is left.
	w.withoutRules("redirect", has(func(e expr.Any) bool {
		c, ok := e.(*expr.Cmp)
		return ok && slices.Equal(c.Data, dockerResolver.AsSlice())
	}))
	send := func(payload string, fd int) {
		if err := unix.Sendto(fd, []byte(payload), 0, sockaddr(at(dockerResolver, dockersPort))); err != nil {
			t.Logf("%s: %v", payload, err)
		}
	}
	first := func() string {
		w.inside(func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			send("leak", fd)
			unix.Close(fd)
			return err
		})
		send("question", int(engine.Fd()))
		buffer := make([]byte, 100)
		n, _, err := unix.Recvfrom(int(docker.Fd()), buffer, 0)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
	if got := first(); got != "question" {
		t.Errorf("docker got a %s", got)
	}
	w.withoutRules("leave", has(func(e expr.Any) bool { m, ok := e.(*expr.Meta); return ok && m.Key == expr.MetaKeyMARK }))
	if got := first(); got != "leak" {
		t.Errorf("docker got a %s without the rule", got)
	}
}

// dockersRules are those that docker has in each container: 127.0.0.11:53 is
// some other port of it.
func dockersRules(to uint16) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	table := conn.AddTable(&nftables.Table{Name: "nat", Family: nftables.TableFamilyIPv4})
	chain := conn.AddChain(&nftables.Chain{
		Name: "OUTPUT", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest,
	})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule(
		dockersOnly(), protocol(unix.IPPROTO_UDP), port(53), match{
			&expr.Immediate{Register: register, Data: dockerResolver.AsSlice()},
			&expr.Immediate{Register: 2, Data: binary.BigEndian.AppendUint16(nil, to)},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: register, RegProtoMin: 2},
		})})
	return conn.Flush()
}

func dockersOnly() match {
	return match{network(16, 4), equals(expr.CmpOpEq, dockerResolver.AsSlice()...)}
}

// TestEnginesResolver has one on the bridge, as podman's is.
func TestEnginesResolver(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	w := newWorld(t, true)
	wall := w.wall()
	wall.Resolvers = []netip.Addr{gateway4, gateway6}
	s := w.build(wall)
	for name, to := range map[string]netip.AddrPort{EngineUDP4: at(gateway4, 53), EngineUDP6: at(gateway6, 53)} {
		engine := int(s.file(t, name).Fd())
		send := func(to netip.AddrPort) func() error {
			return func() error { return unix.Sendto(engine, []byte("question"), 0, sockaddr(to)) }
		}
		if got := w.left(send(to)); len(got) != 1 {
			t.Errorf("%s to %s: %q left, want the question", name, to, got)
		}
		for _, other := range []netip.AddrPort{at(to.Addr(), 54), at(evil4, 53), at(evil6, 53)} {
			if other.Addr().Is4() != to.Addr().Is4() {
				continue
			}
			if got := w.left(send(other)); len(got) != 0 {
				t.Errorf("%s to %s: %q left", name, other, got)
			}
		}
	}
	// A TCP socket is used again and again.
	server, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at(gateway4, 53)))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	engine := int(s.file(t, EngineTCP4).Fd())
	for range 3 {
		if err := unix.Connect(engine, sockaddr(at(gateway4, 53))); err != nil {
			t.Fatal(err)
		}
		conn, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if err := disconnect(engine); err != nil {
			t.Fatal(err)
		}
	}
}
