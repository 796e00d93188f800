package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

func TestExceedsDomains(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ list, limit, want string }{
		{"", "", ""},
		{"", "a.test", ""},
		{"a.test", "", "a.test"},
		{"a.test", "a.test", ""},
		{"A.test.", "a.test", ""},
		{"bücher.test", "xn--bcher-kva.test", ""},
		{"b.test", "a.test", "b.test"},
		{"x.a.test", "*.a.test", ""},
		{"x.y.a.test", "*.a.test", ""},
		{"a.test", "*.a.test", "a.test"},
		{"xa.a.test", "*.xa.a.test", "xa.a.test"},
		{"ba.test", "*.a.test", "ba.test"},
		{"*.a.test", "*.a.test", ""},
		{"*.b.a.test", "*.a.test", ""},
		{"*.a.test", "*.b.a.test", "*.a.test"},
		{"*.a.test", "a.test", "*.a.test"},
		{"*.ba.test", "*.a.test", "*.ba.test"},
		{"*", "*", ""},
		{"*", "*.a.test *.example.com", "*"},
		{"example.com", "*", ""},
		{"*.example.com", "*", ""},
		{"*.co.uk", "*", ""},
		{"a.test", "*:*", "a.test"},
		{"*.a.test", "*:*", "*.a.test"},
		{"localhost", "*:*", "localhost"},
		{"db", "*:*", "db"},
		{"a.internal", "*:*", "a.internal"},
		{"8.8.8.8", "*:*", "8.8.8.8"},
		{"8.8.8.0/24", "*:*", "8.8.8.0/24"},

		{"a.test:22", "a.test", "a.test:22"},
		{"a.test", "a.test:443", "a.test on port 80"},
		{"a.test", "a.test:443 a.test:80", ""},
		{"a.test", "*.x.test a.test:443", "a.test on port 80"},
		{"a.test:22", "a.test:*", ""},
		{"a.test:*", "a.test:*", ""},
		{"a.test:*", "a.test", "a.test:*"},
		{"*:80", "*", ""},
		{"*:22", "*", "*:22"},
		{"*:*", "*", "*:*"},

		{"a.test:22!tcp", "a.test:22", "a.test:22!tcp"},
		{"a.test:22!tcp", "a.test:22!tcp", ""},
		{"a.test:22", "a.test:22!tcp", ""},
		{"a.test!tcp", "a.test a.test:80!tcp", "a.test!tcp on port 443"},

		{"192.0.2.1", "192.0.2.1", ""},
		{"::ffff:192.0.2.1", "192.0.2.1", ""},
		{"192.0.2.1", "192.0.2.2", "192.0.2.1"},
		{"8.8.8.0/25", "8.8.8.0/24", ""},
		{"8.8.8.0/24", "8.8.8.0/25 8.8.8.128/25", "8.8.8.0/24"},
		{"10.0.0.0/8", "10.0.0.0/8", ""},
		{"10.1.0.0/16", "10.0.0.0/8", ""},
		{"10.0.0.0/8", "8.0.0.0/5", "10.0.0.0/8"},
		{"10.1.2.3", "8.0.0.0/5", "10.1.2.3"},
		{"9.1.2.3", "8.0.0.0/5", ""},
		{"8.0.0.0/6", "8.0.0.0/5", ""},
		{"64:ff9b::1.1.1.1", "64::/16", "64:ff9b::1.1.1.1"},
		{"64:ff9b::1.1.1.1", "64:ff9b::/96", ""},
		{"255.255.255.255", "240.0.0.0/4", "255.255.255.255"},
		{"2001:db8::1", "2001:db8::/32", ""},
		{"::1", "0.0.0.0/1", "::1"},
		{"localhost:80", "localhost", ""},
		{"127.0.0.1:80", "localhost", ""},
		{"[::1]:80", "localhost", ""},
		{"127.0.0.2", "localhost", "127.0.0.2"},
		{"127.0.0.0/8", "localhost", "127.0.0.0/8"},
		{"localhost", "127.0.0.1 ::1", "localhost"},
	} {
		got := strings.Join(mustList(t, strings.Fields(tt.list)...).exceeds(mustList(t, strings.Fields(tt.limit)...), false), ", ")
		if got != tt.want {
			t.Errorf("%q exceeds %q by %q, want %q", tt.list, tt.limit, got, tt.want)
		}
	}
}

func TestExceeds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ keys, limit, want string }{
		{"", "", ""},
		{"sni=match", "sni=allowlisted", ""},
		{"sni=allowlisted", "sni=match", "sni allowlisted"},
		{"sni=off", "sni=allowlisted", "sni off"},
		{"sni=off", "sni=off", ""},
		{"mode=observe", "", "mode observe"},
		{"mode=enforce", "mode=observe", ""},
		{"local-ports=80,81", "local-ports=81", "local-ports 80"},
		{"peers=", "", ""},
		{"", "peers=", "peers on-link"},
		{"", "peers=10.0.0.0/8", "peers on-link"},
		{"peers=10.1.0.0/16", "peers=10.0.0.0/8", ""},
		{"peers=10.0.0.0/8", "peers=10.1.0.0/16", "peers 10.0.0.0/8"},
		{"peers=10.0.0.0/8", "peers=on-link", "peers 10.0.0.0/8"},
		{"", "inbound=none", "inbound all"},
		{"", "inbound=on-link", "inbound all"},
		{"inbound=on-link", "", ""},
		{"inbound=on-link,80", "inbound=80", "inbound on-link"},
		{"inbound=80,81", "inbound=on-link,80", "inbound 81"},
		{"inbound=", "inbound=none", ""},
		{"allow-sockets=/a,/b", "allow-sockets=/b/", "allow-sockets \"/a\""},
		{"allow-sockets=/a/b", "allow-sockets=/a", "allow-sockets \"/a/b\""},
		{"allow-fds=on", "", "allow-fds on"},
		{"allow-fds=on", "allow-fds=on", ""},
		{"", "deny=/a", "no deny of \"/a\""},
		{"deny=/a/,/b", "deny=/a", ""},
		{"deny-write=/a", "deny=/a", "no deny of \"/a\""},
		{"deny=/a", "deny-write=/a", ""},
		{"", "deny-write=/a", "no deny-write of \"/a\""},
		{"network=full", "", "network full"},
		{"network=full", "network=full deny=/a", "no deny of \"/a\""},
		{"network=full", "network=full", ""},
		{"domains=*:* sni=off mode=observe local-ports=1 inbound=all peers=10.0.0.0/8", "network=full", ""},
		{"domains=a.test:22!tcp", "domains=a.test:22 sni=off", ""},
		{"domains=a.test:80!tcp", "domains=a.test:80 sni=off", "domains a.test:80!tcp"},
		{"domains=a.test:*!tcp", "domains=a.test:* sni=off", "domains a.test:*!tcp"},
		{"transparent=off proxy-env=off on-proxy-exit=kill", "transparent=on", ""},
	} {
		build := func(keys string) *Policy {
			var pairs []string
			for _, pair := range strings.Fields(keys) {
				key, value, _ := strings.Cut(pair, "=")
				pairs = append(pairs, key, value)
			}
			p, err := Resolve(ask(append(pairs, "on-proxy-exit", "deny")...))
			if strings.Contains(keys, "on-proxy-exit") {
				p, err = Resolve(ask(pairs...))
			}
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		if got := strings.Join(build(tt.keys).Exceeds(build(tt.limit)), ", "); got != tt.want {
			t.Errorf("%q exceeds %q by %q, want %q", tt.keys, tt.limit, got, tt.want)
		}
	}
	if got := (&Policy{}).Exceeds(nil); got != nil {
		t.Errorf("no limit is exceeded by %q", got)
	}
}

// generator makes entries and targets that have a chance to meet.
type generator struct{ *rand.Rand }

func (g generator) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g generator) name() string {
	return g.pick("", "", "a.", "b.", "a.b.", "ba.") + g.pick("a.test", "b.a.test", "example.com", "github.io", "x.co.uk", "db", "a.internal", "localhost")
}

func (g generator) prefix() string {
	if g.IntN(4) == 0 {
		return netip.PrefixFrom(netip.MustParseAddr(g.pick("64:ff9b::a00:1", "64:ff9b::101:101", "fc00::1", "2600::1", "::1")), 1+g.IntN(128)).Masked().String()
	}
	addr := netip.MustParseAddr(g.pick("10.0.0.5", "10.128.0.1", "8.8.8.8", "127.0.0.1", "255.255.255.255", "192.0.2.1"))
	return netip.PrefixFrom(addr, g.pickBits()).Masked().String()
}

func (g generator) pickBits() int { return []int{1, 4, 5, 7, 8, 9, 16, 24, 31, 32}[g.IntN(10)] }

func (g generator) entry() string {
	host := g.name()
	switch g.IntN(6) {
	case 0, 1:
		host = "*." + g.pick("a.test", "b.a.test", "example.com", "github.io", "a.internal")
	case 2:
		host = "*"
	case 3:
		host = g.prefix()
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
	}
	return host + g.pick("", "", ":80", ":443", ":22", ":*") + g.pick("", "", "", "!tcp")
}

func (g generator) list(t *testing.T, most int) *Allowlist {
	entries := make([]string, g.IntN(most+1))
	for i := range entries {
		entries[i] = g.entry()
	}
	return mustList(t, entries...)
}

func (g generator) target() Target {
	port := []uint16{22, 80, 443, 65535}[g.IntN(4)]
	if g.IntN(3) == 0 {
		p := netip.MustParsePrefix(g.prefix())
		return Target{Host: p.Addr().String(), Addr: p.Addr(), Port: port}
	}
	return Target{Host: g.name(), Port: port}
}

func (a *Allowlist) texts() []string {
	var texts []string
	for _, e := range a.entries {
		texts = append(texts, e.text)
	}
	return texts
}

// TestWithinIsAnOrder: a list is within itself, and within what holds what holds
// it.
func TestWithinIsAnOrder(t *testing.T) {
	t.Parallel()
	g := generator{rand.New(rand.NewPCG(1, 2))}
	within := func(a, b *Allowlist) bool { return len(a.exceeds(b, false)) == 0 }
	chains := 0
	for range 5000 {
		a, b, c := g.list(t, 2), g.list(t, 6), g.list(t, 40)
		if !within(a, a) {
			t.Fatalf("%q is not within itself", a.texts())
		}
		if both := mustList(t, append(a.texts(), b.texts()...)...); !within(a, both) || !within(b, both) {
			t.Fatalf("%q or %q is not within both", a.texts(), b.texts())
		}
		if within(a, b) && within(b, c) {
			if len(a.entries) > 0 {
				chains++
			}
			if !within(a, c) {
				t.Fatalf("%q is within %q, and that within %q, but not the first in the last", a.texts(), b.texts(), c.texts())
			}
		}
	}
	if chains < 10 {
		t.Errorf("%d chains: the generator makes nothing that meets", chains)
	}
}

// TestWithinAgreesWithDecide: what is within a limit allows nothing that the
// limit does not, for names, addresses, and addresses that names lead to; and of
// what is not within a limit of one entry, a witness can be named.
func TestWithinAgreesWithDecide(t *testing.T) {
	t.Parallel()
	g := generator{rand.New(rand.NewPCG(3, 4))}
	allowed, refused := 0, 0
	for range 20000 {
		a, limit := g.list(t, 3), g.list(t, 3)
		if len(a.exceeds(limit, false)) > 0 {
			if len(a.entries) == 1 && len(limit.entries) == 1 {
				refused++
				if why := witness(a, limit); why == "" {
					t.Fatalf("%q is not within %q, but allows nothing more", a.texts(), limit.texts())
				}
			}
			continue
		}
		for range 20 {
			target := g.target()
			mine, theirs := a.Decide(target), limit.Decide(target)
			if mine.Allow {
				allowed++
			}
			if mine.Allow && !theirs.Allow || mine.Allow && mine.Opaque && !theirs.Opaque {
				t.Fatalf("%q is within %q, but for %v: %+v, %+v", a.texts(), limit.texts(), target, mine, theirs)
			}
			if target.Addr.IsValid() && VetAddr(a, target.Addr, target.Port).Allow && !VetAddr(limit, target.Addr, target.Port).Allow {
				t.Fatalf("%q is within %q, but opens %v", a.texts(), limit.texts(), target)
			}
		}
	}
	if allowed < 100 || refused < 100 {
		t.Errorf("%d allowed targets, %d lists beyond a limit: the generator makes nothing that meets", allowed, refused)
	}
}

// witness returns what the only entry of a allows and limit does not, or "".
func witness(a, limit *Allowlist) string {
	e := a.entries[0]
	ports := e.ports.list
	if e.ports.any {
		ports = []uint16{80, 22, 64999}
	}
	var hosts []Target
	switch {
	case e.star:
		hosts = []Target{{Host: "unlikely.com"}}
	case e.wildcard:
		hosts = []Target{{Host: "unlikely." + e.name}}
	case e.prefix.IsValid():
		// All ends of what any row of the table or of the limit may cut off.
		edges := []netip.Prefix{e.prefix, nat64}
		for _, row := range specials() {
			edges = append(edges, row.prefix)
		}
		for _, edge := range edges {
			for _, addr := range []netip.Addr{edge.Addr(), last(edge), last(edge).Next(), edge.Addr().Prev()} {
				if e.prefix.Contains(addr) {
					hosts = append(hosts, Target{Host: addr.String(), Addr: addr})
				}
			}
		}
		hosts = append(hosts, Target{Host: last(e.prefix).String(), Addr: last(e.prefix)})
	default:
		hosts = []Target{{Host: e.name}}
	}
	for _, host := range hosts {
		for _, port := range ports {
			host.Port = port
			mine, theirs := a.Decide(host), limit.Decide(host)
			if mine.Allow && !theirs.Allow || mine.Opaque && !theirs.Opaque {
				return fmt.Sprint(host)
			}
			if host.Addr.IsValid() && VetAddr(a, host.Addr, port).Allow && !VetAddr(limit, host.Addr, port).Allow {
				return fmt.Sprint(host)
			}
		}
	}
	return ""
}

// last returns the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < p.Addr().BitLen(); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}
