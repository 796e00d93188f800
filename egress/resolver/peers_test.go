package resolver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"eggrun/policy"

	"golang.org/x/net/dns/dnsmessage"
)

// newZone returns an engine's resolver that also answers what it should not be
// asked for, as aardvark-dns does by asking the world.
func newZone() *zone {
	return &zone{records: map[string][]string{
		"db":                         {"10.77.0.5"},
		"db.dns.podman":              {"10.77.0.5"},
		"dual":                       {"10.77.0.6", "fd77::6"},
		"six":                        {"fd77::6"},
		"named.by.policy":            {"10.77.0.7"},
		"outside":                    {"93.184.216.34"},
		"mixed":                      {"10.77.0.5", "93.184.216.34"},
		"mixed6":                     {"10.77.0.5", "2001:db8::1"},
		"mapped":                     {"::ffff:10.77.0.5"},
		"good.test":                  {"10.77.0.66"},
		"leak.evil.test":             {"10.77.0.66"},
		"a.b.dns.podman":             {"10.77.0.66"},
		"com":                        {},
		"5.0.77.10.in-addr.arpa":     {"db.dns.podman."},
		"6.0.77.10.in-addr.arpa":     {"bad name.dns.podman."},
		"34.216.184.93.in-addr.arpa": {"leak.test."},
	}}
}

func podman(z *zone) Engine {
	return Engine{Search: []string{"dns.podman"}, IsPeer: inPeers, Upstream: z}
}

func TestPeers(t *testing.T) {
	t.Parallel()
	const a, aaaa, ptr = dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypePTR
	for _, tt := range []struct {
		name  string
		kind  dnsmessage.Type
		want  string
		asked string // what the engine's resolver is asked, with commas
	}{
		{"db", a, "Success 10.77.0.5", "db A"},
		{"DB", a, "Success 10.77.0.5", "db A"},
		{"db.dns.podman", a, "Success 10.77.0.5", "db.dns.podman A"},
		{"db.dns.podman", typeHTTPS, "Success", "db.dns.podman A"},
		{"dual", a, "Success 10.77.0.6", "dual A"},
		{"dual", aaaa, "Success fd77::6", "dual AAAA"},
		{"named.by.policy", a, "Success 10.77.0.7", "named.by.policy A"},
		// musl takes NXDOMAIN of one kind for the name's.
		{"db", aaaa, "Success", "db AAAA,db A"},
		{"six", a, "Success", "six A,six AAAA"},
		{"nobody", a, "NameError", "nobody A,nobody AAAA"},
		{"nobody", aaaa, "NameError", "nobody AAAA,nobody A"},
		{"nobody", dnsmessage.TypeTXT, "NameError", "nobody A,nobody AAAA"},
		{"com", a, "NameError", "com A,com AAAA"},
		// An answer with one address of somebody else doesn't count.
		{"outside", a, "NameError", "outside A,outside AAAA"},
		{"mixed", a, "NameError", "mixed A,mixed AAAA"},
		{"mixed6", a, "Success 10.77.0.5", "mixed6 A"},
		{"mixed6", aaaa, "Success", "mixed6 AAAA,mixed6 A"},
		{"mapped", aaaa, "NameError", "mapped AAAA,mapped A"},
		// An allowed name is never a peer's.
		{"good.test", a, "Success 198.18.0.2", ""},
		{"good.test", aaaa, "Success", ""},
		// What could carry data to the world is asked of nobody.
		{"leak.evil.test", a, "NameError", ""},
		{"a.b.dns.podman", a, "NameError", ""},
		{"dns.podman", a, "NameError", ""},
		{"x.named.by.policy", a, "NameError", ""},
		{"localhost", a, "Success 127.0.0.1", ""},
		{"5.0.77.10.in-addr.arpa", ptr, "Success db.dns.podman.", "5.0.77.10.in-addr.arpa PTR"},
		{"5.0.77.10.in-addr.arpa", a, "Success", "5.0.77.10.in-addr.arpa PTR"},
		{"6.0.77.10.in-addr.arpa", ptr, "NameError", "6.0.77.10.in-addr.arpa PTR"},
		{"7.0.77.10.in-addr.arpa", ptr, "NameError", "7.0.77.10.in-addr.arpa PTR"},
		{"34.216.184.93.in-addr.arpa", ptr, "NameError", ""},
		{"leak.0.77.10.in-addr.arpa", ptr, "NameError", ""},
		{"1.5.0.77.10.in-addr.arpa", ptr, "NameError", ""},
		{"2.0.18.198.in-addr.arpa", ptr, "Success good.test.", ""},
	} {
		z := newZone()
		p := rules(t, "good.test")
		p.PeerNames = []string{"Named.by.policy."}
		s := newServer(t, Options{Policy: p, Engine: podman(z)})
		if got := lookup(t, s, tt.name, tt.kind); got != tt.want {
			t.Errorf("%s %v: %s, want %s", tt.name, tt.kind, got, tt.want)
		}
		if got := strings.Join(z.asked.all(), ","); got != tt.asked {
			t.Errorf("%s %v: asked for %q, want %q", tt.name, tt.kind, got, tt.asked)
		}
	}
}

// TestClosed: without peers nobody is asked. The control is TestPeers.
func TestClosed(t *testing.T) {
	t.Parallel()
	z := newZone()
	for _, engine := range []Engine{{Upstream: z}, {IsPeer: inPeers}, {}} {
		s := newServer(t, Options{Engine: engine})
		for _, name := range []string{"db", "db.dns.podman", "5.0.77.10.in-addr.arpa"} {
			if got := lookup(t, s, name, dnsmessage.TypeA); got != "NameError" {
				t.Errorf("%s: %s, want NameError", name, got)
			}
		}
	}
	if got := z.asked.all(); len(got) != 0 {
		t.Errorf("asked for %q", got)
	}
}

// TestUnknownNames: a thousand labels, one by one or at once, are fifty; who is
// known stays known.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	for _, atOnce := range []bool{false, true} {
		t.Run(fmt.Sprintf("at once %v", atOnce), func(t *testing.T) {
			t.Parallel()
			z := newZone()
			var denied lines
			s := newServer(t, Options{Engine: podman(z), Denied: denied.denied})
			lookup(t, s, "db", dnsmessage.TypeA)
			var all sync.WaitGroup
			for i := range 1000 {
				msg := question(t, fmt.Sprintf("secret%d", i), dnsmessage.TypeA)
				if atOnce {
					all.Go(func() { exchange(msg, s) })
				} else {
					exchange(msg, s)
				}
			}
			all.Wait()
			names := z.asked.all()
			for i := range names {
				names[i], _, _ = strings.Cut(names[i], " ")
			}
			slices.Sort(names)
			if got := len(slices.Compact(names)); got != maxUnknown+1 {
				t.Errorf("%d different names were asked for, want %d", got, maxUnknown+1)
			}
			if len(denied.all()) == 0 {
				t.Error("nothing was told of the names that were not asked for")
			}
			for name, want := range map[string]string{"db": "Success 10.77.0.5", "dual": "NameError", "7.0.77.10.in-addr.arpa": "NameError"} {
				if got := lookup(t, s, name, dnsmessage.TypeA); got != want {
					t.Errorf("%s: %s, want %s", name, got, want)
				}
			}
		})
	}
}

// TestLateNames: a container that waits for its peer to appear doesn't use up its
// names by asking again, and gets the slot back when the peer is there.
func TestLateNames(t *testing.T) {
	t.Parallel()
	z := newZone()
	s := newServer(t, Options{Engine: podman(z)})
	for range 2 * maxUnknown {
		lookup(t, s, "late", dnsmessage.TypeA)
	}
	z.records["late"] = []string{"10.77.0.9"}
	if got := lookup(t, s, "late", dnsmessage.TypeA); got != "Success 10.77.0.9" {
		t.Errorf("late: %s", got)
	}
	for i := range maxUnknown {
		lookup(t, s, fmt.Sprintf("n%d", i), dnsmessage.TypeA)
	}
	if got := z.asked.all(); got[len(got)-1] != fmt.Sprintf("n%d AAAA", maxUnknown-1) {
		t.Errorf("the last name of %d was not asked for", maxUnknown)
	}
}

// TestBadUpstream: what is no answer to our question is a temporary failure.
func TestBadUpstream(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*dnsmessage.Message)
		want   string
	}{
		{"as it is", func(*dnsmessage.Message) {}, "Success 10.77.0.5"},
		{"other id", func(m *dnsmessage.Message) { m.ID++ }, "ServerFailure"},
		{"no answer", func(m *dnsmessage.Message) { m.Response = false }, "ServerFailure"},
		{"other name", func(m *dnsmessage.Message) { m.Questions[0].Name = dnsmessage.MustNewName("dbx.") }, "ServerFailure"},
		{"other type", func(m *dnsmessage.Message) { m.Questions[0].Type = dnsmessage.TypeTXT }, "ServerFailure"},
		{"no question", func(m *dnsmessage.Message) { m.Questions = nil }, "ServerFailure"},
		{"SERVFAIL", func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeServerFailure }, "ServerFailure"},
		{"REFUSED", func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeRefused }, "NameError"},
		{"an alias before the address", func(m *dnsmessage.Message) {
			if m.Answers != nil {
				alias := dnsmessage.Resource{Header: m.Answers[0].Header, Body: &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("x.")}}
				m.Answers = append([]dnsmessage.Resource{alias}, m.Answers...)
			}
		}, "Success 10.77.0.5"},
		{"silence", nil, "ServerFailure"},
	} {
		z := newZone()
		z.change = tt.change
		var upstream Upstream = z
		if tt.change == nil {
			upstream = silent{}
		}
		s := newServer(t, Options{Engine: Engine{IsPeer: inPeers, Upstream: upstream}})
		if got := lookup(t, s, "db", dnsmessage.TypeA); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// silent is an engine's resolver that doesn't answer.
type silent struct{}

func (silent) Exchange(context.Context, []byte) ([]byte, error) { return nil, errSilent }

func TestPeerTTL(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{Policy: &policy.Policy{}, Engine: podman(newZone())})
	answer := unpack(t, exchange(question(t, "db", dnsmessage.TypeA), s))
	if got := answer.Answers[0].Header.TTL; got != 60 {
		t.Errorf("TTL %d, want 60: the engine's resolver says 600", got)
	}
}
