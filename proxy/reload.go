package proxy

import (
	"errors"
	"net/netip"

	"eggrun/policy"
)

var errRevoked = errors.New("no longer allowed")

// place is what a request that is being served holds on to.
type place struct {
	target policy.Target
	addr   netip.Addr   // that was dialled; not valid before, and behind a proxy
	own    []netip.Addr // of the machine, at that time
	local  bool         // a local port
}

// allowedBy reports whether a policy would let the request go on.
func (l place) allowedBy(now *policy.Policy) bool {
	if l.local {
		return decideLocal(now, l.target.Port).Allow
	}
	return now.Decide(l.target).Allow && (!l.addr.IsValid() || now.VetAddr(l.target, l.addr, l.own...).Allow)
}

// SetPolicy replaces the policy, at once for every decision that is made from
// now on, and closes the tunnels whose target or whose dialled address it no
// longer allows. nil denies everything.
func (p *DomainProxy) SetPolicy(now *policy.Policy) {
	p.policy.Store(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	for x, l := range p.live {
		if !l.allowedBy(now) {
			x.cancel(errRevoked)
		}
	}
}

// settle notes the address that was dialled. A policy that came since the
// decision has not seen it, so it is asked here.
func (x *exchange) settle(addr netip.Addr) {
	x.p.mu.Lock()
	defer x.p.mu.Unlock()
	l := place{x.target, addr, x.route.own, x.proto == protoLocal}
	x.p.live[x] = l
	if now := x.p.policy.Load(); now != x.policy && !l.allowedBy(now) {
		x.cancel(errRevoked)
	}
}
