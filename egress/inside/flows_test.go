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

	"eggrun/policy"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// TestOldConnection has one from before the wall, with a server that speaks
// once it stands.
func TestOldConnection(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	w := newWorld(t, true)
	server, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at(evil4, 8080)))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	type flow struct {
		client *os.File
		server net.Conn
	}
	var flows []flow
	for range 2 {
		client, err := w.connected(at(evil4, 8080), unix.IPPROTO_TCP)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		flows = append(flows, flow{client, conn})
	}
	w.left(func() error { return nil })
	wall := w.wall()
	wall.New = false
	err = Within(w.netNS, func() error { _, err := Build(wall); return err })
	wantGap(t, err, "cannot enforce domains: the network namespace has 2 open connections from before the policy; "+
		"give the first container that joins it the policy, or a network namespace of its own")
	// And where nobody looked.
	wall.New = true
	w.build(wall)
	talk := func(f flow) func() error {
		return func() error {
			if _, err := f.server.Write([]byte("come out")); err != nil {
				return err
			}
			// The server's word is there before the answer.
			if _, err := unix.Read(int(f.client.Fd()), make([]byte, 8)); err != nil {
				return err
			}
			_, err := unix.Write(int(f.client.Fd()), []byte("secret"))
			return err
		}
	}
	for _, f := range flows {
		if err := unix.SetsockoptTimeval(int(f.client.Fd()), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 300_000}); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.left(talk(flows[0])); len(got) > 0 {
		t.Errorf("%q left", got)
	}
	if got := w.left(func() error { _, err := unix.Write(int(flows[0].client.Fd()), []byte("secret")); return err }); len(got) > 0 {
		t.Errorf("%q left", got)
	}
	w.withoutRules("enter", has(func(e expr.Any) bool { _, ok := e.(*expr.Ct); return ok }))
	if got := w.left(talk(flows[1])); !slices.Contains(got, "tcp 10.77.0.2>203.0.113.9:8080") {
		t.Errorf("%q left without the rule", got)
	}
}

// TestInbound has servers in the container and clients outside.
func TestInbound(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	w := newWorld(t, true)
	const open, other = 8080, 8081
	for _, a := range []netip.AddrPort{at(own4, open), at(own4, other), at(own6, open), at(own6, other)} {
		w.inside(func() error { serve(t, a); return nil })
	}
	clientPort := uint16(20000)
	// answered tells whether the container answers a client's first packet.
	answered := func(from netip.Addr, to uint16, isExpected bool) (got bool) {
		clientPort++
		server := at(own4, to)
		if from.Is6() {
			server = at(own6, to)
		}
		fd, err := bound(unix.SOCK_STREAM, at(from, clientPort))
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
		if err := unix.Connect(fd, sockaddr(server)); !errors.Is(err, unix.EINPROGRESS) {
			t.Errorf("connect: %v", err)
		}
		answer := fmt.Sprintf("tcp %s>%s", server.Addr(), at(from, clientPort))
		look := func() bool {
			return slices.Contains(w.left(func() error { return nil }), answer)
		}
		if isExpected {
			eventually(t, answer, look)
			return true
		}
		return look()
	}
	for _, tt := range []struct {
		what    string
		inbound policy.Inbound
		want    []netip.AddrPort // who reaches which port
	}{
		{"all", policy.Inbound{All: true}, []netip.AddrPort{
			at(evil4, open), at(evil4, other), at(evil6, open), at(evil6, other), at(peer4, open), at(peer4, other), at(peer6, open), at(peer6, other),
		}},
		{"on-link", policy.Inbound{OnLink: true}, []netip.AddrPort{at(peer4, open), at(peer4, other), at(peer6, open), at(peer6, other)}},
		{"a port", policy.Inbound{Ports: []uint16{open}}, []netip.AddrPort{at(evil4, open), at(evil6, open), at(peer4, open), at(peer6, open)}},
		{"none", policy.Inbound{}, nil},
	} {
		wall := w.wall()
		wall.Inbound = tt.inbound
		var s *Sockets
		w.inside(func() (err error) {
			if s, err = Build(wall); err == nil {
				err = Recheck(wall, true)
			}
			return err
		})
		for _, from := range []netip.Addr{evil4, evil6, peer4, peer6} {
			for _, port := range []uint16{open, other} {
				want := slices.Contains(tt.want, at(from, port))
				if got := answered(from, port, want); got != want {
					t.Errorf("%s: %s reaches port %d: %v", tt.what, from, port, got)
				}
			}
		}
		// Whoever came in can't be called back.
		for _, to := range []netip.AddrPort{at(evil4, 7400), at(evil6, 7400)} {
			got := w.left(func() error { return begin(unix.SOCK_DGRAM, to, "") })
			if slices.ContainsFunc(got, func(p string) bool { return strings.HasSuffix(p, ">"+to.String()) }) {
				t.Errorf("%s: %q left", tt.what, got)
			}
		}
		s.Close()
	}
}

// TestForward makes the container a router.
func TestForward(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	w := newWorld(t, true)
	ip(t, "route", "add", "198.51.100.0/24", "via", "10.77.0.2", "src", "203.0.113.9")
	w.inside(func() error { return writeSysctl("ipv4/ip_forward", "1") })
	through := func() error { return nil }
	send := func() {
		if err := begin(unix.SOCK_DGRAM, netip.MustParseAddrPort("198.51.100.1:7500"), ""); err != nil {
			t.Fatal(err)
		}
	}
	send()
	if got := w.left(through); !slices.Contains(got, "udp 203.0.113.9>198.51.100.1:7500") {
		t.Errorf("without the wall %q came through", got)
	}
	w.build(w.wall())
	send()
	if got := w.left(through); len(got) > 0 {
		t.Errorf("%q came through", got)
	}
}

// TestItself has a container that connects to its own servers.
func TestItself(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	w := newWorld(t, true)
	w.build(w.wall())
	var own netip.Addr
	w.inside(func() error {
		own = linkLocal(t, "eth0").WithZone("eth0")
		serve(t, netip.MustParseAddrPort("[::]:8080")) // of both families
		return nil
	})
	for _, a := range []netip.Addr{localhost4, localhost6, own4, own6, own} {
		w.inside(func() error {
			conn, err := net.DialTimeout("tcp", at(a, 8080).String(), 20e9)
			if err != nil {
				t.Errorf("%s: %v", a, err)
				return nil
			}
			return conn.Close()
		})
	}
}
