package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// ask is a request with annotations, written without the prefix: key, value, …
func ask(pairs ...string) Request {
	r := Request{Annotations: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		key := pairs[i]
		if !strings.Contains(key, "/") {
			key = keyPrefix + key
		}
		r.Annotations[key] = pairs[i+1]
	}
	return r
}

const (
	limited = `
[groups]
go = ["proxy.golang.org"]
[default]
domains = ["a.t.test", "@go"]
[limit]
domains = ["*.t.test", "@go", "10.0.0.0/8:*"]
local-ports = [80]
deny = ["/secret"]
[profile.narrow]
domains = ["a.t.test"]
[profile.wide]
selectable = true
domains = ["*"]
sni = "off"
[profile.unusable]
domains = ["*"]
`
	matching = `
trusted-annotations = ["good/key", "io.kubernetes.cri-o.ImageName"]
[default]
domains = ["default.t.test"]
[limit]
domains = ["*.t.test"]
[[match]]
annotation = ["evil/key=*"]
domains = ["narrowed.t.test"]
[[match]]
uid = 1000
engine = ["podman", "buildah"]
domains = ["uid.t.test"]
[match.limit]
domains = ["*.uid.t.test", "uid.t.test"]
[[match]]
annotation = "good/key=a*"
domains = ["trusted.example.com"]
[[match]]
argv0 = "eggrun-x"
network = "full"
[[match]]
image = ["quay.io/x/*"]
domains = ["image.example.com"]
[profile.x]
domains = ["profile.t.test"]
`
	users = `
[groups]
own = ["b.t.test", "@go"]
go = ["user.t.test"]
[default]
domains = ["@own"]
[profile.narrow]
domains = ["user.t.test"]
[profile.mine]
selectable = true
domains = ["*"]
[profile.small]
domains = ["user.t.test:80"]
`
)

func TestResolveFiles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name              string
		admin, user       string
		request           Request
		want              string // domains
		wantErr, alsoWant string
	}{
		{name: "default", admin: limited, want: "a.t.test proxy.golang.org"},
		{name: "request", admin: limited, request: ask("domains", "b.t.test @go"), want: "b.t.test proxy.golang.org"},
		{name: "request of nothing", admin: limited, request: ask("domains", ""), want: ""},
		{name: "no network", admin: limited, request: ask("network", "none"), want: ""},
		{name: "only local", admin: limited, request: ask("network", "local", "local-ports", "80"), want: ""},
		{name: "network of the default's domains", admin: limited, request: ask("network", "https"), want: "a.t.test proxy.golang.org"},
		{name: "another key", admin: limited, request: ask("inbound", "none"), want: "a.t.test proxy.golang.org"},
		{name: "prefix in the limit", admin: limited, request: ask("domains", "10.1.2.3:22"), want: "10.1.2.3:22"},
		{name: "beyond the limit", admin: limited, request: ask("domains", "b.t.test test.example.com b.t.test:22", "sni", "off", "local-ports", "80 81"),
			wantErr: "annotations: more than [limit] of admin.toml allows: domains test.example.com, domains b.t.test:22, local-ports 81, sni off; ask for less, or have it allowed there"},
		{name: "full", admin: limited, request: ask("network", "full"), wantErr: "annotations: more than [limit] of admin.toml allows: network full; "},
		{name: "observe", admin: limited, request: ask("mode", "observe"), wantErr: "annotations: more than [limit] of admin.toml allows: mode observe; "},
		{name: "sockets", admin: limited, request: ask("allow-sockets", "/run/docker.sock", "allow-fds", "on"), wantErr: "annotations: more than [limit] of admin.toml allows: allow-sockets \"/run/docker.sock\", allow-fds on; "},
		{name: "unknown group", admin: limited, request: ask("domains", "@rust"), wantErr: `annotation "eggrun.domains": group "@rust": unknown; `},

		{name: "no limit is the default", admin: "[default]\ndomains = [\"*.t.test\"]\n", request: ask("domains", "a.t.test"), want: "a.t.test"},
		{name: "no limit is the default, beyond", admin: "[default]\ndomains = [\"*.t.test\"]\n", request: ask("domains", "a.example.com"),
			wantErr: "annotations: more than [default] of admin.toml allows: domains a.example.com; "},
		{name: "no default", admin: "[limit]\ndomains = [\"*\"]\n", request: ask("domains", "example.com"), want: "example.com"},
		{name: "no default, nothing asked", admin: "[limit]\ndomains = [\"*\"]\n", want: ""},
		{name: "limit full", admin: "[limit]\nnetwork = \"full\"\n", request: ask("domains", "10.0.0.1:*!tcp localhost", "sni", "off"), want: "10.0.0.1:*!tcp localhost"},
		{name: "default beyond its limit", admin: "[default]\ndomains = [\"a.t.test\"]\n[limit]\ndomains = [\"b.t.test\"]\n",
			wantErr: "[default] of admin.toml: more than [limit] of admin.toml allows: domains a.t.test; "},

		{name: "profile by annotation", admin: limited, request: ask("profile", "narrow"), want: "a.t.test"},
		{name: "profile and less", admin: limited, request: ask("profile", "wide", "domains", "example.com:80"), want: "example.com:80"},
		{name: "profile and more", admin: limited, request: ask("profile", "narrow", "domains", "b.t.test"), wantErr: "annotations: more than profile narrow of admin.toml:10 allows: domains b.t.test; "},
		{name: "selectable", admin: limited, request: ask("profile", "wide"), want: "*"},
		{name: "neither selectable nor within the limit", admin: limited, request: ask("profile", "unusable"),
			wantErr: "profile unusable of admin.toml:16: more than [limit] of admin.toml allows: domains *; "},
		{name: "profile that is unknown", admin: limited, request: ask("profile", "x"), wantErr: `profile "x": unknown; the profiles are narrow, unusable, wide`},
		{name: "profile by flag", admin: limited, request: Request{Profile: "narrow"}, want: "a.t.test"},
		{name: "profile by flag without a file", request: Request{Profile: "narrow"}, wantErr: `profile "narrow": no policy.toml has one; see eggrun(8)`},
		{name: "profile by flag binds", admin: limited, request: Request{Profile: "narrow", Annotations: ask("profile", "wide").Annotations},
			wantErr: "profile wide of admin.toml:12: more than profile narrow of admin.toml:10 allows: domains *, sni off; "},
		{name: "profile by link", admin: limited, request: Request{Caller: Caller{Argv0: "eggrun-narrow"}}, want: "a.t.test"},
		{name: "flag before link", admin: limited, request: Request{Profile: "wide", Caller: Caller{Argv0: "eggrun-narrow"}}, want: "*"},
		{name: "link to no profile", admin: limited, request: Request{Caller: Caller{Argv0: "eggrun-1.2"}}, wantErr: `profile "1.2": unknown; `},
		{name: "other name", admin: limited, request: Request{Caller: Caller{Argv0: "runc"}}, want: "a.t.test proxy.golang.org"},

		{name: "no match", admin: matching, want: "default.t.test"},
		{name: "match", admin: matching, request: Request{Caller: Caller{UID: 1000, Engine: "podman"}}, want: "uid.t.test"},
		{name: "match by one condition", admin: matching, request: Request{Caller: Caller{UID: 1000}}, want: "default.t.test"},
		{name: "limit of a match", admin: matching, request: Request{Caller: Caller{UID: 1000, Engine: "buildah"}, Annotations: ask("domains", "a.uid.t.test").Annotations}, want: "a.uid.t.test"},
		{name: "beyond the limit of a match", admin: matching, request: Request{Caller: Caller{UID: 1000, Engine: "buildah"}, Annotations: ask("domains", "a.t.test").Annotations},
			wantErr: "annotations: more than the limit of [[match]] of admin.toml:10 allows: domains a.t.test; "},
		{name: "untrusted annotation takes away", admin: strings.Replace(matching, `"narrowed.t.test"`, `"default.t.test:80"`, 1), request: ask("evil/key", "x"), want: "default.t.test:80"},
		{name: "untrusted annotation, then more", admin: strings.Replace(matching, `"narrowed.t.test"`, `"default.t.test:80"`, 1), request: ask("evil/key", "x", "domains", "a.t.test"),
			wantErr: "annotations: more than [[match]] of admin.toml:7 allows: domains a.t.test; "},
		{name: "untrusted annotation is no way out", admin: matching, request: Request{Caller: Caller{UID: 1000, Engine: "podman"}, Annotations: ask("evil/key", "x").Annotations},
			wantErr: "[[match]] of admin.toml:7: more than the limit of [[match]] of admin.toml:10 allows: domains narrowed.t.test; "},
		{name: "trusted annotation", admin: matching, request: ask("good/key", "abc"), want: "trusted.example.com"},
		{name: "other value", admin: matching, request: ask("good/key", "b"), want: "default.t.test"},
		{name: "trusted image", admin: matching, request: ask("x/", "", "io.kubernetes.cri-o.ImageName/", ""), want: "default.t.test"},
		{name: "image of an engine that is believed", admin: matching, request: Request{Annotations: map[string]string{"io.kubernetes.cri-o.ImageName": "quay.io/x/y"}}, want: "image.example.com"},
		{name: "image that anybody could name", admin: matching, request: Request{Annotations: map[string]string{"io.kubernetes.cri.image-name": "quay.io/x/y"}},
			wantErr: "more than [limit] of admin.toml allows: domains image.example.com; "},

		{name: "the user's file alone", user: users, want: "b.t.test user.t.test"},
		{name: "the user's file binds", user: users, request: ask("domains", "c.t.test"), wantErr: "annotations: more than [default] of user.toml allows: domains c.t.test; "},
		{name: "the user's selectable profile alone", user: users, request: ask("profile", "mine"), want: "*"},
		{name: "the user's default", admin: limited, user: users, want: "b.t.test user.t.test"},
		{name: "both bind: the user", admin: limited, user: users, request: ask("domains", "c.t.test"), wantErr: "annotations: more than [default] of user.toml allows: domains c.t.test; "},
		{name: "both bind: the administrator", admin: limited, user: "[default]\n[limit]\ndomains = [\"*\", \"*.t.test\"]\n", request: ask("domains", "example.com"),
			wantErr: "annotations: more than [limit] of admin.toml allows: domains example.com; "},
		{name: "the user's default is too much", admin: limited, user: "[default]\ndomains = [\"*\"]\n", wantErr: "[default] of user.toml: more than [limit] of admin.toml allows: domains *; "},
		{name: "a user without default", admin: limited, user: "[profile.x]\ndomains = [\"x.t.test\"]\n", want: "a.t.test proxy.golang.org"},
		{name: "a user's group", admin: limited, user: "[groups]\nx = [\"x.t.test\"]\n", request: ask("domains", "@x @go"), want: "x.t.test proxy.golang.org"},
		{name: "the user's selectable profile", admin: limited, user: users, request: ask("profile", "mine"), wantErr: "profile mine of user.toml:9: more than [limit] of admin.toml allows: domains *; "},
		{name: "the user's profile", admin: limited, user: "[profile.small]\ndomains = [\"user.t.test:80\"]\n", request: ask("profile", "small"), want: "user.t.test:80"},
		{name: "the administrator's profile first", admin: limited, user: "[profile.narrow]\ndomains = [\"user.t.test\"]\n", request: ask("profile", "narrow"), want: "a.t.test"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.admin != "" {
				tt.request.Admin = mustFile(t, "admin.toml", tt.admin)
			}
			if tt.user != "" {
				tt.request.User = mustFile(t, "user.toml", tt.user)
			}
			p, err := Resolve(tt.request)
			if tt.wantErr != "" {
				if err == nil || p != nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("Resolve = %+v, %v, want the error %q", p, err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(p.Domains, " "); got != tt.want {
				t.Errorf("domains %q, want %q", got, tt.want)
			}
		})
	}
}

// TestDeniedPathsAddUp: a limit's paths are denied to everybody.
func TestDeniedPathsAddUp(t *testing.T) {
	t.Parallel()
	r := ask("deny", "/mine", "domains", "a.t.test")
	r.Admin = mustFile(t, "admin.toml", limited)
	p, err := Resolve(r)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/secret", "/mine"}; !slices.Equal(p.Deny, want) {
		t.Errorf("Deny = %q, want %q", p.Deny, want)
	}
	r.Annotations = nil
	if p, err = Resolve(r); err != nil || !slices.Equal(p.Deny, []string{"/secret"}) {
		t.Errorf("without a request: %+v, %v", p, err)
	}
}

// TestFullMustBeWritten: a file walls everybody in, unless it says that it does not.
func TestFullMustBeWritten(t *testing.T) {
	t.Parallel()
	full := mustFile(t, "p.toml", "[default]\nnetwork = \"full\"\ndeny = [\"/secret\"]\n[limit]\nnetwork = \"full\"\n")
	p, err := Resolve(Request{Admin: full})
	if err != nil {
		t.Fatal(err)
	}
	if p == nil || p.Wall() != nil || !slices.Equal(p.Deny, []string{"/secret"}) {
		t.Errorf("network full became %+v", p)
	}
	for _, r := range []Request{ask("domains", "a.t.test"), ask("local-ports", "80"), ask("network", "none")} {
		r.Admin = full
		if p, err := Resolve(r); err != nil || p.Wall() == nil {
			t.Errorf("%v: %+v, %v, want a wall", r.Annotations, p, err)
		}
	}
}

func TestUnnamedAddrs(t *testing.T) {
	t.Parallel()
	r := ask("domains", "10.0.0.5:22 10.0.0.0/16:80 10.0.0.9:22")
	r.Admin = mustFile(t, "p.toml", "[limit]\ndomains = [\"10.0.0.0/8:*\", \"10.0.0.9:*\"]\n")
	p, err := Resolve(r)
	if err != nil {
		t.Fatal(err)
	}
	five, nine := netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("10.0.0.9")
	if want := []netip.Addr{five}; !slices.Equal(p.UnnamedAddrs, want) {
		t.Errorf("UnnamedAddrs = %v, want %v", p.UnnamedAddrs, want)
	}
	for addr, want := range map[netip.Addr]bool{five: false, nine: true} {
		if got := p.VetAddr(Target{Host: addr.String(), Addr: addr, Port: 22}, addr, five, nine); got.Allow != want {
			t.Errorf("VetAddr(%v) of the host = %+v, want allow %v", addr, got, want)
		}
		if got := p.VetAddr(Target{Host: addr.String(), Addr: addr, Port: 22}, addr); !got.Allow {
			t.Errorf("VetAddr(%v) of another = %+v, want it allowed", addr, got)
		}
	}
}

func TestWholeHost(t *testing.T) {
	t.Parallel()
	admin := mustFile(t, "a.toml", "host-addresses = \"203.0.113.7\"\nupstream-proxy = \"http://a.t.test:1\"\n[default]\nsockets = \"mask\"\npeer-names = [\"DB\"]\n")
	user := mustFile(t, "u.toml", "host-addresses = [\"198.51.100.0/24\"]\nupstream-proxy = \"http://u:secret@u.t.test:1\"\nupstream-fake = true\n")
	p, err := Resolve(Request{Admin: admin, User: user})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(p.HostAddresses) != "[203.0.113.7/32 198.51.100.0/24]" || p.UpstreamProxy != "http://a.t.test:1" || p.UpstreamFake || !p.MaskSockets || !slices.Equal(p.PeerNames, []string{"db"}) {
		t.Errorf("both files became %+v", p)
	}
	// Through the user's proxy a name could lead where the administrator's limit
	// does not.
	silent := mustFile(t, "a.toml", "host-addresses = \"203.0.113.7\"\n")
	p, err = Resolve(Request{Admin: silent, User: user})
	if err != nil {
		t.Fatal(err)
	}
	if p.UpstreamProxy != "" || p.UpstreamFake || strings.Contains(fmt.Sprint(p.Origins), "upstream") {
		t.Errorf("the user's proxy is heard beside an administrator: %+v", p)
	}
	p, err = Resolve(Request{User: user})
	if err != nil {
		t.Fatal(err)
	}
	if p.UpstreamProxy != "http://u:secret@u.t.test:1" || !p.UpstreamFake {
		t.Errorf("the user's file became %+v", p)
	}
	if strings.Contains(fmt.Sprint(p.Origins), "secret") {
		t.Errorf("the explanation has the password: %v", p.Origins)
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	r := ask("sni", "match")
	r.Admin = mustFile(t, "p.toml", limited)
	p, err := Resolve(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []Origin{
		{"network", "https", "follows from the domains"},
		{"domains", "a.t.test", "p.toml:5"},
		{"domains", "proxy.golang.org", "p.toml:3, for @go"},
		{"local-ports", "", "default"},
		{"deny", "/secret", "p.toml:9"},
		{"sni", "match", `annotation "eggrun.sni"`},
		{"mode", "enforce", "default"},
	} {
		if !slices.Contains(p.Origins, want) {
			t.Errorf("Origins lack %+v: %+v", want, p.Origins)
		}
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"nothing to say", "[default]\ndomains = [\"a.t.test\", \"*.a.t.test\", \"b.t.test:22!tcp\", \"b.t.test\"]\n", ""},
		{"no default", "[limit]\n", "p.toml: no [default]: a container that asks for nothing has no network"},
		{"private suffix", "[default]\ndomains = [\n\"*.github.io\"]\n", "p.toml:3: *.github.io: anybody can register a name below github.io"},
		{"public suffix", "[default]\n[groups]\nx = [\"*.co.uk:443\"]\n", "p.toml:3: *.co.uk:443: anybody can register a name below co.uk"},
		{"below a private suffix", "[default]\ndomains = [\"*.me.github.io\"]\n", ""},
		{"shadowed", "[default]\ndomains = [\"x.a.t.test:80\",\n\"*.a.t.test\"]\n", "p.toml:2: x.a.t.test:80: *.a.t.test at p.toml:3 covers it"},
		{"twice", "[default]\ndomains = [\"a.t.test\",\n\"A.t.test.\"]\n", "p.toml:3: A.t.test.: a.t.test at p.toml:2 covers it"},
		{"shadowed by a group", "[default]\ndomains = [\"a.t.test\",\n\"@x\"]\n[groups]\nx = [\"a.t.test\"]\n", "p.toml:5, for @x: a.t.test: a.t.test at p.toml:2 covers it"},
		{"unselectable", "[default]\n[profile.x]\ndomains = [\"a.t.test\"]\n", "p.toml:2: profile x: neither selectable nor within [limit]: domains a.t.test"},
		{"default beyond the limit", "[default]\nsni = \"off\"\n[limit]\nsni = \"match\"\n", "p.toml: [default]: more than its limit: sni off; no container can be created with it"},
		{"full", "[default]\nnetwork = \"full\"\n", "p.toml:2: network full: nothing is refused"},
		{"observe", "[default]\nmode = \"observe\"\n", "p.toml:2: mode observe: nothing is refused"},
		{"same conditions", "[default]\n[[match]]\nuid = 1\n[[match]]\nuid = [1]\n", "p.toml:4: [[match]]: that of line 2 has the same conditions and comes first"},
		{"untrusted", "[default]\n[[match]]\nannotation = \"a\"\ndomains = [\"a.t.test\"]\n", "p.toml:2: [[match]]: fits by what a container says itself, so it can't allow more than [limit]: domains a.t.test"},
		{"trusted", "trusted-annotations = [\"a\"]\n[default]\n[[match]]\nannotation = \"a\"\ndomains = [\"a.t.test\"]\n", ""},
		{"limit without trust", "[default]\n[[match]]\nimage = \"a\"\n[match.limit]\ndomains = [\"a.t.test\"]\n", "p.toml:2: [[match]]: fits by what a container says itself, so its limit is not used; see trusted-annotations"},
	} {
		if got := strings.Join(mustFile(t, "p.toml", tt.text).Warnings(), "\n"); got != tt.want {
			t.Errorf("%s: warnings %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestGroupsOfGroups: each level names the next one twice.
func TestGroupsOfGroups(t *testing.T) {
	t.Parallel()
	text := "[groups]\ng0 = [\"a.t.test\"]\n"
	for i := range 60 {
		text += fmt.Sprintf("g%d = [\"@g%d\", \"@g%d\", \"a%d.t.test\"]\n", i+1, i, i, i)
	}
	r := ask("domains", strings.Repeat("@g60 ", 1000))
	r.Admin = mustFile(t, "p.toml", text+"[limit]\ndomains = [\"@g60\"]\n")
	p, err := Resolve(r)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Domains) != 61 {
		t.Errorf("%d domains, want 61", len(p.Domains))
	}
}
