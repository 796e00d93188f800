package inside

import (
	"fmt"
	"net/netip"
	"slices"

	"eggrun/sandbox"
)

// addrRange is the addresses from first to last, both of one family.
type addrRange struct{ first, last netip.Addr }

func rangeOf(p netip.Prefix) addrRange {
	p = p.Masked()
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < p.Addr().BitLen(); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return addrRange{p.Addr(), last}
}

// merge returns the same addresses in ascending ranges that don't touch.
func merge(ranges []addrRange) (merged []addrRange) {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b addrRange) int { return a.first.Compare(b.first) })
	for _, r := range ranges {
		if n := len(merged) - 1; n >= 0 && merged[n].first.BitLen() == r.first.BitLen() &&
			(!merged[n].last.Less(r.first) || merged[n].last.Next() == r.first) {
			if merged[n].last.Less(r.last) {
				merged[n].last = r.last
			}
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// without returns ranges less all of what.
func without(ranges []addrRange, what addrRange) (rest []addrRange) {
	for _, r := range ranges {
		if r.last.Less(what.first) || what.last.Less(r.first) {
			rest = append(rest, r)
			continue
		}
		if r.first.Less(what.first) {
			rest = append(rest, addrRange{r.first, what.first.Prev()})
		}
		if what.last.Less(r.last) {
			rest = append(rest, addrRange{what.last.Next(), r.last})
		}
	}
	return rest
}

// only are the ranges of a family, told by an address.
func only(ranges []addrRange, isFamily func(netip.Addr) bool) (some []addrRange) {
	for _, r := range ranges {
		if isFamily(r.first) {
			some = append(some, r)
		}
	}
	return some
}

// never are addresses that are no neighbour's, whoever gave them out: they mean
// the host, the cloud's metadata service, or everybody.
var never = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), loopback4, FakeRange,
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::/96"), linkLocal6, netip.MustParsePrefix("ff00::/8"),
}

// Longer prefixes than these are a container's network; shorter ones are half
// of somebody's world.
const minBits4, minBits6 = 12, 48

// subnets are the networks that a container's own interfaces are on. Only those
// of veth interfaces count: by a macvlan or a tap the neighbours are the host's,
// or a LAN.
func subnets(links []link) (networks []netip.Prefix, err error) {
	for _, l := range links {
		if l.kind != "veth" {
			continue
		}
		for _, p := range l.prefixes {
			if p.Addr().IsLinkLocalUnicast() || !p.Addr().IsGlobalUnicast() {
				continue
			}
			if p.Bits() < minBits4 || p.Addr().Is6() && p.Bits() < minBits6 {
				return nil, &sandbox.EnforcementError{
					Gaps:     []string{fmt.Sprintf("peers: the network %s of interface %s is too large to be one of containers", p.Masked(), l.name)},
					Platform: "name the networks in eggrun.peers instead of on-link",
				}
			}
			networks = append(networks, p.Masked())
		}
	}
	return networks, nil
}

// neighbourRanges are the addresses of the networks that are not the host's: without
// those of host, and without each network's own address, its first host's, which
// is a gateway even where no route says so, and its broadcast.
func neighbourRanges(networks []netip.Prefix, host []netip.Addr) []addrRange {
	var ranges []addrRange
	for _, n := range networks {
		ranges = append(ranges, rangeOf(n))
	}
	ranges = merge(ranges)
	for _, n := range networks {
		r := rangeOf(n)
		for _, a := range []netip.Addr{r.first, r.first.Next(), r.last} {
			if a.IsValid() {
				ranges = without(ranges, addrRange{a, a})
			}
		}
	}
	for _, a := range host {
		a = a.Unmap().WithZone("")
		ranges = without(ranges, addrRange{a, a})
	}
	for _, p := range never {
		ranges = without(ranges, rangeOf(p))
	}
	return ranges
}

// named are the ranges of prefixes that somebody wrote out, literally, but for
// those that never leave a host.
func named(prefixes []netip.Prefix) []addrRange {
	var ranges []addrRange
	for _, p := range prefixes {
		ranges = append(ranges, rangeOf(p))
	}
	for _, p := range []netip.Prefix{loopback4, FakeRange, netip.PrefixFrom(loopback6, 128)} {
		ranges = without(ranges, rangeOf(p))
	}
	return ranges
}
