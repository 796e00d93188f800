package policy

import (
	"net/netip"
	"slices"
	"sync"
)

// special is one range that no name may lead to unless a rule names the address.
type special struct {
	prefix netip.Prefix
	what   string
}

func (s special) String() string { return s.prefix.String() + " " + s.what }

// specials returns the ranges that are not ordinary public unicast, narrower
// ones before those that hold them: the IANA special-purpose registries (RFC
// 6890 and its updates) as of 2026, the multicast and reserved space, and what
// has no registry but reaches the machine or the cloud below it. netip's and
// net's IsPrivate and IsGlobalUnicast know less than half of it.
//
// 6to4, Teredo and IPv4-compatible addresses carry an IPv4 address, but their
// relays are gone, so they are refused whatever they carry. NAT64 is alive, and
// its addresses are judged by what they carry.
var specials = sync.OnceValue(func() []special {
	return []special{
		{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
		{netip.MustParsePrefix("10.0.0.0/8"), "private use"},
		{netip.MustParsePrefix("100.64.0.0/10"), "shared address space (CGNAT)"},
		{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
		{netip.MustParsePrefix("168.63.129.16/32"), "Azure platform service"},
		{netip.MustParsePrefix("169.254.0.0/16"), "link-local and cloud metadata"},
		{netip.MustParsePrefix("172.16.0.0/12"), "private use"},
		{netip.MustParsePrefix("192.0.0.0/24"), "IETF protocol assignments"},
		{netip.MustParsePrefix("192.0.2.0/24"), "documentation"},
		{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relay anycast"},
		{netip.MustParsePrefix("192.168.0.0/16"), "private use"},
		{netip.MustParsePrefix("198.18.0.0/15"), "benchmarking"},
		{netip.MustParsePrefix("198.51.100.0/24"), "documentation"},
		{netip.MustParsePrefix("203.0.113.0/24"), "documentation"},
		{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
		{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
		{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},

		{netip.MustParsePrefix("::/128"), "unspecified"},
		{netip.MustParsePrefix("::1/128"), "loopback"},
		{netip.MustParsePrefix("::/96"), "IPv4-compatible"},
		{netip.MustParsePrefix("::ffff:0:0:0/96"), "IPv4-translated"},
		{netip.MustParsePrefix("64:ff9b:1::/48"), "local-use NAT64"},
		{netip.MustParsePrefix("100::/64"), "discard-only"},
		{netip.MustParsePrefix("100:0:0:1::/64"), "dummy prefix"},
		{netip.MustParsePrefix("2001::/32"), "Teredo"},
		{netip.MustParsePrefix("2001:2::/48"), "benchmarking"},
		{netip.MustParsePrefix("2001:10::/28"), "ORCHID"},
		{netip.MustParsePrefix("2001:20::/28"), "ORCHIDv2"},
		{netip.MustParsePrefix("2001::/23"), "IETF protocol assignments"},
		{netip.MustParsePrefix("2001:db8::/32"), "documentation"},
		{netip.MustParsePrefix("2002::/16"), "6to4"},
		{netip.MustParsePrefix("3fff::/20"), "documentation"},
		{netip.MustParsePrefix("5f00::/16"), "segment routing"},
		{netip.MustParsePrefix("fc00::/7"), "unique local"},
		{netip.MustParsePrefix("fe80::/10"), "link-local"},
		{netip.MustParsePrefix("fec0::/10"), "site-local"},
		{netip.MustParsePrefix("ff00::/8"), "multicast"},
		// IANA has given out global unicast from 2000::/3 alone.
		{netip.MustParsePrefix("::/3"), "not global unicast"},
		{netip.MustParsePrefix("4000::/2"), "not global unicast"},
		{netip.MustParsePrefix("8000::/1"), "not global unicast"},
	}
})

// nat64 is the well-known prefix of RFC 6052 section 2.1. The last four bytes of
// its addresses are the IPv4 address that a gateway dials.
var nat64 = netip.PrefixFrom(netip.AddrFrom16([16]byte{1: 0x64, 2: 0xff, 3: 0x9b}), 96)

// VetAddr says whether a connection to addr may be dialled after a name that is
// allowed has resolved to it. own lists the addresses of the machine that dials.
//
// Public addresses are allowed. Those of a special range and those of own are
// allowed only when an address rule names them with this port and lies within
// that range: 10.0.0.0/8 opens private addresses, 8.0.0.0/5 does not open them
// by the way, and only the exact address opens one of own. A NAT64 address is
// as special as the IPv4 address that it carries. An address with a zone is
// never allowed, and a nil Allowlist allows nothing.
func VetAddr(a *Allowlist, addr netip.Addr, port uint16, own ...netip.Addr) Decision {
	addr = addr.Unmap()
	if a == nil || port == 0 || !addr.IsValid() || addr.Zone() != "" {
		return Decision{Reason: ReasonNotPublic}
	}
	if row, ok := specialRow(addr, own); ok {
		return a.vetSpecial(addr, port, row)
	}
	return Decision{Allow: true, Reason: ReasonAllowed}
}

// specialRow returns the range that makes addr special.
func specialRow(addr netip.Addr, own []netip.Addr) (special, bool) {
	carried := carriedIPv4(addr)
	if isOwn(addr, own) || isOwn(carried, own) {
		return ownAddress(addr), true
	}
	if carried != addr {
		row, ok := specialRow(carried, own)
		return special{nat64, "NAT64 of " + row.String()}, ok
	}
	for _, row := range specials() {
		if row.prefix.Contains(addr) {
			return row, true
		}
	}
	return special{}, false
}

// carriedIPv4 returns the IPv4 address inside of a NAT64 address, and every other
// address as it is.
func carriedIPv4(addr netip.Addr) netip.Addr {
	if !nat64.Contains(addr) {
		return addr
	}
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// isOwn reports whether addr is one of own. Loopback always is, but the table's
// wider row keeps 127.0.0.0/8 a usable rule.
func isOwn(addr netip.Addr, own []netip.Addr) bool {
	return !addr.IsLoopback() && slices.ContainsFunc(own, func(o netip.Addr) bool { return o.WithZone("").Unmap() == addr })
}

func ownAddress(addr netip.Addr) special {
	return special{netip.PrefixFrom(addr, addr.BitLen()), "own address of the host"}
}

// vetSpecial looks for a rule that names addr and lies within row.
func (a *Allowlist) vetSpecial(addr netip.Addr, port uint16, row special) Decision {
	for _, r := range a.addrs {
		if r.prefix.Bits() >= row.prefix.Bits() && r.prefix.Contains(addr) && r.ports.contains(port) {
			return Decision{Allow: true, Reason: ReasonAllowed, Rule: r.text}
		}
	}
	return Decision{Reason: ReasonNotPublic, Rule: row.String()}
}
