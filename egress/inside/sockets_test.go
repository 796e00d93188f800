package inside

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPortsAreNobodysByChance needs the ports to be outside of the range that
// the kernel takes local ports from, and to need no privilege.
func TestPortsAreNobodysByChance(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	var first, last int
	if _, err := fmt.Sscan(string(text), &first, &last); err != nil {
		t.Fatal(err)
	}
	for _, port := range []int{Port, TransparentPort, ResolverPort} {
		if port >= first && port <= last || port < 1024 {
			t.Errorf("port %d is in %d to %d, or privileged", port, first, last)
		}
	}
}

func names(s *Sockets) (all []string) {
	for _, one := range s.All {
		all = append(all, one.Name)
	}
	return all
}

// TestSockets looks at how each is opened.
func TestSockets(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	s, err := Build(&Wall{
		Transparent: true, LocalPorts: []uint16{5432}, Ports: []uint16{80, 443},
		Resolvers: []netip.Addr{gateway4, gateway6},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tcp, udp := []int{unix.IPPROTO_TCP, 1, 0}, []int{unix.IPPROTO_UDP, 0, 0}
	want := []struct {
		name, at string
		options  []int // protocol, listening, mark
	}{
		{Proxy4, "127.0.0.1:3128", tcp}, {Transparent4, "127.0.0.1:3129", tcp},
		{DNSUDP4, "127.0.0.1:3153", udp}, {DNSTCP4, "127.0.0.1:3153", tcp},
		{Proxy6, "[::1]:3128", tcp}, {Transparent6, "[::1]:3129", tcp},
		{DNSUDP6, "[::1]:3153", udp}, {DNSTCP6, "[::1]:3153", tcp},
		{"local-5432", "127.0.0.1:5432", tcp},
		{EngineUDP4, "0.0.0.0:0", []int{unix.IPPROTO_UDP, 0, mark}},
		{EngineTCP4, "0.0.0.0:0", []int{unix.IPPROTO_TCP, 0, mark}},
		{EngineUDP6, "[::]:0", []int{unix.IPPROTO_UDP, 0, mark}},
		{EngineTCP6, "[::]:0", []int{unix.IPPROTO_TCP, 0, mark}},
		{Diag, "invalid AddrPort", []int{unix.NETLINK_SOCK_DIAG, 0, 0}},
		{Links, "invalid AddrPort", []int{unix.NETLINK_ROUTE, 0, 0}},
	}
	if s.NoTables || len(s.All) != len(want) {
		t.Fatalf("sockets %q, no tables %v", names(s), s.NoTables)
	}
	for i, w := range want {
		f := s.All[i].File
		local, err := unix.Getsockname(int(f.Fd()))
		if s.All[i].Name != w.name || err != nil || addrPort(local).String() != w.at {
			t.Errorf("socket %s at %s (%v), want %s at %s", s.All[i].Name, addrPort(local), err, w.name, w.at)
		}
		got := []int{option(t, f, unix.SO_PROTOCOL), option(t, f, unix.SO_ACCEPTCONN), option(t, f, unix.SO_MARK)}
		if !slices.Equal(got, w.options) {
			t.Errorf("%s: protocol, listening, mark %v, want %v", w.name, got, w.options)
		}
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
		got = []int{flags, option(t, f, unix.SO_REUSEADDR), option(t, f, unix.SO_REUSEPORT)}
		// What listens for TCP can have its address in spite of TIME_WAIT.
		if err != nil || !slices.Equal(got, []int{unix.FD_CLOEXEC, w.options[1], 0}) {
			t.Errorf("%s: flags, reuse of address and port %v", w.name, got)
		}
	}
	for _, w := range want {
		if w.options[0] != unix.IPPROTO_TCP || w.options[1] == 0 {
			continue
		}
		conn, err := net.Dial("tcp", w.at)
		if err != nil {
			t.Errorf("%s: %v", w.name, err)
			continue
		}
		conn.Close()
	}
	if _, err := Build(&Wall{LocalPorts: []uint16{5432}}); err == nil {
		t.Error("twice in the same namespace")
	} else {
		wantGap(t, err, "cannot enforce domains: port 3128 of the network namespace is taken, "+
			"by another container's proxy or a program; give each container with a policy a network namespace of its own")
	}
}

// TestSocketsClosed needs a failed Build to leave no listener, with which the
// clients of a sidecar that is not there would hang.
func TestSocketsClosed(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	if err := LoopbackUp(); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp4", "127.0.0.1:3153")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if _, err := Build(&Wall{Transparent: true}); err == nil {
		t.Error("port 3153 is taken")
	}
	if _, err := net.Dial("tcp4", "127.0.0.1:3128"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("the proxy's port: %v, want refused", err)
	}
}

func TestNoIPv6(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	setSysctl(t, "ipv6/conf/all/disable_ipv6", "1")
	s, err := Build(&Wall{Transparent: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := []string{Proxy4, Transparent4, DNSUDP4, DNSTCP4, EngineUDP4, EngineTCP4, Diag, Links}
	if got := names(s); !slices.Equal(got, want) {
		t.Errorf("sockets %q, want %q", got, want)
	}
}

// TestNoTables has a kernel without nftables.
func TestNoTables(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	lacking := func() error { return tablesError(fmt.Errorf("receive: %w", unix.EOPNOTSUPP)) }
	w := &Wall{Transparent: true, Ports: []uint16{53, 443, 3128, 5432}, Resolvers: []netip.Addr{gateway4}}
	s, err := w.build(lacking)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{Proxy4, DNSUDP4, DNSTCP4, Proxy6, DNSUDP6, DNSTCP6, "port-443", "port-5432", Diag, Links}
	if got := names(s); !slices.Equal(got, want) || !s.NoTables {
		t.Errorf("sockets %q, want %q", got, want)
	}
	for name, at := range map[string]string{DNSUDP4: "0.0.0.0:53", DNSTCP6: "[::1]:53", "port-443": "0.0.0.0:443"} {
		if local, err := unix.Getsockname(int(s.file(t, name).Fd())); err != nil || addrPort(local).String() != at {
			t.Errorf("%s at %s (%v), want %s", name, addrPort(local), err, at)
		}
	}
	conn, err := net.Dial("tcp4", "198.18.0.7:443")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fd, _, err := unix.Accept4(int(s.file(t, "port-443").Fd()), unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if wanted, err := unix.Getsockname(fd); err != nil || addrPort(wanted) != at(fake, 443) {
		t.Errorf("the client wanted %s (%v)", addrPort(wanted), err)
	}
	// An interface comes.
	ip(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	buffer := make([]byte, 8192)
	n, _, err := unix.Recvfrom(int(s.file(t, Links).Fd()), buffer, 0)
	if err != nil || !strings.Contains(string(buffer[:n]), "v1\x00") {
		t.Errorf("told of %q (%v)", buffer[:max(n, 0)], err)
	}
	s.Close()
	_, err = w.build(lacking)
	wantGap(t, sorted(err), "cannot enforce domains: the network namespace has a way out by v0, v1; run with --network none")
}

func TestTablesError(t *testing.T) {
	t.Parallel()
	for errno, want := range map[error]bool{
		unix.EPROTONOSUPPORT: true, unix.EOPNOTSUPP: true, unix.ENOENT: true, unix.EAFNOSUPPORT: true,
		unix.EPERM: false, unix.EINVAL: false, unix.ENOBUFS: false,
	} {
		err := tablesError(fmt.Errorf("send: %w", errno))
		if got := errors.Is(err, errNoTables); got != want || err == nil {
			t.Errorf("%v: %v", errno, err)
		}
	}
	if err := tablesError(nil); err != nil {
		t.Error(err)
	}
}

// TestUIDOf asks who holds connections to the proxy and to the listener of
// redirected ones.
func TestUIDOf(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	s, err := Build(&Wall{Transparent: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, to := range []netip.AddrPort{at(localhost4, Port), at(localhost6, Port), at(fake, 443)} {
		conn, err := net.Dial("tcp", to.String())
		if err != nil {
			t.Fatal(err)
		}
		local := netip.MustParseAddrPort(conn.LocalAddr().String())
		raw, err := conn.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		var stat unix.Stat_t
		if err := unix.Fstat(int(raw.Fd()), &stat); err != nil {
			t.Fatal(err)
		}
		if err := raw.Chown(1234, 1234); err == nil {
			stat.Uid = 1234
		} else {
			stat.Uid = uint32(os.Getuid())
		}
		diag := s.file(t, Diag)
		if got, err := UIDOf(diag, local, to); err != nil || got != (Owner{stat.Uid, uint32(stat.Ino)}) {
			t.Errorf("%s to %s: %+v, %v; want uid %d, inode %d", local, to, got, err, stat.Uid, stat.Ino)
		}
		for _, none := range []netip.AddrPort{at(to.Addr(), 9), at(evil4, 443)} {
			if got, err := UIDOf(diag, local, none); err == nil {
				t.Errorf("%s to %s, which there is not: %+v", local, none, got)
			}
		}
		// The listener is no connection, though the kernel finds it for one.
		if got, err := UIDOf(diag, to, netip.AddrPortFrom(local.Addr(), 1)); !errors.Is(err, unix.ENOENT) {
			t.Errorf("a listener: %+v, %v", got, err)
		}
		raw.Close()
		conn.Close()
	}
}

func TestCookie(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	own, err := OwnCookie()
	if err != nil || own == 0 {
		t.Fatalf("cookie %d, %v", own, err)
	}
	var seen []uint64
	for range 3 {
		netNS := newNamespace(t)
		var other uint64
		var theirs *os.File
		if err := Within(netNS, func() (err error) {
			if other, err = OwnCookie(); err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			theirs = os.NewFile(uintptr(fd), "theirs")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if got, err := Cookie(theirs); err != nil || got != other {
			t.Errorf("a socket of theirs: %d, %v; want %d", got, err, other)
		}
		theirs.Close()
		if other == own || slices.Contains(seen, other) {
			t.Errorf("cookie %d twice", other)
		}
		seen = append(seen, other)
	}
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := Cookie(file); !errors.Is(err, unix.ENOTSOCK) {
		t.Errorf("no socket: %v", err)
	}
}
