package resolver

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"eggrun/policy"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	typeSVCB  dnsmessage.Type = 64
	typeHTTPS dnsmessage.Type = 65
)

// TestAnswers is the table of what is answered without a network.
func TestAnswers(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{Policy: rules(t, "good.test", "ssh.test:22", "*.wild.test", "10.0.0.0/8", "localhost:80", "5.0.77.10.in-addr.arpa")})
	const a, aaaa, ptr = dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypePTR
	for _, tt := range []struct {
		name string
		kind dnsmessage.Type
		want string
	}{
		{"good.test", a, "Success 198.18.0.3"},
		{"ssh.test", a, "Success 198.18.0.4"},
		{"good.test", aaaa, "Success"},
		{"good.test", typeHTTPS, "Success"},
		{"good.test", typeSVCB, "Success"},
		{"good.test", dnsmessage.TypeSRV, "Success"},
		{"good.test", dnsmessage.TypeTXT, "Success"},
		{"good.test", dnsmessage.TypeMX, "Success"},
		{"good.test", dnsmessage.TypeCNAME, "Success"},
		{"good.test", dnsmessage.TypeALL, "Success"},
		{"good.test", dnsmessage.TypeAXFR, "Success"},
		{"good.test", 65535, "Success"},

		{"wild.test", a, "NameError"},
		{"sub.good.test", a, "NameError"},
		{"evilgood.test", a, "NameError"},
		{"good.test.evil.test", a, "NameError"},
		{"10.1.2.3", a, "NameError"},
		{"evil.test", a, "NameError"},
		{"evil.test", aaaa, "NameError"},
		{"evil.test", typeHTTPS, "NameError"},
		{"evil.test", dnsmessage.TypeTXT, "NameError"},
		{"db", a, "NameError"},

		{"localhost", a, "Success 127.0.0.1"},
		{"localhost", aaaa, "Success ::1"},
		{"localhost", dnsmessage.TypeTXT, "Success"},
		{"db.localhost", a, "Success 127.0.0.1"},
		{"evillocalhost", a, "NameError"},

		{"3.0.18.198.in-addr.arpa", ptr, "Success good.test."},
		{"3.0.18.198.in-addr.arpa", a, "Success"},
		{"1.0.18.198.in-addr.arpa", ptr, "NameError"},
		{"77.0.18.198.in-addr.arpa", ptr, "NameError"},
		{"8.8.8.8.in-addr.arpa", ptr, "NameError"},
		// Whoever writes such a rule gets what it says.
		{"5.0.77.10.in-addr.arpa", a, "Success 198.18.0.2"},
	} {
		if got := lookup(t, s, tt.name, tt.kind); got != tt.want {
			t.Errorf("%s %v: %s, want %s", tt.name, tt.kind, got, tt.want)
		}
	}
	if got := lookup(t, s, "a.b.wild.test", a); got != "Success 198.18.0.5" {
		t.Errorf("a.b.wild.test: %s, want an address", got)
	}
	if name, _ := s.Pool().NameOf(policy.FakeRange.Addr().Next().Next().Next().Next().Next()); name != "a.b.wild.test" {
		t.Errorf("the pool says that 198.18.0.5 is %q", name)
	}
}

func TestRootAndNil(t *testing.T) {
	t.Parallel()
	var denied lines
	s := newServer(t, Options{Denied: denied.denied})
	if got := lookup(t, s, "", dnsmessage.TypeNS); got != "NameError" {
		t.Errorf("the root: %s, want NameError", got)
	}
	if got := lookup(t, s, "good.test", dnsmessage.TypeA); got != "NameError" {
		t.Errorf("without a policy: %s, want NameError", got)
	}
	s.SetPolicy(nil)
	if want := []string{" NS", "good.test A"}; !slices.Equal(denied.all(), want) {
		t.Errorf("denied %q, want %q", denied.all(), want)
	}
}

// TestTTL: addresses are good for a minute, and a refusal for a second.
func TestTTL(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{Policy: rules(t, "good.test")})
	answer := unpack(t, exchange(question(t, "good.test", dnsmessage.TypeA), s))
	if got := answer.Answers[0].Header; got.TTL != 60 || got.Name.String() != "good.test." || len(answer.Authorities) != 0 {
		t.Errorf("answer %v, want a TTL of 60", answer.GoString())
	}
	for _, msg := range [][]byte{question(t, "good.test", dnsmessage.TypeAAAA), question(t, "evil.test", dnsmessage.TypeA)} {
		answer := unpack(t, exchange(msg, s))
		if len(answer.Authorities) != 1 {
			t.Fatalf("no authority in %s", answer.GoString())
		}
		soa := answer.Authorities[0]
		if body, ok := soa.Body.(*dnsmessage.SOAResource); !ok || body.MinTTL != 1 || soa.Header.TTL != 1 || soa.Header.Name.String() != "." {
			t.Errorf("authority %v, want the SOA of the root with 1 s", soa.GoString())
		}
	}
}

// TestSearch: what a libc makes of a short name and a search domain is no public
// name; a rule that names it still counts.
func TestSearch(t *testing.T) {
	t.Parallel()
	p := rules(t, "named.corp.example.com", "*.inner.corp.example.com")
	p.Observe = true
	p.SearchDomains = []string{"corp.example.com", "dns.podman"}
	s := newServer(t, Options{Policy: p})
	for name, want := range map[string]string{
		"github.com":                        "Success",
		"www.example.com":                   "Success",
		"evilcorp.example.com":              "Success",
		"github.com.corp.example.com":       "NameError",
		"corp.example.com":                  "NameError",
		"github.com.dns.podman":             "NameError",
		"github.com.local":                  "NameError",
		"github.com.internal":               "NameError",
		"github.com.arpa":                   "NameError",
		"github.com.nosuchsuffix":           "NameError",
		"com":                               "NameError",
		"named.corp.example.com":            "Success",
		"x.inner.corp.example.com":          "Success",
		"github.com.inner.corp.example.com": "Success",
	} {
		if got := lookup(t, s, name, dnsmessage.TypeAAAA); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	// The control: without the search domain it is a public name.
	plain := *p
	plain.SearchDomains = nil
	s.SetPolicy(&plain)
	if got := lookup(t, s, "github.com.corp.example.com", dnsmessage.TypeAAAA); got != "Success" {
		t.Errorf("without search domains: %s, want Success", got)
	}
}

// TestReload: a new policy counts at once, and takes nobody's address.
func TestReload(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{Policy: rules(t, "b.test", "d.test", "*.wild.test")})
	if got := lookup(t, s, "x.wild.test", dnsmessage.TypeA); got != "Success 198.18.0.4" {
		t.Fatalf("x.wild.test: %s", got)
	}
	s.SetPolicy(rules(t, "a.test", "c.test", "d.test"))
	for name, want := range map[string]string{
		"a.test": "Success 198.18.0.5", "c.test": "Success 198.18.0.6", "d.test": "Success 198.18.0.3",
		"b.test": "NameError", "x.wild.test": "NameError",
	} {
		if got := lookup(t, s, name, dnsmessage.TypeA); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	s.SetPolicy(rules(t, "b.test", "*.wild.test"))
	for name, want := range map[string]string{"b.test": "Success 198.18.0.2", "x.wild.test": "Success 198.18.0.4"} {
		if got := lookup(t, s, name, dnsmessage.TypeA); got != want {
			t.Errorf("%s: %s, want %s as before", name, got, want)
		}
	}
}

// TestExhausted: a name that gets no address is a temporary failure, with one
// line a minute.
func TestExhausted(t *testing.T) {
	t.Parallel()
	var told lines
	c := newClock()
	s := newServer(t, Options{Policy: rules(t, "*.wild.test"), Now: c.Now, Exhausted: func(name string, cause error) {
		if !errors.Is(cause, ErrPoolBusy) {
			t.Errorf("%s: %v, want %v", name, cause, ErrPoolBusy)
		}
		told.add(name)
	}})
	ask := func(n int) (failures int) {
		for range n {
			name := fmt.Sprintf("n%d.wild.test", len(s.pool.names)+failures)
			if lookup(t, s, name, dnsmessage.TypeA) == "ServerFailure" {
				failures++
			}
		}
		return failures
	}
	if got := ask(2 * wildcardsPerSecond); got != wildcardsPerSecond {
		t.Errorf("%d of %d names failed, want %d", got, 2*wildcardsPerSecond, wildcardsPerSecond)
	}
	// No other type needs an address.
	if got := lookup(t, s, "other.wild.test", dnsmessage.TypeAAAA); got != "Success" {
		t.Errorf("AAAA: %s, want Success", got)
	}
	if got := told.all(); len(got) != 1 {
		t.Errorf("told of %q, want one", got)
	}
	c.pass(time.Minute)
	if got := ask(wildcardsPerSecond + 1); got != 1 || len(told.all()) != 2 {
		t.Errorf("a minute later %d failed and %d lines, want 1 and 2", got, len(told.all()))
	}
}

// TestDeniedLines: a name gives one line, whatever is asked of it, and a flood of
// names gives a hundred.
func TestDeniedLines(t *testing.T) {
	t.Parallel()
	var denied lines
	c := newClock()
	s := newServer(t, Options{Policy: rules(t, "good.test"), Denied: denied.denied, Now: c.Now})
	for _, name := range []string{"evil.test", "EVIL.test", "good.test", "other.test"} {
		for _, kind := range []dnsmessage.Type{dnsmessage.TypeAAAA, dnsmessage.TypeA} {
			lookup(t, s, name, kind)
		}
	}
	want := []string{"evil.test AAAA", "other.test AAAA"}
	if got := denied.all(); !slices.Equal(got, want) {
		t.Errorf("denied %q, want %q", got, want)
	}
	for i := range 1000 {
		lookup(t, s, fmt.Sprintf("n%d.evil.test", i), dnsmessage.TypeA)
	}
	if got := len(denied.all()); got != 100 {
		t.Errorf("%d lines for a flood, want 100", got)
	}
	c.pass(time.Minute)
	lookup(t, s, "evil.test", dnsmessage.TypeA)
	if got := denied.all(); len(got) != 101 || got[100] != "evil.test A" {
		t.Errorf("a minute later: %q", got[100:])
	}
}
