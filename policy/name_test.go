package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestNaming(t *testing.T) {
	t.Parallel()
	domains := []string{"good.test", "ssh.test:22", "*.wild.test", "10.0.0.0/8", "localhost:11434"}
	enforcing := &Policy{Domains: domains, Allowlist: mustList(t, domains...)}
	observing := &Policy{Domains: domains, Allowlist: mustList(t, domains...), Observe: true}
	for _, tt := range []struct {
		host               string
		enforced, observed Naming
	}{
		{"good.test", Named, Named},
		{"ssh.test", Named, Named},
		{"a.b.wild.test", Named, Named},
		{"localhost", Named, Named},
		{"wild.test", Unnamed, Unnamed},
		{"sub.good.test", Unnamed, Unnamed},
		{"notwild.test", Unnamed, Unnamed},
		{"GOOD.test", Unnamed, Unnamed},
		{"good.test.", Unnamed, Unnamed},
		{"", Unnamed, Unnamed},
		{"10.0.0.1", Unnamed, Unnamed},
		{"0x7f.1", Unnamed, Unnamed},

		{"example.com", Unnamed, NamedByStar},
		{"www.example.co.uk", Unnamed, NamedByStar},
		{"someone.github.io", Unnamed, NamedByStar},
		{"github.io", Unnamed, NamedByStar},
		{"com", Unnamed, Unnamed},
		{"db", Unnamed, Unnamed},
		{"github.com.dns.podman", Unnamed, Unnamed},
		{"kubernetes.default.svc.cluster.local", Unnamed, Unnamed},
		{"metadata.google.internal", Unnamed, Unnamed},
		{"5.0.77.10.in-addr.arpa", Unnamed, Unnamed},
		{"router.home.arpa", Unnamed, Unnamed},
		{strings.Repeat("a", 64) + ".com", Unnamed, Unnamed},
	} {
		if got := enforcing.Naming(tt.host); got != tt.enforced {
			t.Errorf("Naming(%q) = %v, want %v", tt.host, got, tt.enforced)
		}
		if got := observing.Naming(tt.host); got != tt.observed {
			t.Errorf("Naming(%q) while observing = %v, want %v", tt.host, got, tt.observed)
		}
		if got := (*Policy)(nil).Naming(tt.host); got != Unnamed {
			t.Errorf("Naming(%q) of no policy = %v, want %v", tt.host, got, Unnamed)
		}
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	list, err := ParseAllowlist([]string{"a.test", "b.test:5432", "*.c.test:*", "192.0.2.0/24:22", "a.test:443", "*:80"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := list.Ports(), []uint16{22, 80, 443, 5432}; !slices.Equal(got, want) {
		t.Errorf("Ports = %v, want %v", got, want)
	}
	if got := (*Allowlist)(nil).Ports(); got != nil {
		t.Errorf("Ports of no list = %v", got)
	}
}

func TestExactNames(t *testing.T) {
	t.Parallel()
	list := mustList(t, "b.test", "a.test:22", "B.test:80", "*.c.test", "10.0.0.1", "localhost:80")
	if got, want := list.ExactNames(), []string{"a.test", "b.test"}; !slices.Equal(got, want) {
		t.Errorf("ExactNames = %q, want %q", got, want)
	}
	if got := (*Allowlist)(nil).ExactNames(); got != nil {
		t.Errorf("ExactNames of no list = %q", got)
	}
}
