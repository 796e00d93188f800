package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// entry is one parsed line of an allowlist: a prefix, a name, or every public
// name.
type entry struct {
	rule
	prefix   netip.Prefix
	name     string
	wildcard bool // name stands for every name below it
	star     bool
}

// parseEntry parses one entry of an allowlist. The error names the entry and
// says what to write instead.
func parseEntry(text string) (entry, error) {
	text = strings.TrimSpace(text)
	e, err := parseRule(text)
	if err != nil {
		return entry{}, fmt.Errorf("entry %q: %w", clip(text), err)
	}
	e.text = text
	return e, nil
}

func parseRule(text string) (entry, error) {
	if err := refuseForm(text); err != nil {
		return entry{}, err
	}
	text, option, hasOption := strings.Cut(text, "!")
	if hasOption && option != optionTCP {
		return entry{}, fmt.Errorf("option %q; the only one is !%s, for what is not TLS", "!"+option, optionTCP)
	}
	host, portText, hasPort := splitEntry(text)
	set := ports{list: []uint16{80, 443}}
	if hasPort {
		var err error
		if set, err = parsePorts(portText); err != nil {
			return entry{}, err
		}
	}
	e, err := parseHost(host)
	e.ports, e.opaque = set, hasOption
	return e, err
}

// optionTCP ends an entry of a host that doesn't speak TLS.
const optionTCP = "tcp"

// refuseForm refuses the forms that belong to other tools or to nothing, each
// with its own advice.
func refuseForm(text string) error {
	// A policy travels as JSON, which would put another text in its place.
	if !utf8.ValidString(text) {
		return errors.New("not UTF-8")
	}
	switch {
	case text == "":
		return errors.New("empty; write a name such as api.example.com")
	case strings.HasPrefix(text, "@"):
		return errors.New("a group where none is known; list its entries")
	case strings.Contains(text, "://"):
		return errors.New("is a URL; write only its host, or host:port")
	case strings.Contains(text, "@"):
		return errors.New("has user information; write only the host, or host:port")
	case strings.ContainsAny(text, "?#\\"), strings.Contains(text, "/") && !isPrefixForm(text):
		return errors.New("has a path; write only the host, or host:port")
	case strings.Contains(text, "%"):
		return errors.New("has an IPv6 zone or an escape; write it without '%'")
	}
	return nil
}

// isPrefixForm reports whether the slash in text is one of address/bits rather
// than the beginning of a path.
func isPrefixForm(text string) bool {
	host, bits, _ := strings.Cut(text, "/")
	_, err := netip.ParseAddr(strings.TrimPrefix(host, "["))
	return err == nil && bits != "" && '0' <= bits[0] && bits[0] <= '9'
}

// splitEntry cuts the port from an entry. It follows the shape alone; the parts
// are checked later.
func splitEntry(text string) (host, port string, hasPort bool) {
	if strings.HasPrefix(text, "[") {
		if i := strings.LastIndex(text, "]"); i > 0 && strings.HasPrefix(text[i+1:], ":") {
			return text[:i+1], text[i+2:], true
		}
		return text, "", false
	}
	// An address with colons of its own has no port without brackets, unless a
	// slash stands before the last colon: 2001:db8::/32:443.
	from := max(strings.LastIndex(text, "/"), 0)
	if from == 0 && strings.Count(text, ":") > 1 {
		return text, "", false
	}
	host, port, hasPort = strings.Cut(text[from:], ":")
	return text[:from] + host, port, hasPort
}

func parsePorts(s string) (ports, error) {
	if s == "*" {
		return ports{any: true}, nil
	}
	port, err := parsePort(s)
	if err != nil {
		return ports{}, fmt.Errorf("%w, or * for every port", err)
	}
	return ports{list: []uint16{port}}, nil
}

func parseHost(host string) (entry, error) {
	if inside, ok := strings.CutPrefix(host, "["); ok {
		inside, ok = strings.CutSuffix(inside, "]")
		if !ok || !strings.Contains(inside, ":") {
			return entry{}, errors.New("brackets around what is no IPv6 address; use them as in [2001:db8::1]:443")
		}
		host = inside
	}
	if strings.Contains(host, "/") {
		return parsePrefix(host)
	}
	if strings.Contains(host, ":") {
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return entry{}, errors.New("not an IPv6 address; write host:port or [2001:db8::1]:port")
		}
		return addrEntry(addr.Unmap()), nil
	}
	return parseName(host)
}

func addrEntry(addr netip.Addr) entry {
	return entry{prefix: netip.PrefixFrom(addr, addr.BitLen())}
}

func parsePrefix(s string) (entry, error) {
	prefix, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return entry{}, errors.New("not a prefix; write it as in 192.0.2.0/24")
	case prefix.Addr().Is4In6():
		return entry{}, errors.New("IPv4 in IPv6 form; write the IPv4 prefix")
	case prefix.Bits() == 0:
		return entry{}, errors.New("every address is too wide; write the prefixes that are needed")
	case prefix != prefix.Masked():
		return entry{}, fmt.Errorf("address bits behind the prefix; write %s or %s", prefix.Masked(), prefix.Addr())
	}
	return entry{prefix: prefix}, nil
}

func parseName(host string) (entry, error) {
	rest, wildcard := strings.CutPrefix(host, "*.")
	switch {
	case host == "*":
		return entry{star: true}, nil
	case strings.Contains(rest, "*"):
		return entry{}, errors.New("a star stands only for whole labels at the beginning; write *.example.com")
	case strings.HasPrefix(rest, "."):
		return entry{}, errors.New("begins with a dot; write example.com, *.example.com for all below it, or both")
	}
	ascii, err := toASCII(rest)
	if err != nil {
		return entry{}, err
	}
	name, addr, err := canonicalHost(ascii)
	switch {
	case err != nil:
		return entry{}, err
	case addr.IsValid() && wildcard:
		return entry{}, errors.New("an address has nothing below it; write a prefix as in 192.0.2.0/24")
	case addr.IsValid():
		return addrEntry(addr), nil
	case wildcard && !strings.Contains(name, "."):
		return entry{}, fmt.Errorf("every name below the top-level domain %s is too wide; write *.example.%s", name, name)
	}
	return entry{name: name, wildcard: wildcard}, nil
}

// toASCII maps a name in another script to its A-labels. ASCII comes back as it
// is, so that no mapping changes what the reader sees.
//
// A label that maps to plain ASCII is refused: fullwidth digits become
// 127.0.0.1, circled letters and soft hyphens the name of somebody else.
func toASCII(name string) (string, error) {
	if isASCII(name) {
		return name, nil
	}
	// MapForLookup makes the profile strict about '_', so the option that takes
	// it back comes after it.
	profile := idna.New(idna.MapForLookup(), idna.BidiRule(), idna.CheckHyphens(false), idna.StrictDomainName(false))
	unicode := strings.Split(name, ".")
	for i, label := range unicode {
		if isASCII(label) {
			continue
		}
		ascii, err := profile.ToASCII(label)
		if err != nil {
			return "", errors.New("not an internationalized domain name; write its A-label, xn--")
		}
		if !strings.HasPrefix(ascii, "xn--") || strings.Contains(ascii, ".") {
			return "", fmt.Errorf("letters of another script that stand for %s; write that", strconv.Quote(ascii))
		}
		unicode[i] = ascii
	}
	return strings.Join(unicode, "."), nil
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
