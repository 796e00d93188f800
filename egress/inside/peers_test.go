package inside

import (
	"errors"
	"net"
	"net/netip"
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

// TestMany has more of everything than fits into one message.
func TestMany(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	wall := &Wall{Transparent: true}
	var last netip.Addr
	for i := range 3000 {
		last = netip.AddrFrom4([4]byte{10, 1, byte(i >> 7), byte(i<<1) & 255})
		wall.Peers.Prefixes = append(wall.Peers.Prefixes, netip.PrefixFrom(last, 32))
		wall.Inbound.Ports = append(wall.Inbound.Ports, uint16(1024+i))
	}
	s, err := Build(wall)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !peers(t, last) || peers(t, last.Next()) || !wall.isComplete() {
		t.Errorf("%s is a peer: %v, the next %v", last, peers(t, last), peers(t, last.Next()))
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
