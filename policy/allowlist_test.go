package policy

import (
	"net/netip"
	"strings"
	"testing"
)

// mustList parses entries that a test needs to be good.
func mustList(t testing.TB, domains ...string) *Allowlist {
	t.Helper()
	a, err := ParseAllowlist(domains)
	if err != nil {
		t.Fatalf("ParseAllowlist(%q): %v", domains, err)
	}
	return a
}

// mustTarget parses an authority that a test needs to be good.
func mustTarget(t testing.TB, authority string) Target {
	t.Helper()
	target, err := ParseTarget(authority)
	if err != nil {
		t.Fatalf("ParseTarget(%q): %v", authority, err)
	}
	return target
}

func TestDecide(t *testing.T) {
	t.Parallel()
	const none = ReasonNotListed
	for _, tt := range []struct {
		name   string
		list   string // separated by blanks
		target string
		want   Decision
	}{
		{"empty list", "", "good.test:443", Decision{Reason: none}},
		{"exact", "good.test", "good.test:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "good.test"}},
		{"exact 80", "good.test", "good.test:80", Decision{Allow: true, Reason: ReasonAllowed, Rule: "good.test"}},
		{"other name", "good.test", "evil.test:443", Decision{Reason: none}},
		{"entry in upper case", "GOOD.Test", "good.test:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "GOOD.Test"}},
		{"target in upper case", "good.test", "GOOD.test:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "good.test"}},
		{"entry with dot", "good.test.", "good.test:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "good.test."}},
		{"target with dot", "good.test", "good.test.:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "good.test"}},
		{"exact is not a suffix", "good.test", "evilgood.test:443", Decision{Reason: none}},
		{"exact is not a prefix", "good.test", "good.test.evil.test:443", Decision{Reason: none}},
		{"exact is not below", "good.test", "x.good.test:443", Decision{Reason: none}},
		{"underscore", "_dmarc.good.test", "_dmarc.good.test:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "_dmarc.good.test"}},
		{"hyphens where IDNA has none", "r3---sn-x.good.test", "r3---sn-x.good.test:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "r3---sn-x.good.test"}},
		{"one label", "db", "db:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "db"}},

		{"wildcard", "*.good.test", "x.good.test:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "*.good.test"}},
		{"wildcard deep", "*.good.test", "a.b.c.good.test:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "*.good.test"}},
		{"wildcard not apex", "*.good.test", "good.test:443", Decision{Reason: none}},
		{"wildcard not a suffix", "*.good.test", "evilgood.test:443", Decision{Reason: none}},
		{"wildcard not in the middle", "*.good.test", "x.good.test.evil.test:443", Decision{Reason: none}},
		{"wildcard and dots", "*.Good.test.", "X.good.TEST.:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "*.Good.test."}},
		{"apex and wildcard", "good.test *.good.test", "good.test:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "good.test"}},
		{"closest wildcard", "*.good.test *.x.good.test", "a.x.good.test:80", Decision{Allow: true, Reason: ReasonAllowed, Rule: "*.x.good.test"}},
		{"wildcard of a name ending in digits", "*.good.v1", "a.good.v1:80", Decision{Allow: true, Reason: ReasonAllowed, Rule: "*.good.v1"}},

		{"port not listed", "good.test", "good.test:22", Decision{Allow: false, Reason: ReasonPortNotListed, Rule: "good.test"}},
		{"port listed", "good.test:22", "good.test:22", Decision{Allow: true, Reason: ReasonAllowed, Rule: "good.test:22"}},
		{"listed port replaces the default", "good.test:22", "good.test:443", Decision{Allow: false, Reason: ReasonPortNotListed, Rule: "good.test:22"}},
		{"ports add up", "good.test:22 good.test:8443", "good.test:8443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "good.test:8443"}},
		{"every port", "good.test:*", "good.test:65535", Decision{Allow: true, Reason: ReasonAllowed, Rule: "good.test:*"}},
		{"wildcard port", "*.good.test:8443", "x.good.test:8443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "*.good.test:8443"}},
		{"wider wildcard has the port", "*.x.good.test *.good.test:22", "a.x.good.test:22", Decision{Allow: true, Reason: ReasonAllowed, Rule: "*.good.test:22"}},
		{"no truncation to 16 bits", "good.test:443", "good.test:445", Decision{Allow: false, Reason: ReasonPortNotListed, Rule: "good.test:443"}},

		{"unicode entry", "bücher.test", "xn--bcher-kva.test:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "bücher.test"}},
		{"unicode upper case", "BÜCHER.test", "xn--bcher-kva.test:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "BÜCHER.test"}},
		{"unicode wildcard", "*.bücher.test", "a.xn--bcher-kva.test:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "*.bücher.test"}},
		{"a-label entry", "xn--bcher-kva.test", "XN--BCHER-KVA.test:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "xn--bcher-kva.test"}},

		{"IPv4", "192.0.2.1", "192.0.2.1:80", Decision{Allow: true, Reason: ReasonAllowed, Rule: "192.0.2.1"}},
		{"IPv4 with dot", "192.0.2.1", "192.0.2.1.:80", Decision{Allow: true, Reason: ReasonAllowed, Rule: "192.0.2.1"}},
		{"IPv4 not listed", "good.test", "192.0.2.1:80", Decision{Reason: none}},
		{"IPv4 port", "192.0.2.1:22", "192.0.2.1:443", Decision{Allow: false, Reason: ReasonPortNotListed, Rule: "192.0.2.1:22"}},
		{"IPv4 mapped", "192.0.2.1", "[::ffff:192.0.2.1]:80", Decision{Allow: true, Reason: ReasonAllowed, Rule: "192.0.2.1"}},
		{"IPv4 mapped entry", "::ffff:192.0.2.1", "192.0.2.1:80", Decision{Allow: true, Reason: ReasonAllowed, Rule: "::ffff:192.0.2.1"}},
		{"IPv4 mapped not listed", "good.test", "[::ffff:169.254.169.254]:80", Decision{Reason: none}},
		{"IPv6", "2001:db8::1", "[2001:db8::1]:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "2001:db8::1"}},
		{"IPv6 long form", "[2001:db8::1]:22", "[2001:0db8:0:0:0:0:0:1]:22", Decision{Allow: true, Reason: ReasonAllowed, Rule: "[2001:db8::1]:22"}},
		{"IPv6 brackets without port", "[2001:db8::1]", "[2001:db8::1]:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "[2001:db8::1]"}},
		{"prefix", "192.0.2.0/24", "192.0.2.77:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "192.0.2.0/24"}},
		{"prefix ends", "192.0.2.0/24", "192.0.3.1:443", Decision{Reason: none}},
		{"prefix port", "192.0.2.0/24:8443", "192.0.2.77:8443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "192.0.2.0/24:8443"}},
		{"IPv6 prefix", "2001:db8::/32", "[2001:db8:1::1]:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "2001:db8::/32"}},
		{"IPv6 prefix port", "[2001:db8::/32]:22", "[2001:db8:1::1]:22", Decision{Allow: true, Reason: ReasonAllowed, Rule: "[2001:db8::/32]:22"}},
		{"IPv6 prefix port without brackets", "2001:db8::/32:22", "[2001:db8:1::1]:22", Decision{Allow: true, Reason: ReasonAllowed, Rule: "2001:db8::/32:22"}},
		{"a wildcard is no address rule", "*.good.test", "10.0.0.1:443", Decision{Reason: none}},

		{"opaque", "good.test:22!tcp", "good.test:22", Decision{Allow: true, Reason: ReasonAllowed, Rule: "good.test:22!tcp", Opaque: true}},
		{"opaque, other port", "good.test:22!tcp", "good.test:443", Decision{Reason: ReasonPortNotListed, Rule: "good.test:22!tcp"}},
		{"opaque without port", "good.test!tcp", "good.test:80", Decision{Allow: true, Reason: ReasonAllowed, Rule: "good.test!tcp", Opaque: true}},
		{"opaque beside plain", "good.test:443 good.test:443!tcp", "good.test:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "good.test:443!tcp", Opaque: true}},
		{"opaque on another port", "good.test good.test:22!tcp", "good.test:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "good.test"}},
		{"opaque wildcard", "*.good.test:*!tcp", "a.good.test:5432", Decision{Allow: true, Reason: ReasonAllowed, Rule: "*.good.test:*!tcp", Opaque: true}},

		{"star", "*", "good.example.com:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "*"}},
		{"star, two labels", "*", "example.com:80", Decision{Allow: true, Reason: ReasonAllowed, Rule: "*"}},
		{"star, private suffix", "*", "me.github.io:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "*"}},
		{"star, other port", "*", "example.com:22", Decision{Reason: ReasonPortNotListed, Rule: "*"}},
		{"star with port", "*:22", "example.com:22", Decision{Allow: true, Reason: ReasonAllowed, Rule: "*:22"}},
		{"star with every port", "*:*", "example.com:22", Decision{Allow: true, Reason: ReasonAllowed, Rule: "*:*"}},
		{"star comes last", "* example.com", "example.com:443", Decision{Allow: true, Reason: ReasonAllowed, Rule: "example.com"}},
		{"star and an address", "*:*", "8.8.8.8:443", Decision{Reason: none}},
		{"star and localhost", "*:*", "localhost:443", Decision{Reason: none}},
		{"star below localhost", "*:*", "x.localhost:443", Decision{Reason: none}},
		{"star and one label", "*:*", "com:443", Decision{Reason: none}},
		{"star and a host of the network", "*:*", "db:443", Decision{Reason: none}},
		{"star and .local", "*:*", "printer.local:443", Decision{Reason: none}},
		{"star and .internal", "*:*", "metadata.google.internal:80", Decision{Reason: none}},
		{"star and .arpa", "*:*", "1.0.0.127.in-addr.arpa:80", Decision{Reason: none}},
		{"star and home.arpa", "*:*", "nas.home.arpa:80", Decision{Reason: none}},
		{"star and .onion", "*:*", "abc.onion:80", Decision{Reason: none}},
		{"star and a suffix of an engine", "*:*", "github.com.dns.podman:443", Decision{Reason: none}},
		{"star and .test", "*:*", "good.test:443", Decision{Reason: none}},

		{"localhost", "localhost:11434", "localhost:11434", Decision{Allow: true, Reason: ReasonAllowed, Rule: "localhost:11434"}},
		{"localhost names its addresses", "localhost:11434", "127.0.0.1:11434", Decision{Allow: true, Reason: ReasonAllowed, Rule: "localhost:11434"}},
		{"localhost names its IPv6 address", "localhost:11434", "[::1]:11434", Decision{Allow: true, Reason: ReasonAllowed, Rule: "localhost:11434"}},
		{"localhost names no other", "localhost:*", "127.0.0.2:80", Decision{Reason: none}},
		{"127.0.0.1 is not the name", "127.0.0.1", "localhost:80", Decision{Reason: none}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			list := mustList(t, strings.Fields(tt.list)...)
			if got := list.Decide(mustTarget(t, tt.target)); got != tt.want {
				t.Errorf("%q.Decide(%q) = %+v, want %+v", tt.list, tt.target, got, tt.want)
			}
		})
	}
}

func TestDecideTargetsMadeByHand(t *testing.T) {
	t.Parallel()
	list := mustList(t, "good.test:*", "*.good.test:*", "10.0.0.1:*")
	for _, target := range []Target{
		{},
		{Host: "good.test"},
		{Host: "GOOD.test", Port: 443},
		{Host: "good.test.", Port: 443},
		{Host: ".good.test", Port: 443},
		{Host: "a..good.test", Port: 443},
		{Host: "evil.test/.good.test", Port: 443},
		{Host: "evil.test\x00.good.test", Port: 443},
		{Host: "10.0.0.1", Port: 443},
		{Host: "good.test", Addr: netip.MustParseAddr("10.0.0.2"), Port: 443},
		{Addr: netip.MustParseAddr("10.0.0.1")},
	} {
		if got := list.Decide(target); got.Allow {
			t.Errorf("Decide(%+v) = %+v, want a refusal", target, got)
		}
	}
	for _, target := range []Target{
		{Host: "good.test", Port: 443},
		{Host: "a.good.test", Port: 443},
		{Addr: netip.MustParseAddr("10.0.0.1"), Port: 443},
		{Addr: netip.MustParseAddr("::ffff:10.0.0.1"), Port: 443},
	} {
		if got := list.Decide(target); !got.Allow {
			t.Errorf("Decide(%+v) = %+v, want it allowed", target, got)
		}
	}
}

func TestNilAllowlistDeniesEverything(t *testing.T) {
	t.Parallel()
	var list *Allowlist
	if got, want := list.Decide(mustTarget(t, "good.test:443")), (Decision{Reason: ReasonNotListed}); got != want {
		t.Errorf("Decide = %+v, want %+v", got, want)
	}
	if got := VetAddr(list, netip.MustParseAddr("1.1.1.1"), 443); got.Allow {
		t.Errorf("VetAddr = %+v, want a refusal", got)
	}
}

func TestParseAllowlistRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ entry, wantErr string }{
		{"", `entry "": empty; write a name such as api.example.com`},
		{" \t", `entry "": empty; write a name such as api.example.com`},
		{"*.com", `entry "*.com": every name below the top-level domain com is too wide; write *.example.com`},
		{"*.com.", `entry "*.com.": every name below the top-level domain com is too wide; write *.example.com`},
		{"*.com:8443", `entry "*.com:8443": every name below the top-level domain com is too wide; write *.example.com`},
		{"*.", `entry "*.": no host; write a name`},
		{"*..", `entry "*..": begins with a dot; write example.com, *.example.com for all below it, or both`},
		{".good.test", `entry ".good.test": begins with a dot; write example.com, *.example.com for all below it, or both`},
		{"*..good.test", `entry "*..good.test": begins with a dot; write example.com, *.example.com for all below it, or both`},
		{"*good.test", `entry "*good.test": a star stands only for whole labels at the beginning; write *.example.com`},
		{"a.*.test", `entry "a.*.test": a star stands only for whole labels at the beginning; write *.example.com`},
		{"*.*.test", `entry "*.*.test": a star stands only for whole labels at the beginning; write *.example.com`},
		{"**.good.test", `entry "**.good.test": a star stands only for whole labels at the beginning; write *.example.com`},
		{"good..test", `entry "good..test": empty label; write names without doubled or leading dots`},
		{"good.test..", `entry "good.test..": empty label; write names without doubled or leading dots`},
		{"https://good.test", `entry "https://good.test": is a URL; write only its host, or host:port`},
		{"https://good.test:443/x", `entry "https://good.test:443/x": is a URL; write only its host, or host:port`},
		{"good.test/path", `entry "good.test/path": has a path; write only the host, or host:port`},
		{"good.test:443/8", `entry "good.test:443/8": has a path; write only the host, or host:port`},
		{"192.0.2.1/path", `entry "192.0.2.1/path": has a path; write only the host, or host:port`},
		{"good.test?x", `entry "good.test?x": has a path; write only the host, or host:port`},
		{"user@good.test", `entry "user@good.test": has user information; write only the host, or host:port`},
		{"@group", `entry "@group": a group where none is known; list its entries`},
		{"good.test:22!", `entry "good.test:22!": option "!"; the only one is !tcp, for what is not TLS`},
		{"good.test:22!udp", `entry "good.test:22!udp": option "!udp"; the only one is !tcp, for what is not TLS`},
		{"good.test:22!tcp!tcp", `entry "good.test:22!tcp!tcp": option "!tcp!tcp"; the only one is !tcp, for what is not TLS`},
		{"good.test!tcp:22", `entry "good.test!tcp:22": option "!tcp:22"; the only one is !tcp, for what is not TLS`},
		{"!tcp", `entry "!tcp": no host; write a name`},
		{"good.test:", `entry "good.test:": port ""; write 1 to 65535 without leading zeros, or * for every port`},
		{"good.test:0", `entry "good.test:0": port "0"; write 1 to 65535 without leading zeros, or * for every port`},
		{"good.test:65536", `entry "good.test:65536": port "65536"; write 1 to 65535 without leading zeros, or * for every port`},
		{"good.test:0443", `entry "good.test:0443": port "0443"; write 1 to 65535 without leading zeros, or * for every port`},
		{"good.test:+443", `entry "good.test:+443": port "+443"; write 1 to 65535 without leading zeros, or * for every port`},
		{"good.test:https", `entry "good.test:https": port "https"; write 1 to 65535 without leading zeros, or * for every port`},
		{"good.test:1-9", `entry "good.test:1-9": port "1-9"; write 1 to 65535 without leading zeros, or * for every port`},
		{"good.test:443:8443", `entry "good.test:443:8443": not an IPv6 address; write host:port or [2001:db8::1]:port`},
		{":443", `entry ":443": no host; write a name`},
		{"127.1", `entry "127.1": encoded IPv4 address; write four decimal numbers, as in 127.0.0.1`},
		{"0x7f.1", `entry "0x7f.1": encoded IPv4 address; write four decimal numbers, as in 127.0.0.1`},
		{"0x7f000001", `entry "0x7f000001": encoded IPv4 address; write four decimal numbers, as in 127.0.0.1`},
		{"a.0x", `entry "a.0x": encoded IPv4 address; write four decimal numbers, as in 127.0.0.1`},
		{"2130706433", `entry "2130706433": encoded IPv4 address; write four decimal numbers, as in 127.0.0.1`},
		{"0177.0.0.1", `entry "0177.0.0.1": encoded IPv4 address; write four decimal numbers, as in 127.0.0.1`},
		{"good.123", `entry "good.123": encoded IPv4 address; write four decimal numbers, as in 127.0.0.1`},
		{"*.0.0.1", `entry "*.0.0.1": encoded IPv4 address; write four decimal numbers, as in 127.0.0.1`},
		{"*.10.0.0.1", `entry "*.10.0.0.1": an address has nothing below it; write a prefix as in 192.0.2.0/24`},
		{"fe80::1%lo", `entry "fe80::1%lo": has an IPv6 zone or an escape; write it without '%'`},
		{"[good.test]:443", `entry "[good.test]:443": brackets around what is no IPv6 address; use them as in [2001:db8::1]:443`},
		{"[192.0.2.1]:443", `entry "[192.0.2.1]:443": brackets around what is no IPv6 address; use them as in [2001:db8::1]:443`},
		{"[::1", `entry "[::1": brackets around what is no IPv6 address; use them as in [2001:db8::1]:443`},
		{"[::1]]:443", `entry "[::1]]:443": not an IPv6 address; write host:port or [2001:db8::1]:port`},
		{"192.0.2.1/24", `entry "192.0.2.1/24": address bits behind the prefix; write 192.0.2.0/24 or 192.0.2.1`},
		{"192.0.2.0/33", `entry "192.0.2.0/33": not a prefix; write it as in 192.0.2.0/24`},
		{"0.0.0.0/0", `entry "0.0.0.0/0": every address is too wide; write the prefixes that are needed`},
		{"::/0", `entry "::/0": every address is too wide; write the prefixes that are needed`},
		{"::ffff:10.0.0.0/104", `entry "::ffff:10.0.0.0/104": IPv4 in IPv6 form; write the IPv4 prefix`},
		{"a b", `entry "a b": byte " " in the host; use letters, digits, '.', '-' and '_'`},
		{"good.test\x00", `entry "good.test\x00": byte "\x00" in the host; use letters, digits, '.', '-' and '_'`},
		{"good.test#x", `entry "good.test#x": has a path; write only the host, or host:port`},
		{"１２７.0.0.1", `entry "１２７.0.0.1": letters of another script that stand for "127"; write that`},
		{"ⓔvil.test", `entry "ⓔvil.test": letters of another script that stand for "evil"; write that`},
		{"go\u00adod.test", `entry "go\u00adod.test": letters of another script that stand for "good"; write that`},
		{"\u212aey.test", "entry \"\u212aey.test\": letters of another script that stand for \"key\"; write that"},
		{"evil。test", `entry "evil。test": letters of another script that stand for "evil.test"; write that`},
		{"a.examp\xc5le.test", `entry "a.examp\xc5le.test": not UTF-8`},
		{"ü\u200d.test", `entry "ü\u200d.test": not an internationalized domain name; write its A-label, xn--`},
		{strings.Repeat("a", 64) + ".test", `entry "` + strings.Repeat("a", 64) + `.test": label of 64 bytes; DNS has at most 63`},
		{strings.Repeat("a.", 127) + "a", `entry "` + strings.Repeat("a.", 50) + `...": name of 255 bytes; DNS has at most 253`},
	} {
		t.Run(tt.entry, func(t *testing.T) {
			t.Parallel()
			list, err := ParseAllowlist([]string{"fine.test", tt.entry})
			if err == nil {
				t.Fatalf("ParseAllowlist took %q", tt.entry)
			}
			if list != nil {
				t.Error("a list came with the error")
			}
			if err.Error() != tt.wantErr {
				t.Errorf("error %q, want %q", err, tt.wantErr)
			}
		})
	}
}

func TestParseAllowlistEmpty(t *testing.T) {
	t.Parallel()
	for _, domains := range [][]string{nil, {}} {
		list, err := ParseAllowlist(domains)
		if err != nil || list == nil {
			t.Fatalf("ParseAllowlist(%v) = %v, %v, want an empty list", domains, list, err)
		}
		if got := list.Decide(mustTarget(t, "good.test:443")); got.Allow {
			t.Errorf("an empty list allowed: %+v", got)
		}
	}
}
