package sandbox

import (
	"net/netip"
	"strconv"
	"strings"
)

// NetworkNeed is how much network access a program needs. The values are
// ordered: each one includes those below it.
type NetworkNeed int

const (
	// NetworkNone is no network at all.
	NetworkNone NetworkNeed = iota
	// NetworkLocal is the loopback addresses only, for a model server beside the
	// program.
	NetworkLocal
	// NetworkHTTPS is the listed domains only.
	NetworkHTTPS
	// NetworkFull is no restriction.
	NetworkFull
)

// String returns none, local, https or full, and unknown for any other value.
func (n NetworkNeed) String() string {
	switch n {
	case NetworkNone:
		return "none"
	case NetworkLocal:
		return "local"
	case NetworkHTTPS:
		return "https"
	case NetworkFull:
		return "full"
	}
	return "unknown"
}

// NetworkNeedFromDomains returns the least network that covers every entry of
// domains: [NetworkNone] for an empty list, [NetworkFull] when one entry is "*",
// [NetworkLocal] when every entry is localhost, 127.0.0.1 or ::1, and
// [NetworkHTTPS] for everything else.
//
// Entries are compared after trimming white space, lower-casing and stripping
// one trailing dot; a port and the brackets of an IPv6 address do not count, so
// that localhost:11434 and [::1]:11434 are local. An entry that is empty after
// trimming names nothing and is skipped: a list of such entries needs no
// network. The syntax is not checked here; policy.ParseAllowlist does that.
func NetworkNeedFromDomains(domains []string) NetworkNeed {
	need := NetworkNone
	for _, entry := range domains {
		need = max(need, entryNeed(strings.ToLower(strings.TrimSpace(entry))))
	}
	return need
}

// entryNeed is NetworkNeedFromDomains for one trimmed, lower-case entry.
func entryNeed(entry string) NetworkNeed {
	if entry == "" {
		return NetworkNone
	}
	if entry == "*" {
		return NetworkFull
	}
	host := strings.TrimSuffix(hostOf(entry), ".")
	if host == "localhost" {
		return NetworkLocal
	}
	addr, err := netip.ParseAddr(host)
	if err == nil && isLocal(addr.Unmap()) {
		return NetworkLocal
	}
	return NetworkHTTPS
}

// isLocal reports whether addr is one of the two loopback addresses that the
// table names. The rest of 127.0.0.0/8 is not: nothing listens there by habit.
func isLocal(addr netip.Addr) bool {
	return addr == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || addr == netip.IPv6Loopback()
}

// hostOf returns entry without a port that ends it and without the brackets of
// an IPv6 address. What has no such form is returned as it is.
func hostOf(entry string) string {
	if rest, ok := strings.CutPrefix(entry, "["); ok {
		host, port, ok := strings.Cut(rest, "]")
		if ok && (port == "" || port[0] == ':' && isPort(port[1:])) {
			return host
		}
		return entry
	}
	host, port, ok := strings.Cut(entry, ":")
	if ok && isPort(port) {
		return host
	}
	return entry
}

// isPort reports whether s is the port of an entry: a number or "*".
func isPort(s string) bool {
	if s == "*" {
		return true
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && s[0] != '0'
}
