package policy

import (
	"net/netip"
	"slices"
	"strings"
)

// Reason is a stable code for why something was allowed or refused. Programs
// may compare it; the words for a user are made elsewhere.
type Reason string

const (
	// ReasonAllowed: a rule names the target, or the address is public.
	ReasonAllowed Reason = "allowed"
	// ReasonNotListed: no rule names the host.
	ReasonNotListed Reason = "not_listed"
	// ReasonPortNotListed: rules name the host, none of them with this port.
	ReasonPortNotListed Reason = "port_not_listed"
	// ReasonNotPublic: the address is of a special range, and no address rule
	// names it.
	ReasonNotPublic Reason = "not_public"
)

// Decision is the verdict on one target or address.
type Decision struct {
	// Allow is the verdict. The zero Decision refuses.
	Allow bool
	// Reason is the code for it.
	Reason Reason
	// Rule is what decided: the entry of the allowlist as it was written, or the
	// row of the table of special addresses. Empty when nothing matched.
	Rule string
	// Opaque says that the rule expects no TLS (!tcp): bytes pass unseen.
	Opaque bool
	// WouldDeny is set when only observing let the target pass.
	WouldDeny bool
}

// ports is the set of ports of one rule.
type ports struct {
	any  bool
	list []uint16
}

func (p ports) contains(port uint16) bool {
	return port != 0 && (p.any || slices.Contains(p.list, port))
}

// rule is one entry of an allowlist.
type rule struct {
	text   string
	ports  ports
	opaque bool // !tcp
}

// addrRule is an entry that names an address or a prefix.
type addrRule struct {
	rule
	prefix netip.Prefix
}

// Allowlist is a parsed list of what may be reached. It is immutable, so any
// number of goroutines may use it. A nil Allowlist denies everything.
type Allowlist struct {
	exact map[string][]rule // by name
	below map[string][]rule // *.x by x
	star  []rule            // *
	addrs []addrRule
	// entries are all of them in the order in which they were written.
	entries []entry
}

// ParseAllowlist parses a list of entries. An empty list is an allowlist that
// allows nothing; one bad entry fails the whole list.
//
// An entry is one of
//
//	x           the name x
//	*.x         every name below x, at any depth, but not x
//	*           every public name; no address, and no name that only the host
//	            or a local network knows
//	1.2.3.4     an address, IPv4 or IPv6
//	10.0.0.0/8  every address of a prefix
//
// each with an optional :PORT or :* for every port, and after that an optional
// !tcp where no TLS is to be expected. IPv6 takes brackets before a port:
// [2001:db8::1]:443, [2001:db8::/32]:443. Without a port an entry means 80 and
// 443. Names are lower-cased, one dot at the end is stripped, and other
// scripts are mapped to their A-labels (UTS 46). The entry localhost also names
// the addresses 127.0.0.1 and ::1 for its ports; it is the only name that stands
// for a special address.
//
// Everything else is refused with what to write instead, because a reader
// guesses its meaning wrong: ".x", "*x", "a.*.b", URLs, 127.1. Groups (@name) are
// known only to [Resolve], which replaces them by their entries.
func ParseAllowlist(domains []string) (*Allowlist, error) {
	a := newAllowlist()
	for _, text := range domains {
		e, err := parseEntry(text)
		if err != nil {
			return nil, err
		}
		a.add(e)
	}
	return a, nil
}

func newAllowlist() *Allowlist {
	return &Allowlist{exact: make(map[string][]rule), below: make(map[string][]rule)}
}

func (a *Allowlist) add(e entry) {
	a.entries = append(a.entries, e)
	switch {
	case e.star:
		a.star = append(a.star, e.rule)
	case e.prefix.IsValid():
		a.addrs = append(a.addrs, addrRule{e.rule, e.prefix})
	case e.wildcard:
		a.below[e.name] = append(a.below[e.name], e.rule)
	default:
		a.exact[e.name] = append(a.exact[e.name], e.rule)
	}
	if e.name == localhost && !e.wildcard {
		for _, addr := range LoopbackAddrs() {
			a.addrs = append(a.addrs, addrRule{e.rule, netip.PrefixFrom(addr, addr.BitLen())})
		}
	}
}

const localhost = "localhost"

// LoopbackAddrs returns the addresses that the name localhost stands for (RFC
// 6761 section 6.3). It needs no resolver, so none can give it another address.
func LoopbackAddrs() []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}

// Decide says whether t may be reached. A name is compared label by label with
// the rules for names, an address only with the rules for addresses, so no name
// is resolved to find the verdict: what is denied is asked of nobody.
//
// A name that is allowed may still resolve to an address that is not; that is
// for [VetAddr].
func (a *Allowlist) Decide(t Target) Decision { return a.decide(t, isPublicName) }

// decide is Decide with what counts as a public name.
func (a *Allowlist) decide(t Target, public func(name string) bool) Decision {
	if a == nil {
		return Decision{Reason: ReasonNotListed}
	}
	if t.Addr.IsValid() {
		return a.decideAddr(t.Addr.Unmap(), t.Port)
	}
	// Targets from ParseTarget are canonical. One made by hand may not be, and
	// "a..x" must not match "*.x".
	if !isCanonicalName(t.Host) {
		return Decision{Reason: ReasonNotListed}
	}
	var v verdict
	v.consider(a.exact[t.Host], t.Port)
	for _, parent, ok := strings.Cut(t.Host, "."); ok; _, parent, ok = strings.Cut(parent, ".") {
		v.consider(a.below[parent], t.Port)
	}
	if len(a.star) > 0 && public(t.Host) {
		v.consider(a.star, t.Port)
	}
	return v.decision()
}

func (a *Allowlist) decideAddr(addr netip.Addr, port uint16) Decision {
	var v verdict
	for _, r := range a.addrs {
		if r.prefix.Contains(addr) {
			v.consider([]rule{r.rule}, port)
		}
	}
	return v.decision()
}

// verdict collects the rules that name a host, the closest first. Of those that
// allow the port one with !tcp comes first: who wrote it knows what is spoken
// there.
type verdict struct {
	allowed, named *rule
}

func (v *verdict) consider(rules []rule, port uint16) {
	for i := range rules {
		if v.named == nil {
			v.named = &rules[i]
		}
		if rules[i].ports.contains(port) && (v.allowed == nil || rules[i].opaque && !v.allowed.opaque) {
			v.allowed = &rules[i]
		}
	}
}

func (v *verdict) decision() Decision {
	switch {
	case v.allowed != nil:
		return Decision{Allow: true, Reason: ReasonAllowed, Rule: v.allowed.text, Opaque: v.allowed.opaque}
	case v.named != nil:
		return Decision{Reason: ReasonPortNotListed, Rule: v.named.text}
	}
	return Decision{Reason: ReasonNotListed}
}
