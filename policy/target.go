package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// maxAuthority is longer than any authority that can be accepted: a name, the
// dot at its end, a colon and five digits.
const maxAuthority = maxName + 7

// Target is where a client wants to go, in the one form in which targets are
// compared. The zero Target is no target: nothing allows it.
type Target struct {
	// Host is the name in lower case, without a dot at its end, or Addr in text.
	Host string
	// Addr is the address when the client gave one instead of a name. An
	// IPv4-mapped IPv6 address has been unmapped.
	Addr netip.Addr
	// Port is the TCP port, never 0.
	Port uint16
}

// String returns t as an authority. [ParseTarget] gives t back for it.
func (t Target) String() string {
	if t.Addr.IsValid() {
		return netip.AddrPortFrom(t.Addr, t.Port).String()
	}
	return fmt.Sprintf("%s:%d", t.Host, t.Port)
}

// ParseTarget parses the authority of a CONNECT request: host:port, 1.2.3.4:port
// or [IPv6]:port, and nothing more. It is stricter than RFC 3986 on purpose, so
// that what is decided is what is dialled: no missing port, no user information,
// no percent encoding, no bytes but letters, digits, dot, hyphen and underscore,
// no address in a form that only some resolvers understand.
func ParseTarget(authority string) (Target, error) {
	t, err := parseTarget(authority)
	if err != nil {
		return Target{}, fmt.Errorf("target %q: %w", clip(authority), err)
	}
	return t, nil
}

func parseTarget(authority string) (Target, error) {
	if len(authority) > maxAuthority {
		return Target{}, fmt.Errorf("authority of %d bytes; names have at most %d", len(authority), maxName)
	}
	if strings.HasPrefix(authority, "[") {
		return parseBracketed(authority)
	}
	// A name has no colon, so the first one begins the port; whatever follows a
	// second one is not a number.
	host, portText, ok := strings.Cut(authority, ":")
	if strings.Contains(portText, ":") {
		return Target{}, errors.New("more than one colon; write [IPv6]:port or host:port")
	}
	if !ok {
		return Target{}, errors.New("no port; write host:port")
	}
	name, addr, err := canonicalHost(host)
	if err != nil {
		return Target{}, err
	}
	port, err := parsePort(portText)
	if err != nil {
		return Target{}, err
	}
	return Target{Host: name, Addr: addr, Port: port}, nil
}

func parseBracketed(authority string) (Target, error) {
	inside, rest, ok := strings.Cut(authority[1:], "]")
	if !ok {
		return Target{}, errors.New("bracket not closed; write [IPv6]:port")
	}
	addr, err := parseIPv6(inside)
	if err != nil {
		return Target{}, err
	}
	portText, ok := strings.CutPrefix(rest, ":")
	if !ok {
		return Target{}, errors.New("no port after the bracket; write [IPv6]:port")
	}
	port, err := parsePort(portText)
	if err != nil {
		return Target{}, err
	}
	return Target{Host: addr.String(), Addr: addr, Port: port}, nil
}

// clip keeps a hostile string from filling a log line.
func clip(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
