package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// covers is the rule of the language written a second time, in the slowest and
// plainest way: does the text of an entry name the host of target?
func covers(entry string, target Target) bool {
	entry = strings.ToLower(strings.TrimSpace(entry))
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
		"good.test", "*.good.test:443", "[2001:db8::/32]:22", "10.0.0.0/8:*", "bücher.test", "127.1", "*.com", "@x", "a!tcp", "１２７.0.0.1",
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

func FuzzParseTarget(f *testing.F) {
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
		}
	})
}
