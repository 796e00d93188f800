package policy

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// mustFile parses a file that a test needs to be good.
func mustFile(t testing.TB, path, text string) *File {
	t.Helper()
	f, err := ParseFile(path, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestExample: the example says what there is, and means what it says.
func TestExample(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../contrib/policy.toml")
	if err != nil {
		t.Fatal(err)
	}
	f := mustFile(t, "policy.toml", string(data))
	for _, k := range keys() {
		if !strings.Contains(string(data), "\n"+k.name+" = ") {
			t.Errorf("the example lacks %s", k.name)
		}
	}
	for _, engine := range engines {
		if !strings.Contains(string(data), engine) {
			t.Errorf("the example lacks the engine %s", engine)
		}
	}
	if got := f.Warnings(); len(got) > 0 {
		t.Errorf("warnings about the example: %q", got)
	}
	if len(f.matches) != 3 || f.matches[0].limit == nil || f.matches[1].limit != nil || !f.profiles["ci"].selectable {
		t.Errorf("the example became %+v", f)
	}
	for name, tt := range map[string]struct {
		request Request
		want    []string
	}{
		"nothing asked": {Request{}, []string{"proxy.golang.org", "sum.golang.org", "pypi.org", "files.pythonhosted.org", "registry.npmjs.org"}},
		"asked":         {Request{Annotations: map[string]string{KeyDomains: "@go a.example.com"}}, []string{"proxy.golang.org", "sum.golang.org", "a.example.com"}},
		"link":          {Request{Caller: Caller{Argv0: "eggrun-ci"}}, []string{"*", "registry.corp.internal"}},
		"trusted":       {Request{Annotations: map[string]string{"ci.example.com/trust": "high"}}, []string{"*", "registry.corp.internal"}},
		"image":         {Request{Annotations: map[string]string{imageAnnotations[0]: "docker.io/library/alpine:3"}}, []string{"pypi.org", "files.pythonhosted.org"}},
	} {
		tt.request.Admin = f
		p, err := Resolve(tt.request)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !slices.Equal(p.Domains, tt.want) {
			t.Errorf("%s: domains %q, want %q", name, p.Domains, tt.want)
		}
	}
}

func TestParseFileRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, wantErr string }{
		{"not TOML", "[default\n", "p.toml:1: "},
		{"not TOML later", "[default]\ndomains = [\"a.test\"\n\nx", "p.toml:4: "},
		{"key twice", "[default]\ndomains = []\nsni = \"off\"\ndomains = [\"*\"]\n", "p.toml:4: "},
		{"section twice", "[default]\n[limit]\n[default]\n", "p.toml:3: "},
		{"group twice", "[groups]\na = []\na = []\n", "p.toml:3: "},
		{"a misspelt key", "[default]\nalow = [\"a.test\"]\n", `p.toml:2: key "alow": unknown; the keys of a section are `},
		{"a key before the first section", "domains = [\"a.test\"]\n", `p.toml:1: key "domains": unknown before the first section; the keys are `},
		{"a section of two lines", "[\"a\\nb\"]\n", "p.toml:1: section [a b]: unknown; the sections are "},
		{"a misspelt section", "\n[defaults]\n", "p.toml:2: section [defaults]: unknown; the sections are "},
		{"a section in a section", "[default.x]\n", "p.toml:1: section [default.x]: unknown"},
		{"match as table", "[match]\n", "p.toml:1: section [match]: unknown"},
		{"limit without match", "[match.limit]\n", "p.toml:1: section [match.limit]: unknown"},
		{"profile as list", "[[profile]]\n", "p.toml:1: section [[profile]]: unknown; the only one of this kind is [[match]]"},
		{"dotted key", "default.domains = []\n", `p.toml:1: key "default.domains": has a dot; write it below a [section]`},
		{"inline table", "default = {domains = []}\n", `p.toml:1: key "default": a value of this kind has no meaning here`},
		{"date", "[default]\ndomains = [2020-01-01]\n", `p.toml:2: key "domains": a value of this kind has no meaning here`},
		{"list in a list", "[default]\ndomains = [[\"a.test\"]]\n", `p.toml:2: key "domains": a list in a list`},
		{"a list for one", "[default]\nsni = [\"off\"]\n", `p.toml:2: sni: want one value, not a list`},
		{"boolean in a list", "[default]\ndomains = [true]\n", `p.toml:2: domains: true and false have no meaning here`},
		{"number for a name", "[default]\ndomains = [443]\n", `p.toml:2: domains: entry "443": encoded IPv4 address; `},
		{"line of a list", "[default]\ndomains = [\n\"a.test\",\n\n\"b.test/\",\n]\n", `p.toml:5: domains: entry "b.test/": has a path; `},
		{"value", "[limit]\n\nsni = \"on\"\n", `p.toml:3: sni: value "on"; want match, allowlisted, off`},
		{"boolean", "[limit]\nsni = true\n", `p.toml:2: sni: value "on"; want match, allowlisted, off`},
		{"port", "[limit]\nlocal-ports = [0x50]\n", `p.toml:2: local-ports: port "0x50"; write 1 to 65535 without leading zeros`},
		{"contradiction", "[default]\ndomains = [\"a.test\"]\nnetwork = \"none\"\n", `p.toml:3: network: none, but the domains and ports need https; drop one of them`},
		{"unknown group", "[default]\ndomains = [\"@go\"]\n", `p.toml:2: domains: group "@go": unknown; `},
		{"unknown group in a group", "[groups]\na = [\"@b\"]\n", `p.toml:2: group "@b": unknown; `},
		{"cyclic group", "[groups]\na = [\"@b\"]\nb = [\"x.test\",\n\"@a\"]\n", `p.toml:4: group "@a": contains itself`},
		{"bad entry in a group", "[groups]\na = [\".x.test\"]\n", `p.toml:2, for @a: entry ".x.test": begins with a dot; `},
		{"name of a group", "[groups]\n\"a b\" = []\n", `p.toml:2: group "a b": use letters`},
		{"name of a profile", "[profile.\"\"]\n", `p.toml:1: profile "": empty`},
		{"selectable", "[profile.x]\nselectable = \"yes\"\n", `p.toml:2: selectable: want true or false`},
		{"profile that nobody uses", "[profile.x]\nmode = \"look\"\n", `p.toml:2: mode: value "look"; want enforce, observe`},
		{"match without condition", "\n[[match]]\ndomains = []\n", `p.toml:2: [[match]] without a condition; `},
		{"match with an empty condition", "[[match]]\nengine = [\"podman\"]\nuid = []\n", `p.toml:3: uid: an empty list fits nothing; drop it`},
		{"match with a misspelt condition", "[[match]]\nuser = [1]\n", `p.toml:2: key "user": unknown; `},
		{"uid", "[[match]]\nuid = [\n1,\n-1]\n", `p.toml:4: uid: value "-1"; write a number`},
		{"engine", "[[match]]\nengine = \"Docker\"\n", `p.toml:2: engine: value "Docker"; want buildah, containerd, cri-o, docker, podman`},
		{"match with an unknown profile", "[[match]]\nuid = 1\nprofile = \"x\"\n", `p.toml:1: profile "x": unknown`},
		{"match that nobody fits", "[[match]]\nuid = 1\ndomains = [\"*x\"]\n", `p.toml:3: domains: entry "*x": a star stands only`},
		{"limit of a match", "[[match]]\nuid = 1\n[match.limit]\npeers = [\"x\"]\n", `p.toml:4: peers: value "x": not a prefix`},
		{"host address", "host-addresses = [\"me.test\"]\n", `p.toml:1: host-addresses: not a prefix`},
		{"upstream", "upstream-proxy = \"https://x.test:1\"\n", `p.toml:1: upstream-proxy: value "https://x.test:1"; write http://host:port`},
		{"upstream hides a password", "upstream-proxy = \"http://u:secret@x.test\"\n", `p.toml:1: upstream-proxy: value "http://u:xxxxx@x.test"; write http://host:port`},
		{"fake", "upstream-fake = \"true\"\n", `p.toml:1: upstream-fake: want true or false`},
		{"a value with line breaks", "[default]\nsni = \"o\\nff\"\n", `p.toml:2: sni: value "o\nff"; want`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, err := ParseFile("p.toml", []byte(tt.text))
			if err == nil || f != nil {
				t.Fatalf("ParseFile = %+v, %v, want an error alone", f, err)
			}
			if !strings.HasPrefix(err.Error(), tt.wantErr) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want %q", err, tt.wantErr)
			}
		})
	}
}

// TestEmptyFile: a file that says nothing allows nothing.
func TestEmptyFile(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# nothing\n", "[groups]\na = [\"x.test\"]\n", "[limit]\ndomains = [\"*\"]\n", "[default]\n"} {
		p, err := Resolve(Request{Admin: mustFile(t, "p.toml", text)})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if p.Wall() == nil || len(p.Domains) > 0 {
			t.Errorf("%q became %+v", text, p)
		}
	}
}
