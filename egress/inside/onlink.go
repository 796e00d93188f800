package inside

import (
	"fmt"
	"net/netip"
	"slices"

	"eggrun/policy"
	"eggrun/sandbox"
)

// Range is the addresses from First to Last, both of one family.
type Range struct {
	First netip.Addr `json:"first"`
	Last  netip.Addr `json:"last"`
}

// Contains tells whether a is one of them.
func (r Range) Contains(a netip.Addr) bool {
	return a.BitLen() == r.First.BitLen() && !a.Less(r.First) && !r.Last.Less(a)
}

func rangeOf(p netip.Prefix) Range {
	p = p.Masked()
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < p.Addr().BitLen(); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return Range{p.Addr(), last}
}

// merge returns the same addresses in ascending ranges that don't touch.
func merge(ranges []Range) (merged []Range) {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b Range) int { return a.First.Compare(b.First) })
	for _, r := range ranges {
		if n := len(merged) - 1; n >= 0 && merged[n].First.BitLen() == r.First.BitLen() &&
			(!merged[n].Last.Less(r.First) || merged[n].Last.Next() == r.First) {
			if merged[n].Last.Less(r.Last) {
				merged[n].Last = r.Last
			}
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// without returns ranges less all of what.
func without(ranges []Range, what Range) (rest []Range) {
	for _, r := range ranges {
		if r.Last.Less(what.First) || what.Last.Less(r.First) {
			rest = append(rest, r)
			continue
		}
		if r.First.Less(what.First) {
			rest = append(rest, Range{r.First, what.First.Prev()})
		}
		if what.Last.Less(r.Last) {
			rest = append(rest, Range{what.Last.Next(), r.Last})
		}
	}
	return rest
}

// only are the ranges of a family, told by an address.
func only(ranges []Range, isFamily func(netip.Addr) bool) (some []Range) {
	for _, r := range ranges {
		if isFamily(r.First) {
			some = append(some, r)
		}
	}
	return some
}

// never are addresses that are no neighbour's, whoever gave them out: they mean
// the host, the cloud's metadata service, or everybody.
var never = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), loopback4, policy.FakeRange,
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
func neighbourRanges(networks []netip.Prefix, host []netip.Addr) []Range {
	var ranges []Range
	for _, n := range networks {
		ranges = append(ranges, rangeOf(n))
	}
	ranges = merge(ranges)
	for _, n := range networks {
		r := rangeOf(n)
		for _, a := range []netip.Addr{r.First, r.First.Next(), r.Last} {
			if a.IsValid() {
				ranges = without(ranges, Range{a, a})
			}
		}
	}
	for _, a := range host {
		a = a.Unmap().WithZone("")
		ranges = without(ranges, Range{a, a})
	}
	for _, p := range never {
		ranges = without(ranges, rangeOf(p))
	}
	return ranges
}

// named are the ranges of prefixes that somebody wrote out, literally, but for
// those that never leave a host.
func named(prefixes []netip.Prefix) []Range {
	var ranges []Range
	for _, p := range prefixes {
		ranges = append(ranges, rangeOf(p))
	}
	for _, p := range []netip.Prefix{loopback4, policy.FakeRange, netip.PrefixFrom(loopback6, 128)} {
		ranges = without(ranges, rangeOf(p))
	}
	return ranges
}
