package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	t.Parallel()
	domains := []string{"good.test", "ssh.test:22", "*.wild.test", "10.0.0.0/8", "localhost:11434"}
	enforcing := &Policy{Domains: domains, Allowlist: mustList(t, domains...)}
	observing := &Policy{Domains: domains, Allowlist: mustList(t, domains...), Observe: true}
	for _, tt := range []struct {
		host               string
		enforced, observed bool
	}{
		{"good.test", true, true},
		{"ssh.test", true, true},
		{"a.b.wild.test", true, true},
		{"localhost", true, true},
		{"wild.test", false, false},
		{"sub.good.test", false, false},
		{"notwild.test", false, false},
		{"GOOD.test", false, false},
		{"good.test.", false, false},
		{"", false, false},
		{"10.0.0.1", false, false},
		{"0x7f.1", false, false},

		{"example.com", false, true},
		{"www.example.co.uk", false, true},
		{"someone.github.io", false, true},
		{"github.io", false, true},
		{"com", false, false},
		{"db", false, false},
		{"github.com.dns.podman", false, false},
		{"kubernetes.default.svc.cluster.local", false, false},
		{"metadata.google.internal", false, false},
		{"5.0.77.10.in-addr.arpa", false, false},
		{"router.home.arpa", false, false},
		{strings.Repeat("a", 64) + ".com", false, false},
	} {
		if got := enforcing.Names(tt.host); got != tt.enforced {
			t.Errorf("Names(%q) = %v, want %v", tt.host, got, tt.enforced)
		}
		if got := observing.Names(tt.host); got != tt.observed {
			t.Errorf("Names(%q) while observing = %v, want %v", tt.host, got, tt.observed)
		}
		if got := (*Policy)(nil).Names(tt.host); got {
			t.Errorf("Names(%q) of no policy = %v, want false", tt.host, got)
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
