package inside

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// at is an address with a port.
func at(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

// sendFrom sends a UDP datagram from an address that need not be this
// namespace's own.
func sendFrom(source, to netip.AddrPort, freebind bool) error {
	fd, err := unix.Socket(familyOf(to.Addr()), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if freebind {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_FREEBIND, 1); err != nil {
			return err
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err != nil {
		return err
	}
	if err := unix.Bind(fd, sockaddr(source)); err != nil {
		return err
	}
	return unix.Sendto(fd, []byte("hello"), 0, sockaddr(to))
}

// ping sends an echo request without privileges.
func ping(to netip.Addr) error {
	proto, kind := unix.IPPROTO_ICMP, byte(8)
	if to.Is6() {
		proto, kind = unix.IPPROTO_ICMPV6, 128
	}
	if err := writeSysctl("ipv4/ping_group_range", "0 0"); err != nil {
		return err
	}
	fd, err := unix.Socket(familyOf(to), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, []byte{kind, 0, 0, 0, 0, 1, 0, 1}, 0, sockaddr(at(to, 0)))
}

// datagram sends over a protocol like UDP.
func datagram(proto int, to netip.AddrPort) error {
	fd, err := unix.Socket(familyOf(to.Addr()), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, []byte("hello"), 0, sockaddr(to))
}

// TestNothingLeaves has each way out that a program can try. All of them work
// without the wall, and with it not one packet is on the wire.
func TestNothingLeaves(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	w := newWorld(t, true)
	const eth0 = "eth0"
	tcp := func(to netip.AddrPort, device string) func() error {
		return func() error { return begin(unix.SOCK_STREAM, to, device) }
	}
	udp := func(to netip.AddrPort, device string) func() error {
		return func() error { return begin(unix.SOCK_DGRAM, to, device) }
	}
	attempts := []struct {
		name, want string
		do         func() error
	}{
		{"TCP by interface", "tcp 10.77.0.2>203.0.113.9:7001", tcp(at(evil4, 7001), eth0)},
		{"TCP6 by interface", "tcp fd77::2>[2001:db8::9]:7001", tcp(at(evil6, 7001), eth0)},
		{"DNS by interface", "udp 10.77.0.2>203.0.113.9:53", udp(at(evil4, 53), eth0)},
		{"DNS6 by interface", "udp fd77::2>[2001:db8::9]:53", udp(at(evil6, 53), eth0)},
		{"DNS over TCP by interface", "tcp 10.77.0.2>203.0.113.9:53", tcp(at(evil4, 53), eth0)},
		{"fake range by interface", "tcp 10.77.0.2>198.18.0.7:7002", tcp(at(fake, 7002), eth0)},
		{"fake range DNS by interface", "udp 10.77.0.2>198.18.0.7:53", udp(at(fake, 53), eth0)},
		{"docker's resolver by interface", "udp 10.77.0.2>127.0.0.11:53", udp(at(dockerResolver, 53), eth0)},
		{"the host's loopback by interface", "tcp 10.77.0.2>127.0.0.1:7003", tcp(at(localhost4, 7003), eth0)},
		{"UDP", "udp 10.77.0.2>203.0.113.9:7004", udp(at(evil4, 7004), "")},
		{"UDP6", "udp fd77::2>[2001:db8::9]:7004", udp(at(evil6, 7004), "")},
		{"TCP", "tcp 10.77.0.2>203.0.113.9:7005", tcp(at(evil4, 7005), "")},
		{"TCP6", "tcp fd77::2>[2001:db8::9]:7005", tcp(at(evil6, 7005), "")},
		{"UDP-Lite", "udplite 10.77.0.2>203.0.113.9:7006", func() error { return datagram(unix.IPPROTO_UDPLITE, at(evil4, 7006)) }},
		{"gateway", "tcp 10.77.0.2>10.77.0.1:7007", tcp(at(gateway4, 7007), "")},
		{"gateway UDP", "udp 10.77.0.2>10.77.0.1:7007", udp(at(gateway4, 7007), "")},
		{"gateway6 UDP", "udp fd77::2>[fd77::1]:7007", udp(at(gateway6, 7007), "")},
		{"gateway by interface", "tcp 10.77.0.2>10.77.0.1:7008", tcp(at(gateway4, 7008), eth0)},
		{"link-local", "udp LINK>[HOST]:7009", udp(at(w.hostLink.WithZone("eth0"), 7009), "")},
		{"link-local TCP", "tcp LINK>[HOST]:7009", tcp(at(w.hostLink.WithZone("eth0"), 7009), "")},
		{"all nodes", "udp LINK>[ff02::1]:7010", udp(at(netip.MustParseAddr("ff02::1%eth0"), 7010), "")},
		{"broadcast", "udp 10.77.0.2>10.77.0.255:7011", func() error {
			return sendFrom(at(own4, 0), at(netip.MustParseAddr("10.77.0.255"), 7011), false)
		}},
		{"everybody", "udp 10.77.0.2>255.255.255.255:7011", func() error {
			return sendFrom(at(own4, 0), at(netip.MustParseAddr("255.255.255.255"), 7011), false)
		}},
		{"multicast", "udp 10.77.0.2>224.0.0.251:5353", udp(at(netip.MustParseAddr("224.0.0.251"), 5353), "")},
		{"ping", "echo 10.77.0.2>203.0.113.9", func() error { return ping(evil4) }},
		{"ping6", "echo fd77::2>2001:db8::9", func() error { return ping(evil6) }},
		{"source of the fake range", "udp 198.18.0.7>203.0.113.9:7012", func() error { return sendFrom(at(fake, 0), at(evil4, 7012), true) }},
		{"somebody else's source", "udp 2001:db8::5>[2001:db8::9]:7013", func() error {
			return sendFrom(at(netip.MustParseAddr("2001:db8::5"), 0), at(evil6, 7013), true)
		}},
	}
	var own netip.Addr
	w.inside(func() error { own = linkLocal(t, "eth0"); return setUpLoopback() })
	links := strings.NewReplacer("LINK", own.String(), "HOST", w.hostLink.String())
	for _, a := range attempts {
		if got := w.left(a.do); !slices.Contains(got, links.Replace(a.want)) {
			t.Errorf("%s: %q left without the wall, want %q among it", a.name, got, links.Replace(a.want))
		}
	}
	w.build(w.wall())
	for _, a := range attempts {
		if got := w.left(a.do); len(got) > 0 {
			t.Errorf("%s: %q left", a.name, got)
		}
	}
	// The wire is still there.
	peer := w.left(udp(at(peer4, 7100), ""))
	if !slices.Equal(peer, []string{"udp 10.77.0.2>10.77.0.3:7100"}) {
		t.Errorf("to a peer %q left", peer)
	}
}

// removeRules takes the rules that which picks out of the wall of the calling
// thread's namespace.
func removeRules(chainName string, which func(exprs []expr.Any) bool) (removed int, err error) {
	conn, err := nftables.New()
	if err != nil {
		return 0, err
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	rules, err := conn.GetRules(table, &nftables.Chain{Name: chainName, Table: table})
	if err != nil {
		return 0, err
	}
	for _, r := range rules {
		if which(r.Exprs) {
			removed++
			if err := conn.DelRule(r); err != nil {
				return removed, err
			}
		}
	}
	return removed, conn.Flush()
}

// withoutRules takes rules out of the wall, for the control of their test.
func (w *world) withoutRules(chainName string, which func(exprs []expr.Any) bool) {
	w.t.Helper()
	w.inside(func() error {
		n, err := removeRules(chainName, which)
		if n == 0 {
			w.t.Errorf("no such rule in %s", chainName)
		}
		return err
	})
}

// TestFoundWall has somebody leave a table in the namespace that has the rules of
// the wall and peers of his own, before the first container comes that is held to
// it.
func TestFoundWall(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	w := newWorld(t, true)
	left := w.wall()
	left.Peers.Prefixes = []netip.Prefix{netip.PrefixFrom(evil4, 32)}
	build := func(wall *Wall) {
		w.inside(func() error {
			s, err := Build(wall)
			if err == nil {
				s.Close()
			}
			return err
		})
	}
	build(left)
	attempt := func() error { return begin(unix.SOCK_DGRAM, at(evil4, 7100), "") }
	wall := w.wall()
	wall.New, wall.Members = false, true
	build(wall)
	if got := w.left(attempt); !slices.Contains(got, "udp 10.77.0.2>"+at(evil4, 7100).String()) {
		t.Errorf("control: %q left of members that have the peer", got)
	}
	wall.Members = false
	build(wall)
	if got := w.left(attempt); len(got) > 0 {
		t.Errorf("%q left", got)
	}
}

// TestForeignSource makes a connection over lo that looks like one from outside:
// IPv6 lets everybody take a source address that is not his.
func TestForeignSource(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	w := newWorld(t, true)
	w.build(w.wall())
	attempt := func() error {
		server, err := net.ListenPacket("udp6", "[::]:7201")
		if err != nil {
			return err
		}
		defer server.Close()
		if err := sendFrom(at(evil6, 7200), at(own6, 7201), true); err != nil {
			return err
		}
		_, err = server.WriteTo([]byte("secret"), net.UDPAddrFromAddrPort(at(evil6, 7200)))
		return err
	}
	if got := w.left(attempt); len(got) > 0 {
		t.Errorf("%q left", got)
	}
	w.withoutRules("refuse", func(exprs []expr.Any) bool {
		fib, ok := exprs[0].(*expr.Fib)
		return ok && fib.FlagSADDR
	})
	if got := w.left(attempt); !slices.Contains(got, "udp fd77::2>[2001:db8::9]:7200") {
		t.Errorf("%q left without the rule", got)
	}
}
