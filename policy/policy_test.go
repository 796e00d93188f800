package policy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
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
			p, err := Resolve(Request{Annotations: map[string]string{KeyDomains: tt.domains, "io.podman.annotations.x": "y"}})
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
		if p, err := Resolve(Request{Annotations: annotations}); p != nil || err != nil {
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
		{"unknown key", map[string]string{"eggrun.domain": "good.test"}, `annotation "eggrun.domain": ` + unknownKey},
		{"unknown key beside a known one", map[string]string{KeyDomains: "good.test", "eggrun.sny": "off"}, `annotation "eggrun.sny": ` + unknownKey},
		{"only in a file", map[string]string{"eggrun.sockets": "mask"}, `annotation "eggrun.sockets": ` + unknownKey},
		{"bare prefix", map[string]string{"eggrun.": ""}, `annotation "eggrun.": ` + unknownKey},
		{"other case", map[string]string{"Eggrun.Domains": "good.test"}, `annotation "Eggrun.Domains": ` + unknownKey},
		{"white space", map[string]string{" eggrun.domains": "good.test"}, `annotation " eggrun.domains": ` + unknownKey},
		{"first by name", map[string]string{"eggrun.z": "", "eggrun.a": ""}, `annotation "eggrun.a": ` + unknownKey},
		{"bad entry", map[string]string{KeyDomains: "good.test https://x.test"}, `annotation "eggrun.domains": entry "https://x.test": is a URL; write only its host, or host:port`},
		{"group", map[string]string{KeyDomains: "@go"}, `annotation "eggrun.domains": group "@go": unknown; define it under [groups] of policy.toml`},
		{"network", map[string]string{"eggrun.network": "open"}, `annotation "eggrun.network": value "open"; want none, local, https, full`},
		{"network empty", map[string]string{"eggrun.network": ""}, `annotation "eggrun.network": value ""; want none, local, https, full`},
		{"none with domains", map[string]string{"eggrun.network": "none", KeyDomains: "good.test"}, `annotation "eggrun.network": none, but the domains and ports need https; drop one of them`},
		{"none with a port", map[string]string{"eggrun.network": "none", "eggrun.local-ports": "80"}, `annotation "eggrun.network": none, but the domains and ports need local; drop one of them`},
		{"local with domains", map[string]string{"eggrun.network": "local", KeyDomains: "good.test"}, `annotation "eggrun.network": local, but the domains and ports need https; drop one of them`},
		{"full with domains", map[string]string{"eggrun.network": "full", KeyDomains: "*"}, `annotation "eggrun.network": full means no wall, but domains or ports are listed; drop one of them`},
		{"full with a port", map[string]string{"eggrun.network": "full", "eggrun.local-ports": "80"}, `annotation "eggrun.network": full means no wall, but domains or ports are listed; drop one of them`},
		{"port", map[string]string{"eggrun.local-ports": "80 http"}, `annotation "eggrun.local-ports": port "http"; write 1 to 65535 without leading zeros`},
		{"peers", map[string]string{"eggrun.peers": "db"}, `annotation "eggrun.peers": value "db": not a prefix; write it as in 192.0.2.0/24; or write on-link or none`},
		{"peers everywhere", map[string]string{"eggrun.peers": "::/0"}, `annotation "eggrun.peers": value "::/0": every address is too wide; write the prefixes that are needed; or write on-link or none`},
		{"no peers but some", map[string]string{"eggrun.peers": "on-link none"}, `annotation "eggrun.peers": none beside other values; drop one of them`},
		{"inbound", map[string]string{"eggrun.inbound": "0"}, `annotation "eggrun.inbound": port "0"; write 1 to 65535 without leading zeros, or all, on-link or none`},
		{"inbound all and a port", map[string]string{"eggrun.inbound": "80,all"}, `annotation "eggrun.inbound": all beside other values; drop one of them`},
		{"relative path", map[string]string{"eggrun.deny": "etc/shadow"}, `annotation "eggrun.deny": path "etc/shadow": not absolute; begin it with a slash`},
		{"sni", map[string]string{"eggrun.sni": "Off"}, `annotation "eggrun.sni": value "Off"; want match, allowlisted, off`},
		{"sni empty", map[string]string{"eggrun.sni": ""}, `annotation "eggrun.sni": value ""; want match, allowlisted, off`},
		{"sni twice", map[string]string{"eggrun.sni": "off match"}, `annotation "eggrun.sni": value "off match"; want match, allowlisted, off`},
		{"mode", map[string]string{"eggrun.mode": "watch"}, `annotation "eggrun.mode": value "watch"; want enforce, observe`},
		{"transparent", map[string]string{"eggrun.transparent": "auto"}, `annotation "eggrun.transparent": value "auto"; want on, off`},
		{"profile", map[string]string{"eggrun.profile": "ci"}, `profile "ci": no policy.toml has one; see eggrun(8)`},
		{"profile empty", map[string]string{"eggrun.profile": " "}, `annotation "eggrun.profile": empty; name a profile of policy.toml`},
		{"unknown key of a container", map[string]string{"eggrun.domain/web": "good.test"}, `annotation "eggrun.domain/web": ` + unknownKey},
		{"containers that differ", map[string]string{"eggrun.domains/a": "good.test", "eggrun.domains/b": ""}, `annotation "eggrun.domains/a": ` + unlikeOthers},
		{"a container unlike the pod", map[string]string{"eggrun.domains/a": "good.test", KeyDomains: "*"}, `annotation "eggrun.domains/a": ` + unlikeOthers},
		{"a container's value, cut off", map[string]string{"eggrun.domains/a": strings.Repeat("a.test ", 8) + "b.examp"}, `annotation "eggrun.domains/a": ` +
			"podman generate kube cuts values off after 63 bytes; write eggrun.domains, with the whole value"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := Resolve(Request{Annotations: tt.annotations})
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

// unknownKey is what is said of an annotation that looks like one of ours.
const unknownKey = "unknown key; those that are known are eggrun.network, eggrun.domains, eggrun.local-ports, eggrun.peers, eggrun.inbound, " +
	"eggrun.deny, eggrun.deny-write, eggrun.allow-sockets, eggrun.allow-fds, eggrun.sni, eggrun.mode, eggrun.proxy-env, " +
	"eggrun.transparent, eggrun.on-proxy-exit, eggrun.profile"

const unlikeOthers = "the pod's containers have different values, and none is told which is its own; write eggrun.domains"

// TestResolveContainerKeys has a pod's annotations as podman generate kube writes
// them.
func TestResolveContainerKeys(t *testing.T) {
	t.Parallel()
	want, err := Resolve(Request{Annotations: map[string]string{KeyDomains: "good.test", "eggrun.sni": "off"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, annotations := range []map[string]string{
		{"eggrun.domains/web": "good.test", "eggrun.sni/web": "off"},
		{"eggrun.domains/a": "good.test", "eggrun.domains/b": "good.test", "eggrun.sni": "off"},
	} {
		got, err := Resolve(Request{Annotations: annotations})
		if err != nil || !slices.Equal(got.Domains, want.Domains) || got.SNI != want.SNI {
			t.Errorf("Resolve(%v) = %v, %v, want %v", annotations, got, err, want)
		}
	}
}

func TestResolveAnnotations(t *testing.T) {
	t.Parallel()
	p, err := Resolve(Request{Annotations: map[string]string{
		"eggrun.domains":       "*  db.example.com:5432!tcp",
		"eggrun.network":       " https ",
		"eggrun.local-ports":   "11434, 5432",
		"eggrun.peers":         "on-link 10.1.0.0/16 2001:db8::7",
		"eggrun.inbound":       "on-link 8080",
		"eggrun.deny":          "/etc/shadow/ /root/../srv",
		"eggrun.deny-write":    "/etc",
		"eggrun.allow-sockets": "/run/app.sock",
		"eggrun.allow-fds":     "on",
		"eggrun.sni":           "allowlisted",
		"eggrun.mode":          "observe",
		"eggrun.proxy-env":     "off",
		"eggrun.transparent":   "off",
		"eggrun.on-proxy-exit": "kill",
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := &Policy{
		Domains:         []string{"*", "db.example.com:5432!tcp"},
		NetworkNeed:     sandbox.NetworkHTTPS,
		LocalPorts:      []uint16{11434, 5432},
		Peers:           Peers{OnLink: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8::7/128")}},
		Inbound:         Inbound{OnLink: true, Ports: []uint16{8080}},
		Deny:            []string{"/etc/shadow", "/srv"},
		DenyWrite:       []string{"/etc"},
		AllowSockets:    []string{"/run/app.sock"},
		AllowFDs:        true,
		SNI:             SNIAllowlisted,
		Observe:         true,
		ProxyEnv:        ProxyEnvOff,
		KillOnProxyExit: true,
	}
	wantSame(t, p, want)
}

// wantSame compares policies, but for what only explains them.
func wantSame(t *testing.T, got, want *Policy) {
	t.Helper()
	show := func(p *Policy) string {
		plain := *p
		plain.Origins = nil
		data, err := json.MarshalIndent(&plain, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if show(got) != show(want) {
		t.Errorf("policy\n%s\nwant\n%s", show(got), show(want))
	}
}

func TestResolveDefaults(t *testing.T) {
	t.Parallel()
	p, err := Resolve(Request{Annotations: map[string]string{"eggrun.network": "none"}})
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, p, &Policy{
		Peers: Peers{OnLink: true}, Inbound: Inbound{All: true}, SNI: SNIMatch, ProxyEnv: ProxyEnvAuto, Transparent: true,
	})
	if p.Wall() == nil {
		t.Error("network none has no wall")
	}
	for _, lists := range []string{"peers", "inbound", "deny", "local-ports", "allow-sockets"} {
		p, err := Resolve(Request{Annotations: map[string]string{"eggrun." + lists: " , "}})
		if err != nil {
			t.Errorf("eggrun.%s empty: %v", lists, err)
		} else if p.Peers.OnLink && lists == "peers" || p.Inbound.All && lists == "inbound" {
			t.Errorf("eggrun.%s empty allows something: %+v", lists, p)
		}
	}
}

func TestNetworkOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		domains, ports, network string
		want                    sandbox.NetworkNeed
	}{
		{"*", "", "", sandbox.NetworkHTTPS},
		{"*", "", "https", sandbox.NetworkHTTPS},
		{"localhost:80!tcp", "", "", sandbox.NetworkLocal},
		{"localhost:80", "", "local", sandbox.NetworkLocal},
		{"localhost:80", "", "https", sandbox.NetworkHTTPS},
		{"", "80", "", sandbox.NetworkLocal},
		{"", "80", "local", sandbox.NetworkLocal},
		{"good.test", "80", "", sandbox.NetworkHTTPS},
		{"", "", "", sandbox.NetworkNone},
		{"", "", "full", sandbox.NetworkFull},
	} {
		annotations := map[string]string{KeyDomains: tt.domains, "eggrun.local-ports": tt.ports}
		if tt.network != "" {
			annotations["eggrun.network"] = tt.network
		}
		p, err := Resolve(Request{Annotations: annotations})
		if err != nil {
			t.Errorf("%+v: %v", tt, err)
			continue
		}
		if p.NetworkNeed != tt.want || (p.Wall() == nil) != (tt.want == sandbox.NetworkFull) {
			t.Errorf("%+v: network %v, wall %v", tt, p.NetworkNeed, p.Wall() != nil)
		}
	}
	if (*Policy)(nil).Wall() != nil {
		t.Error("no policy has a wall")
	}
}

func TestPolicyJSON(t *testing.T) {
	t.Parallel()
	p, err := Resolve(Request{Annotations: map[string]string{
		KeyDomains: "*.good.test db.test:5432!tcp 10.0.0.0/8", "eggrun.peers": "10.1.0.0/16", "eggrun.mode": "observe", "eggrun.deny": "/x",
	}})
	if err != nil {
		t.Fatal(err)
	}
	p.HostAddresses = []netip.Prefix{netip.MustParsePrefix("203.0.113.7/32")}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var again Policy
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&again, p) {
		t.Errorf("JSON made\n%+v\nof\n%+v", again, p)
	}
	if err := json.Unmarshal([]byte(`{"Domains":["https://x"]}`), &again); err == nil {
		t.Error("a bad list was taken")
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	p := &Policy{Allowlist: mustList(t, "good.test", "db.example.com:5432!tcp"), Observe: true, SearchDomains: []string{"corp.example.com", "dns.podman"}}
	for _, tt := range []struct {
		target string
		want   Decision
	}{
		{"good.test:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "good.test"}},
		{"example.com:443", Decision{Allow: true, WouldDeny: true, Reason: ReasonNotListed}},
		{"example.com:22", Decision{Allow: true, WouldDeny: true, Reason: ReasonNotListed}},
		{"db.example.com:5432", Decision{Allow: true, Reason: ReasonAllowed, Rule: "db.example.com:5432!tcp", Opaque: true}},
		{"db.example.com:443", Decision{Allow: true, WouldDeny: true, Reason: ReasonPortNotListed, Rule: "db.example.com:5432!tcp"}},
		{"good.test:22", Decision{Reason: ReasonPortNotListed, Rule: "good.test"}},
		{"8.8.8.8:443", Decision{Reason: ReasonNotListed}},
		{"localhost:80", Decision{Reason: ReasonNotListed}},
		{"db:80", Decision{Reason: ReasonNotListed}},
		{"metadata.google.internal:80", Decision{Reason: ReasonNotListed}},
		{"corp.example.com:443", Decision{Reason: ReasonNotListed}},
		{"api.github.com.corp.example.com:443", Decision{Reason: ReasonNotListed}},
		{"notcorp.example.com:443", Decision{Allow: true, WouldDeny: true, Reason: ReasonNotListed}},
		{"github.com.dns.podman:443", Decision{Reason: ReasonNotListed}},
	} {
		target := mustTarget(t, tt.target)
		if got := p.Decide(target); got != tt.want {
			t.Errorf("Decide(%s) = %+v, want %+v", tt.target, got, tt.want)
		}
		strict := *p
		strict.Observe = false
		if got := strict.Decide(target); got.WouldDeny || got.Allow != (tt.want.Allow && !tt.want.WouldDeny) {
			t.Errorf("enforcing, Decide(%s) = %+v", tt.target, got)
		}
	}
	for _, target := range []Target{{}, {Host: "example.com"}, {Host: "a..example.com", Port: 443}, {Host: "EXAMPLE.com", Port: 443}} {
		if got := p.Decide(target); got.Allow {
			t.Errorf("Decide(%+v) = %+v, want a refusal", target, got)
		}
	}
	if got := (*Policy)(nil).Decide(mustTarget(t, "example.com:443")); got.Allow {
		t.Errorf("no policy allows %+v", got)
	}
}

func TestSearchDomainsAndStar(t *testing.T) {
	t.Parallel()
	p := &Policy{Allowlist: mustList(t, "*", "db.corp.example.com"), SearchDomains: []string{"corp.example.com"}}
	for authority, want := range map[string]bool{
		"example.com:443": true, "x.corp.example.com:443": false, "corp.example.com:443": false, "db.corp.example.com:443": true,
	} {
		if got := p.Decide(mustTarget(t, authority)); got.Allow != want {
			t.Errorf("Decide(%s) = %+v, want allow %v", authority, got, want)
		}
	}
}

// TestForMember has two containers in one network namespace, each with paths and
// sockets of its own.
func TestForMember(t *testing.T) {
	t.Parallel()
	resolve := func(pairs ...string) *Policy {
		p, err := Resolve(ask(pairs...))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	theirs := resolve("domains", "a.test", "deny", "/theirs", "deny-write", "/theirs2", "allow-sockets", "/theirs.sock", "allow-fds", "on")
	own := resolve("domains", "b.test", "deny", "/own", "allow-sockets", "/own.sock")
	got := theirs.ForMember(own)
	if !slices.Equal(got.Domains, theirs.Domains) || !got.Decide(mustTarget(t, "a.test:443")).Allow || got.Decide(mustTarget(t, "b.test:443")).Allow {
		t.Errorf("reaches %v, want %v", got.Domains, theirs.Domains)
	}
	if !slices.Equal(got.Deny, []string{"/own"}) || len(got.DenyWrite) > 0 || !slices.Equal(got.AllowSockets, []string{"/own.sock"}) || got.AllowFDs {
		t.Errorf("paths and sockets of the other: %+v", got)
	}
	if text := fmt.Sprint(got.Origins); strings.Contains(text, "/theirs") || !strings.Contains(text, "/own.sock") || !strings.Contains(text, "a.test") {
		t.Errorf("origins %s", text)
	}
	if got := theirs.ForMember(nil); len(got.Deny)+len(got.AllowSockets) > 0 || got.AllowFDs || !got.Decide(mustTarget(t, "a.test:443")).Allow {
		t.Errorf("who has nothing gets %+v", got)
	}
	if len(theirs.Deny) != 1 || len(theirs.AllowSockets) != 1 {
		t.Error("the other's policy was changed")
	}
}

func TestPolicyVetAddr(t *testing.T) {
	t.Parallel()
	own := []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("127.0.0.1")}
	p := &Policy{
		Allowlist:     mustList(t, "10.0.0.5", "10.0.0.6", "203.0.113.9", "localhost"),
		HostAddresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("8.8.8.0/24"), netip.MustParsePrefix("203.0.113.9/32")},
	}
	limited, faking := *p, *p
	limited.UnnamedAddrs = []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("10.0.0.6"), netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("127.0.0.1")}
	faking.UpstreamFake = true
	name := mustTarget(t, "good.test:443")
	for _, tt := range []struct {
		addr                     string
		plain, unnamed, withFake bool
	}{
		{"1.1.1.1", true, true, true},
		{"10.0.0.5", true, false, true},
		{"::ffff:10.0.0.5", true, false, true},
		{"10.0.0.6", true, true, true},
		{"127.0.0.1", true, true, true},
		{"8.8.8.8", false, false, false},
		{"203.0.113.9", true, false, true},
		{"198.18.0.7", false, false, true},
		{"198.20.0.7", true, true, true},
	} {
		addr := netip.MustParseAddr(tt.addr)
		for what, one := range map[string]struct {
			p    *Policy
			want bool
		}{"plain": {p, tt.plain}, "unnamed": {&limited, tt.unnamed}, "fake": {&faking, tt.withFake}} {
			if got := one.p.VetAddr(name, addr, own...); got.Allow != one.want {
				t.Errorf("%s: VetAddr(%s) = %+v, want allow %v", what, addr, got, one.want)
			}
		}
	}
	if got := (*Policy)(nil).VetAddr(name, netip.MustParseAddr("1.1.1.1")); got.Allow {
		t.Errorf("no policy allows %+v", got)
	}
	if got := faking.VetAddr(Target{Host: "good.test"}, netip.MustParseAddr("198.18.0.7")); got.Allow {
		t.Errorf("port 0 is allowed: %+v", got)
	}
	if got := faking.VetAddr(mustTarget(t, "198.18.0.7:443"), netip.MustParseAddr("198.18.0.7")); got.Allow {
		t.Errorf("a fake address that the client chose is allowed: %+v", got)
	}
	if got := faking.VetAddr(name, netip.MustParseAddr("198.18.0.7"), netip.MustParseAddr("198.18.0.7")); got.Allow {
		t.Errorf("a fake address of the machine itself is allowed: %+v", got)
	}
}
