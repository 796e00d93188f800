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
	"eggrun/sandbox"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// serve answers "hello" to each connection on the host's side.
func serve(t *testing.T, at netip.AddrPort) {
	t.Helper()
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	server, err := config.Listen(t.Context(), "tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("hello"))
			conn.Close()
		}
	}()
}

// hears tells whether the container hears a server's "hello" at an address,
// and not the sidecar's silence.
func (w *world) hears(at netip.AddrPort) bool {
	w.t.Helper()
	client, err := w.connected(at, unix.IPPROTO_TCP)
	if err != nil {
		w.t.Logf("%s: %v", at, err)
		return false
	}
	poll := []unix.PollFd{{Fd: int32(client.Fd()), Events: unix.POLLIN}}
	const patience = 20_000
	if n, err := unix.Poll(poll, patience); err != nil || n == 0 {
		return false
	}
	text := make([]byte, 5)
	n, _ := unix.Read(int(client.Fd()), text)
	return string(text[:n]) == "hello"
}

// has finds the rules with an expression that is wanted.
func has(wanted func(e expr.Any) bool) func(exprs []expr.Any) bool {
	return func(exprs []expr.Any) bool { return slices.ContainsFunc(exprs, wanted) }
}

func TestPeers(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	w := newWorld(t, true)
	all := []netip.AddrPort{at(peer4, 8080), at(peer6, 8080), at(gateway4, 8080), at(gateway6, 8080), at(evil4, 8080), at(evil6, 8080)}
	for _, a := range all {
		serve(t, a)
	}
	hears := func(when string, want ...netip.AddrPort) {
		t.Helper()
		for _, a := range all {
			if slices.Contains(want, a) {
				if !w.hears(a) {
					t.Errorf("%s: %s is not heard", when, a)
				}
				continue
			}
			// Of another port, for some connections are still being closed.
			probe := at(a.Addr(), 9090)
			left := w.left(func() error { return begin(unix.SOCK_STREAM, probe, "") })
			if slices.ContainsFunc(left, func(p string) bool { return strings.HasSuffix(p, ">"+probe.String()) }) {
				t.Errorf("%s: %q left", when, left)
			}
		}
	}
	hears("without the wall", all...)
	wall := w.wall()
	w.inside(func() error {
		s, err := Build(wall)
		if err == nil {
			t.Cleanup(s.Close)
		}
		return err
	})
	hears("before start")
	w.inside(func() error { return Recheck(wall, true) })
	hears("started", at(peer4, 8080), at(peer6, 8080))
	w.inside(func() error { return Recheck(wall, false) })
	hears("exec", at(peer4, 8080), at(peer6, 8080))

	wall.Peers = policy.Peers{Prefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}
	w.inside(func() error { return Recheck(wall, true) })
	hears("with a prefix of its own", at(evil4, 8080))
	wall.Peers = policy.Peers{}
	w.inside(func() error { return Recheck(wall, true) })
	hears("with no peers")
}

// TestNeighbourDiscovery needs one who has not been heard of yet to be found.
func TestNeighbourDiscovery(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	w := newWorld(t, true)
	wall := w.wall()
	w.build(wall)
	for _, chain := range []string{"refuse", "leave"} {
		w.withoutRules(chain, has(func(e expr.Any) bool {
			c, ok := e.(*expr.Cmp)
			return ok && slices.Equal(c.Data, []byte{255}) // hop limit
		}))
		call := func() bool {
			left := w.left(func() error { return begin(unix.SOCK_STREAM, at(peer6, 9090), "") })
			return slices.Contains(left, "tcp fd77::2>[fd77::3]:9090")
		}
		if call() {
			t.Errorf("found without the rules in %s", chain)
		}
		w.inside(func() error {
			ip(t, "neigh", "flush", "all")
			return Recheck(wall, true)
		})
		if chain == "leave" {
			eventually(t, "a packet to the peer", call)
		}
	}
}

// TestLaterInterface adds one to a running container, as "docker network
// connect" does.
func TestLaterInterface(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	w := newWorld(t, true)
	wall := w.wall()
	w.build(wall)
	w.inside(func() error {
		ip(t, "link", "add", "eth1", "type", "veth", "peer", "name", "p1")
		ip(t, "addr", "add", "10.78.0.2/24", "dev", "eth1")
		ip(t, "link", "set", "p1", "up")
		ip(t, "link", "set", "eth1", "up")
		return nil
	})
	later := netip.MustParseAddr("10.78.0.5")
	isPeer := func(a netip.Addr) (found bool) {
		w.inside(func() error { found = peers(t, a); return nil })
		return found
	}
	w.inside(func() error { return Recheck(wall, false) })
	if isPeer(later) || !isPeer(peer4) {
		t.Errorf("exec: the later peer %v, the earlier %v", isPeer(later), isPeer(peer4))
	}
	w.inside(func() error { return Recheck(wall, true) })
	if !isPeer(later) || !isPeer(peer4) {
		t.Errorf("start: the later peer %v, the earlier %v", isPeer(later), isPeer(peer4))
	}
}

// peers looks an address up in the set of the calling thread's namespace.
func peers(t *testing.T, a netip.Addr) bool {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	s := newSets(&nftables.Table{Name: tableName, Family: nftables.TableFamilyINet})
	elements, err := conn.GetSetElements(s.peers4)
	if err != nil {
		t.Fatal(err)
	}
	type edge struct {
		at    netip.Addr
		isEnd bool
	}
	var edges []edge
	for _, e := range elements {
		key, _ := netip.AddrFromSlice(e.Key)
		edges = append(edges, edge{key, e.IntervalEnd})
	}
	slices.SortFunc(edges, func(a, b edge) int { return a.at.Compare(b.at) })
	inside := false
	for _, e := range edges {
		if a.Less(e.at) {
			break
		}
		inside = !e.isEnd
	}
	return inside
}

// TestRecheck damages the wall in each way that somebody might.
func TestRecheck(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	w := newWorld(t, true)
	wall := w.wall()
	w.build(wall)
	attempt := func() error { return begin(unix.SOCK_DGRAM, at(evil4, 7300), "") }
	own := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	chain := func(name string) *nftables.Chain { return &nftables.Chain{Name: name, Table: own} }
	for what, damage := range map[string]func(c *nftables.Conn){
		"all flushed":   func(c *nftables.Conn) { c.FlushRuleset() },
		"table deleted": func(c *nftables.Conn) { c.DelTable(own) },
		"chain gone":    func(c *nftables.Conn) { c.FlushChain(chain("leave")); c.DelChain(chain("leave")) },
		"rules gone":    func(c *nftables.Conn) { c.FlushChain(chain("refuse")) },
		"rule more": func(c *nftables.Conn) {
			c.InsertRule(&nftables.Rule{Table: own, Chain: chain("leave"), Exprs: accept()})
			c.InsertRule(&nftables.Rule{Table: own, Chain: chain("refuse"), Exprs: accept()})
		},
		"policy": func(c *nftables.Conn) {
			policy := nftables.ChainPolicyAccept
			c.AddChain(&nftables.Chain{Name: "leave", Table: own, Policy: &policy})
		},
	} {
		w.inside(func() error {
			conn, err := nftables.New()
			if err != nil {
				return err
			}
			damage(conn)
			if err := conn.Flush(); err != nil {
				return err
			}
			if wall.isComplete() {
				t.Errorf("%s: not seen", what)
			}
			return Recheck(wall, false)
		})
		if got := w.left(attempt); len(got) > 0 {
			t.Errorf("%s: %q left", what, got)
		}
		w.inside(func() error {
			if !wall.isComplete() {
				t.Errorf("%s: not mended", what)
			}
			return nil
		})
	}
	w.inside(func() error {
		conn, err := nftables.New()
		if err == nil {
			conn.DelTable(own)
			err = conn.Flush()
		}
		return err
	})
	if got := w.left(attempt); len(got) == 0 {
		t.Error("nothing left with no wall")
	}
}

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

// TestTooLarge refuses to take half the world for neighbours.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	w := newWorld(t, true)
	wall := w.wall()
	w.build(wall)
	err := Within(w.netNS, func() error {
		ip(t, "addr", "add", "10.1.2.3/8", "dev", "eth0")
		return Recheck(wall, true)
	})
	var enforcement *sandbox.EnforcementError
	if !errors.As(err, &enforcement) {
		t.Errorf("error %v", err)
	}
	wall.Peers = policy.Peers{}
	w.inside(func() error { return Recheck(wall, true) })
}
