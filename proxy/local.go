package proxy

import (
	"net/netip"
	"slices"

	"eggrun/policy"
)

// serveLocal serves a client of a local port: a tunnel to 127.0.0.1 and nothing
// else, which needs no rule for that address.
func (x *exchange) serveLocal(port uint16) {
	x.proto = protoLocal
	x.user(x.in.LocalAddr())
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	x.target = policy.Target{Host: loopback.String(), Addr: loopback, Port: port}
	if refused := x.admit(); refused != nil {
		x.voice = voiceReset // as if nobody listened
		x.refuse(refused)
		return
	}
	x.route = route{found: true, addrs: []netip.Addr{loopback}}
	x.tunnel()
}

// decideLocal decides a local port.
func decideLocal(p *policy.Policy, port uint16) policy.Decision {
	if p == nil || !slices.Contains(p.LocalPorts, port) {
		return policy.Decision{Reason: policy.ReasonPortNotListed}
	}
	return policy.Decision{Allow: true, Reason: policy.ReasonAllowed, Rule: "local-ports"}
}
