package policy

import (
	"slices"
	"testing"

	"eggrun/sandbox"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, domains string
		want          []string
		need          sandbox.NetworkNeed
	}{
		{"empty", "", nil, sandbox.NetworkNone},
		{"blank", " \t\n", nil, sandbox.NetworkNone},
		{"only commas", ",, ,", nil, sandbox.NetworkNone},
		{"one", "good.test", []string{"good.test"}, sandbox.NetworkHTTPS},
		{"blanks", " good.test\t*.x.test\n a.test:22 ", []string{"good.test", "*.x.test", "a.test:22"}, sandbox.NetworkHTTPS},
		{"commas", "good.test,*.x.test, a.test:22", []string{"good.test", "*.x.test", "a.test:22"}, sandbox.NetworkHTTPS},
		{"local", "localhost:11434", []string{"localhost:11434"}, sandbox.NetworkLocal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := Resolve(map[string]string{KeyDomains: tt.domains, "io.podman.annotations.x": "y"})
			if err != nil {
				t.Fatal(err)
			}
			if p == nil || p.Allowlist == nil {
				t.Fatalf("Resolve = %+v, want a policy with an allowlist", p)
			}
			if !slices.Equal(p.Domains, tt.want) {
				t.Errorf("Domains = %q, want %q", p.Domains, tt.want)
			}
			if p.NetworkNeed != tt.need {
				t.Errorf("NetworkNeed = %v, want %v", p.NetworkNeed, tt.need)
			}
			if got := p.Allowlist.Decide(Target{Host: "good.test", Port: 443}).Allow; got != slices.Contains(tt.want, "good.test") {
				t.Errorf("good.test:443 allowed = %v", got)
			}
			if p.Allowlist.Decide(Target{Host: "evil.test", Port: 443}).Allow {
				t.Error("evil.test:443 is allowed")
			}
		})
	}
}

func TestResolveWithoutRequest(t *testing.T) {
	t.Parallel()
	for _, annotations := range []map[string]string{
		nil, {}, {"org.opencontainers.image.title": "x"}, {"eggrun": "x"}, {"eggrunner.domains": "x"}, {"io.eggrun.domains": "x"},
	} {
		if p, err := Resolve(annotations); p != nil || err != nil {
			t.Errorf("Resolve(%v) = %+v, %v, want nil, nil", annotations, p, err)
		}
	}
}

func TestResolveRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		wantErr     string
	}{
		{"unknown key", map[string]string{"eggrun.domain": "good.test"}, `annotation "eggrun.domain": unknown key; use eggrun.domains`},
		{"unknown key beside a known one", map[string]string{KeyDomains: "good.test", "eggrun.sni": "off"}, `annotation "eggrun.sni": unknown key; use eggrun.domains`},
		{"bare prefix", map[string]string{"eggrun.": ""}, `annotation "eggrun.": unknown key; use eggrun.domains`},
		{"other case", map[string]string{"Eggrun.Domains": "good.test"}, `annotation "Eggrun.Domains": unknown key; use eggrun.domains`},
		{"white space", map[string]string{" eggrun.domains": "good.test"}, `annotation " eggrun.domains": unknown key; use eggrun.domains`},
		{"first by name", map[string]string{"eggrun.z": "", "eggrun.a": ""}, `annotation "eggrun.a": unknown key; use eggrun.domains`},
		{"bad entry", map[string]string{KeyDomains: "good.test https://x.test"}, `annotation "eggrun.domains": entry "https://x.test": is a URL; write only its host, or host:port`},
		{"star", map[string]string{KeyDomains: "*"}, `annotation "eggrun.domains": entry "*": every name is not supported yet; list the names, or *.example.com for all below one`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := Resolve(tt.annotations)
			if err == nil {
				t.Fatalf("Resolve = %+v, want an error", p)
			}
			if p != nil {
				t.Errorf("a policy came with the error: %+v", p)
			}
			if err.Error() != tt.wantErr {
				t.Errorf("error %q, want %q", err, tt.wantErr)
			}
		})
	}
}
