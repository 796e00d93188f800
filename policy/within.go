package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Exceeds lists what p allows and limit does not, and what limit forbids and p
// does not; nothing when p is within limit. What only says how a container is
// told of its wall (proxy-env, transparent, on-proxy-exit, sockets) is free. A
// nil limit allows everything.
//
// An allowlist is a set of pairs of host and port, and within another one when
// for each of its entries and each port of it one entry of the other with that
// port covers it. A name covers itself, *.x all that is below x, * every public
// name, a prefix the addresses in it; names and addresses never cover each other,
// but localhost is its two addresses too. !tcp is only covered by !tcp, or
// by sni = "off" on ports where that is all it does. An address that only a rule of its own range
// opens (see [VetAddr]) is not covered by a wider one.
func (p *Policy) Exceeds(limit *Policy) []string {
	var excess excesses
	if limit == nil {
		return nil
	}
	for _, path := range limit.Deny {
		excess.unless(slices.Contains(p.Deny, path), "no deny of "+quoted(path))
	}
	for _, path := range limit.DenyWrite {
		excess.unless(slices.Contains(p.DenyWrite, path) || slices.Contains(p.Deny, path), "no deny-write of "+quoted(path))
	}
	if limit.Wall() == nil {
		return excess
	}
	if p.Wall() == nil {
		return append(excess, "network full")
	}
	for _, entry := range p.Allowlist.exceeds(limit.Allowlist, limit.SNI == SNIOff) {
		excess = append(excess, "domains "+entry)
	}
	excess.ports(keyLocalPorts, p.LocalPorts, limit.LocalPorts)
	excess.peers(p, limit)
	excess.inbound(p.Inbound, limit.Inbound)
	for _, path := range p.AllowSockets {
		excess.unless(slices.Contains(limit.AllowSockets, path), "allow-sockets "+quoted(path))
	}
	excess.unless(!p.AllowFDs || limit.AllowFDs, "allow-fds on")
	excess.unless(p.SNI.rank() <= limit.SNI.rank(), "sni "+string(p.SNI))
	excess.unless(!p.Observe || limit.Observe, "mode observe")
	return excess
}

// rank orders the values by how little they demand.
func (s SNI) rank() int { return slices.Index([]SNI{SNIMatch, SNIAllowlisted, SNIOff}, s) }

// excesses collects what a policy has too much.
type excesses []string

func (e *excesses) unless(ok bool, what string) {
	if !ok {
		*e = append(*e, what)
	}
}

func (e *excesses) ports(key string, ports, limit []uint16) {
	for _, port := range ports {
		e.unless(slices.Contains(limit, port), fmt.Sprintf("%s %d", key, port))
	}
}

func (e *excesses) peers(p, limit *Policy) {
	e.unless(!p.Peers.OnLink || limit.Peers.OnLink, "peers on-link")
	for _, prefix := range p.Peers.Prefixes {
		e.unless(slices.ContainsFunc(limit.Peers.Prefixes, func(l netip.Prefix) bool { return holds(l, prefix) }), "peers "+prefix.String())
	}
	for _, name := range p.PeerNames {
		e.unless(slices.Contains(limit.PeerNames, name), "peer-names "+name)
	}
}

func (e *excesses) inbound(in, limit Inbound) {
	if limit.All {
		return
	}
	e.unless(!in.All, "inbound all")
	e.unless(!in.OnLink || limit.OnLink, "inbound on-link")
	e.ports("inbound", in.Ports, limit.Ports)
}

// holds reports whether every address of b is one of a.
func holds(a, b netip.Prefix) bool { return a.Bits() <= b.Bits() && a.Contains(b.Addr()) }

// exceeds returns what of a is not within limit: entries as they were written,
// with the port where others of it are covered. opaque says that limit lets
// everything pass unseen.
func (a *Allowlist) exceeds(limit *Allowlist, opaque bool) []string {
	var excess []string
	for _, e := range a.entries {
		var lacking []string
		for _, port := range e.ports.each() {
			if !slices.ContainsFunc(limit.entries, func(l entry) bool { return l.covers(e, port, opaque) }) {
				lacking = append(lacking, portText(port))
			}
		}
		switch {
		case len(lacking) == 0:
		case len(lacking) == len(e.ports.each()):
			excess = append(excess, clip(e.text))
		default:
			excess = append(excess, clip(e.text)+" on port "+strings.Join(lacking, " "))
		}
	}
	return excess
}

// everyPort stands for :*, which only :* covers. It is no port.
const everyPort = 0

func (p ports) each() []uint16 {
	if p.any {
		return []uint16{everyPort}
	}
	return p.list
}

func portText(port uint16) string {
	if port == everyPort {
		return "*"
	}
	return strconv.Itoa(int(port))
}

// covers reports whether e allows all that r allows on port.
func (e entry) covers(r entry, port uint16, opaque bool) bool {
	if !e.ports.any && !slices.Contains(e.ports.list, port) {
		return false
	}
	// On port 80 !tcp also does without the look at each request.
	if r.opaque && !e.opaque && (!opaque || port == 80 || port == everyPort) {
		return false
	}
	switch {
	case e.isLocalhost() && r.prefix.IsValid():
		return slices.Contains(LoopbackAddrs(), r.prefix.Addr()) && r.prefix.IsSingleIP()
	case e.prefix.IsValid() || r.prefix.IsValid():
		return e.prefix.IsValid() && r.prefix.IsValid() && holds(e.prefix, r.prefix) && opens(e.prefix, r.prefix)
	case e.star:
		return r.star || isPublicName(r.name)
	case e.wildcard:
		return r.name != "" && (r.wildcard && r.name == e.name || strings.HasSuffix(r.name, "."+e.name))
	}
	return !r.star && !r.wildcard && r.name == e.name
}

func (e entry) isLocalhost() bool { return e.name == localhost && !e.wildcard }

// opens reports whether a opens what b opens of the special ranges, b being part
// of a: a rule opens only the ranges that it lies in.
func opens(a, b netip.Prefix) bool {
	lost := func(row netip.Prefix) bool { return holds(row, b) && !holds(row, a) }
	return !lost(nat64) && !slices.ContainsFunc(specials(), func(row special) bool { return lost(row.prefix) })
}

// namesAddr reports whether a rule names addr and nothing else.
func (a *Allowlist) namesAddr(addr netip.Addr) bool {
	return slices.ContainsFunc(a.addrs, func(r addrRule) bool { return r.prefix.IsSingleIP() && r.prefix.Addr() == addr })
}
