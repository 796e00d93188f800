package inside

import "net/netip"

// Range is the addresses from First to Last, both of one family.
type Range struct {
	First netip.Addr `json:"first"`
	Last  netip.Addr `json:"last"`
}

// Contains tells whether a is one of them.
func (r Range) Contains(a netip.Addr) bool {
	return a.BitLen() == r.First.BitLen() && !a.Less(r.First) && !r.Last.Less(a)
}

// PeerRanges returns what the calling thread's network namespace reaches
// directly: what [Recheck] puts into the table at start.
func PeerRanges(w *Wall) ([]Range, error) {
	peers, _, err := w.onLink()
	var ranges []Range
	for _, p := range peers {
		ranges = append(ranges, Range{p.first, p.last})
	}
	return ranges, err
}
