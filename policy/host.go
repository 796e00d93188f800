package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Limits of a domain name in text form, without the dot at its end: RFC 1035
// section 2.3.4.
const (
	maxName  = 253
	maxLabel = 63
)

// canonicalHost returns host in the one form in which names are compared, or
// the address that it spells. It takes ASCII only: letters of other scripts
// fold into ASCII ones (U+212A lower-cases to k, fullwidth digits map to
// 127.0.0.1), so on the wire they are refused, not folded.
func canonicalHost(host string) (string, netip.Addr, error) {
	for i := range len(host) {
		if !isHostByte(host[i]) {
			return "", netip.Addr{}, fmt.Errorf("byte %q in the host; use letters, digits, '.', '-' and '_'", host[i:i+1])
		}
	}
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.String(), addr, nil
	}
	if err := checkName(name); err != nil {
		return "", netip.Addr{}, err
	}
	return name, netip.Addr{}, nil
}

func isHostByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == '_'
}

// isCanonicalName reports whether [canonicalHost] would give name back as a name.
func isCanonicalName(name string) bool {
	for i := range len(name) {
		if !isHostByte(name[i]) || 'A' <= name[i] && name[i] <= 'Z' {
			return false
		}
	}
	return checkName(name) == nil
}

// checkName reports why name, which holds only lower-case host bytes and no dot
// at its end, is not a name that a rule or a target can have.
func checkName(name string) error {
	if name == "" {
		return errors.New("no host; write a name")
	}
	if len(name) > maxName {
		return fmt.Errorf("name of %d bytes; DNS has at most %d", len(name), maxName)
	}
	last := name
	for label := range strings.SplitSeq(name, ".") {
		if label == "" {
			return errors.New("empty label; write names without doubled or leading dots")
		}
		if len(label) > maxLabel {
			return fmt.Errorf("label of %d bytes; DNS has at most %d", len(label), maxLabel)
		}
		last = label
	}
	if isNumeric(last) {
		return errors.New("encoded IPv4 address; write four decimal numbers, as in 127.0.0.1")
	}
	return nil
}

// isNumeric reports whether a host that ends in label would be taken for an IPv4
// address by inet_aton(3) or a browser: 127.1, 0x7f.1, 2130706433. No top-level
// domain looks like that (RFC 3696 section 2).
func isNumeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// parsePort parses the port of a target or a rule. Only the canonical form is
// taken: 0443, +443 and 65979 (which is 443 in 16 bits) are refused.
func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, fmt.Errorf("port %q; write 1 to 65535 without leading zeros", s)
	}
	return uint16(n), nil
}

// parseIPv6 parses the inside of brackets.
func parseIPv6(s string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(s)
	if err != nil || !addr.Is6() {
		return netip.Addr{}, errors.New("brackets around what is no IPv6 address; use them as in [2001:db8::1]:443")
	}
	if addr.Zone() != "" {
		return netip.Addr{}, errors.New("IPv6 zone; write the address without it")
	}
	return addr.Unmap(), nil
}
