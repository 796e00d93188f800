package policy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/publicsuffix"
)

// covers is the rule of the language written a second time, in the slowest and
// plainest way: does the text of an entry name the host of target?
func covers(entry string, target Target) bool {
	entry, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(entry)), "!")
	if host := stripPort(entry); host == "*" {
		top := target.Host[strings.LastIndexByte(target.Host, '.')+1:]
		return !target.Addr.IsValid() && !slices.Contains([]string{"local", "localhost", "internal", "arpa", "onion"}, top) &&
			strings.Contains(target.Host, ".") && isListed(publicsuffix.PublicSuffix(target.Host))
	}
	if prefix, err := netip.ParsePrefix(strings.Trim(stripPort(entry), "[]")); err == nil {
		return target.Addr.IsValid() && prefix.Contains(target.Addr)
	}
	host := strings.TrimSuffix(strings.Trim(stripPort(entry), "[]"), ".")
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap() == target.Addr
	}
	if target.Addr.IsValid() {
		return host == localhost && (target.Host == "127.0.0.1" || target.Host == "::1")
	}
	if parent, ok := strings.CutPrefix(host, "*"); ok {
		return strings.HasSuffix(target.Host, parent) && len(target.Host) > len(parent)
	}
	return host == target.Host
}

// stripPort cuts ":digits" or ":*" from the end of an entry that has one.
func stripPort(entry string) string {
	i := strings.LastIndexByte(entry, ':')
	if i < 0 || strings.Trim(entry[i+1:], "0123456789") != "" && entry[i+1:] != "*" {
		return entry
	}
	bare := strings.Count(entry, ":") > 1 && !strings.ContainsAny(entry, "[/")
	inBrackets := strings.HasSuffix(entry, "]")
	beforeSlash := strings.Contains(entry[i:], "/")
	if bare || inBrackets || beforeSlash {
		return entry
	}
	return entry[:i]
}

func FuzzParseAllowlist(f *testing.F) {
	for _, s := range []string{
		"*", "*:22!tcp", "good.test", "*.good.test:443", "[2001:db8::/32]:22", "10.0.0.0/8:*", "bücher.test", "127.1", "*.com", "@x", "a!tcp", "１２７.0.0.1",
		".x", "*x", "a.*.b", "https://u@x/y", "fe80::1%lo", "0.0.0.0/0", "xn--.test", "localhost:11434", "::ffff:1.2.3.4", "a\x00.b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseAllowlist([]string{text})
		if err != nil {
			if list != nil {
				t.Fatalf("%q: a list came with the error %v", text, err)
			}
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Fatalf("%q: error of more than one line: %q", text, err)
			}
			return
		}
		for _, e := range list.entries {
			if again, err := parseEntry(e.text); err != nil || fmt.Sprint(again) != fmt.Sprint(e) {
				t.Fatalf("%q became %+v, %v at the second time", text, again, err)
			}
			if !e.coversAll(e) {
				t.Fatalf("%q does not cover itself", text)
			}
		}
		for name := range list.exact {
			if !isCanonicalName(name) {
				t.Fatalf("%q became the name %q", text, name)
			}
			if got := list.Decide(Target{Host: name, Port: 1}); got.Reason == ReasonNotListed {
				t.Fatalf("%q does not name %q: %+v", text, name, got)
			}
		}
		for name := range list.below {
			if !isCanonicalName(name) || !strings.Contains(name, ".") {
				t.Fatalf("%q became every name below %q", text, name)
			}
		}
		for _, r := range list.addrs {
			if !r.prefix.IsValid() || r.prefix.Bits() == 0 || r.prefix.Addr().Is4In6() || r.prefix != r.prefix.Masked() {
				t.Fatalf("%q became the prefix %v", text, r.prefix)
			}
		}
	})
}

func FuzzAuthority(f *testing.F) {
	for _, s := range []string{
		"good.test:443", "GOOD.test.:0443", "[::ffff:127.0.0.1]:80", "127.1:80", "a:443@b:443", "good.test:65979", "[::1%25lo]:443",
		"x\x00.test:1", "\u212aey.test:443", "169.254.169.254.:80", "a..b:1", "[good.test]:443", ":1", "0x7f.1:2",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, authority string) {
		target, err := ParseTarget(authority)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Fatalf("%q: error of more than one line: %q", authority, err)
			}
			return
		}
		if target.Port == 0 {
			t.Fatalf("%q has no port: %+v", authority, target)
		}
		if target.Addr.IsValid() {
			if target.Addr.Is4In6() || target.Addr.Zone() != "" || target.Host != target.Addr.String() {
				t.Fatalf("%q is not canonical: %+v", authority, target)
			}
		} else if !isCanonicalName(target.Host) {
			t.Fatalf("%q is not canonical: %+v", authority, target)
		}
		if again, err := ParseTarget(target.String()); err != nil || again != target {
			t.Fatalf("%q: %+v became %+v, %v through %q", authority, target, again, err, target)
		}
		// Nothing but case and one dot may be lost on the way. Addresses have
		// more than one spelling, names have not.
		if !target.Addr.IsValid() {
			if want := strings.ToLower(strings.Replace(authority, ".:", ":", 1)); target.String() != want {
				t.Fatalf("%q became %q", authority, target)
			}
		}
	})
}

func FuzzDecide(f *testing.F) {
	f.Add("good.test", "x.good.test", uint16(443))
	f.Add("*.good.test:22", "evilgood.test", uint16(22))
	f.Add("10.0.0.0/8", "10.0.0.1", uint16(80))
	f.Add("[2001:db8::/32]:22", "2001:db8::1", uint16(22))
	f.Add("localhost", "127.0.0.1", uint16(80))
	f.Add("*.good.test", ".good.test", uint16(443))
	f.Add("*", "a.example.com", uint16(443))
	f.Add("*:*!tcp", "printer.local", uint16(9100))
	f.Add("good.test:22!tcp", "good.test", uint16(22))
	f.Fuzz(func(t *testing.T, entry, host string, port uint16) {
		list, err := ParseAllowlist([]string{entry})
		if err != nil || !isASCII(entry) {
			return
		}
		targets := []Target{{Host: host, Port: port}}
		for _, format := range []string{"%s:%d", "[%s]:%d"} {
			if target, err := ParseTarget(fmt.Sprintf(format, host, port)); err == nil {
				targets = append(targets, target)
			}
		}
		for i, target := range targets {
			got := list.Decide(target)
			named := covers(entry, target)
			if got.Allow && !named {
				t.Fatalf("%q allows %+v: %+v", entry, target, got)
			}
			// Targets that were parsed must also be found where they are named.
			if i > 0 && named && got.Reason == ReasonNotListed {
				t.Fatalf("%q does not name %+v", entry, target)
			}
			if got.Allow != (got.Reason == ReasonAllowed) || got.Allow && got.Rule != strings.TrimSpace(entry) {
				t.Fatalf("%q, %+v: inconsistent %+v", entry, target, got)
			}
			if got.Opaque != (got.Allow && strings.Contains(entry, "!")) {
				t.Fatalf("%q, %+v: opaque in %+v", entry, target, got)
			}
			observing := &Policy{Allowlist: list, Observe: true}
			seen := observing.Decide(target)
			if got.Allow && seen != got || seen.WouldDeny != (seen.Allow && !got.Allow) || seen.WouldDeny && !covers("*:*", target) {
				t.Fatalf("%q, %+v: %+v, observing %+v", entry, target, got, seen)
			}
		}
	})
}

// FuzzPolicyFile: whatever a file says, a container gets what the file's own
// limit allows, or an error of one line.
func FuzzPolicyFile(f *testing.F) {
	example, err := os.ReadFile("../contrib/policy.toml")
	if err != nil {
		f.Fatal(err)
	}
	// Without the comments, on which the engine would spend its time.
	example = regexp.MustCompile(`(?m)^#.*\n|^\n`).ReplaceAll(example, nil)
	f.Add(example, "@go a.example.com", "ci")
	for _, text := range []string{limited, matching, users} {
		f.Add([]byte(text), "a.t.test", "narrow")
	}
	f.Add([]byte("[default]\nnetwork = 'full'\n[limit]\nmode = \"observe\"\ndomains = [1, true]\n"), "*", "")
	f.Add([]byte("[groups]\na = [\"@b\"]\nb = [\"@a\"]\n[[match]]\nuid = 0\n"), "@a", "")
	f.Fuzz(func(t *testing.T, text []byte, domains, profile string) {
		file, err := ParseFile("p.toml", text)
		if err != nil {
			checkFuzzError(t, err, file != nil)
			return
		}
		for _, warning := range file.Warnings() {
			if strings.ContainsAny(warning, "\r\n") {
				t.Fatalf("a warning of more than one line: %q", warning)
			}
		}
		r := Request{Admin: file}
		if domains != "" {
			r.Annotations = map[string]string{KeyDomains: domains}
		}
		if profile != "" {
			r.Profile = profile
		}
		p, err := Resolve(r)
		if err != nil {
			checkFuzzError(t, err, p != nil)
			return
		}
		limit, err := file.limit.over(file.rules).build()
		if err != nil {
			t.Fatal(err)
		}
		selected := profile != "" && file.profiles[profile].selectable
		matched := slices.ContainsFunc(file.matches, func(m *match) bool { return m.holds(&r, file.trusts) })
		if excess := p.Exceeds(limit); len(excess) > 0 && !selected && !matched {
			t.Fatalf("%q: got beyond the limit by %q", text, excess)
		}
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var again Policy
		if err := json.Unmarshal(data, &again); err != nil || len(again.Exceeds(p))+len(p.Exceeds(&again)) > 0 {
			t.Fatalf("%q: through JSON %+v became %+v, %v", text, p, again, err)
		}
	})
}

func checkFuzzError(t *testing.T, err error, more bool) {
	t.Helper()
	if more {
		t.Fatalf("something came with the error %v", err)
	}
	if strings.ContainsAny(err.Error(), "\r\n") {
		t.Fatalf("error of more than one line: %q", err)
	}
}
