package inside

import (
	"net/netip"

	"eggrun/policy"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

var (
	loopback4  = netip.MustParsePrefix("127.0.0.0/8")
	loopback6  = netip.MustParseAddr("::1")
	linkLocal6 = netip.MustParsePrefix("fe80::/10")
	// dockerResolver is where docker's containers ask; docker itself listens on
	// some other port of it and redirects there.
	dockerResolver = netip.MustParseAddr("127.0.0.11")
)

// protocols are those that have ports.
var protocols = []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP}

// chain is a base chain with its rules, in order.
type chain struct {
	name     string
	kind     nftables.ChainType
	hook     *nftables.ChainHook
	priority nftables.ChainPriority
	policy   nftables.ChainPolicy
	rules    []match
}

// sets are the named sets of the table: who is reached directly, and who may
// connect to what, where that is not everybody to everything.
type sets struct{ peers4, peers6, inbound4, inbound6, ports *nftables.Set }

// chains are the whole wall. No rule names an interface but lo, so it holds for
// those that come later too.
func (w *Wall) chains(s *sets) []chain {
	return []chain{
		// Before docker's own redirects of its resolver, which have -100.
		{"redirect", nftables.ChainTypeNAT, nftables.ChainHookOutput, -101, nftables.ChainPolicyAccept, w.redirects(s)},
		{"refuse", nftables.ChainTypeFilter, nftables.ChainHookOutput, 0, nftables.ChainPolicyAccept, w.refusals(s)},
		// The verdict is taken where the outgoing interface is final: in the
		// output hook a redirected packet of a socket that is bound to an
		// interface still shows that one, and leaves by it.
		{"leave", nftables.ChainTypeFilter, nftables.ChainHookPostrouting, 300, nftables.ChainPolicyDrop, w.departures(s)},
		{"pass", nftables.ChainTypeFilter, nftables.ChainHookForward, 0, nftables.ChainPolicyDrop, nil},
		{"enter", nftables.ChainTypeFilter, nftables.ChainHookInput, 0, inboundPolicy(w.Inbound), w.arrivals(s)},
	}
}

// redirects are the ways to the sidecar.
func (w *Wall) redirects(s *sets) (rules []match) {
	rules = append(rules, rule(marked(), accept()))
	for _, p := range protocols {
		// Whatever the port: docker's resolver would answer on its own.
		rules = append(rules, rule(to.is(dockerResolver), protocol(p), redirect(ResolverPort)))
	}
	for _, p := range protocols {
		ask := rule(protocol(p), port(dnsPort))
		rules = append(rules,
			rule(to.in(policy.FakeRange), ask, redirect(ResolverPort)),
			// A container may serve names on an address of its own.
			rule(ask, to.local(expr.CmpOpNeq), redirect(ResolverPort)))
	}
	if !w.Transparent {
		return rules
	}
	tcp := protocol(unix.IPPROTO_TCP)
	return append(rules,
		// A socket that is bound to its interface would go on sending there.
		rule(to.in(linkLocal6), accept()),
		rule(to.in(policy.FakeRange), tcp, redirect(TransparentPort)),
		rule(to.inSet(s.peers4, true), tcp, to.local(expr.CmpOpNeq), redirect(TransparentPort)),
		rule(to.inSet(s.peers6, true), tcp, to.local(expr.CmpOpNeq), redirect(TransparentPort)))
}

// refusals answer at once what would be dropped later. What was redirected is
// local here.
func (w *Wall) refusals(s *sets) (rules []match) {
	rules = append(rules, neighbours()...)
	// IPv6 lets anybody bind to an address that is not his (IPV6_FREEBIND), and
	// over lo such a packet would look like a connection that came in: its
	// answers would leave.
	rules = append(rules, rule(from.local(expr.CmpOpNeq), drop()), rule(to.local(expr.CmpOpEq), accept()))
	rules = append(rules, w.allowed(s)...)
	return append(rules, rule(protocol(unix.IPPROTO_TCP), reset()), refuse())
}

// departures are what may leave; everything else is dropped.
func (w *Wall) departures(s *sets) (rules []match) {
	rules = append(rules,
		// What is still addressed there was not redirected.
		rule(to.is(dockerResolver), unmarked(), drop()),
		rule(leavesBy(loopbackIndex), accept()),
		// Programs can bind a socket to an interface, and some bridges route
		// what is addressed to 127.0.0.1 to the host's own.
		rule(to.in(loopback4), drop()),
		rule(to.is(loopback6), drop()),
		rule(to.in(policy.FakeRange), drop()))
	rules = append(rules, neighbours()...)
	return append(rules, w.allowed(s)...)
}

// allowed is what may leave by an interface.
func (w *Wall) allowed(s *sets) (rules []match) {
	rules = append(rules,
		rule(to.inSet(s.peers4, false), accept()),
		rule(to.inSet(s.peers6, false), accept()),
		rule(answers(), accept()),
		rule(protocol(unix.IPPROTO_ICMP), state(expr.CtStateBitRELATED), accept()),
		rule(protocol(unix.IPPROTO_ICMPV6), state(expr.CtStateBitRELATED), accept()))
	for _, r := range w.Resolvers {
		for _, p := range protocols {
			rules = append(rules, rule(marked(), to.is(r), protocol(p), port(dnsPort), accept()))
		}
	}
	return rules
}

// neighbours is what an IPv6 host must say to be found, in both directions of
// the question.
func neighbours() (rules []match) {
	const routerSolicitation, neighbourSolicitation, neighbourAdvertisement = 133, 135, 136
	for _, kind := range []byte{routerSolicitation, neighbourSolicitation, neighbourAdvertisement} {
		rules = append(rules, rule(discovery(kind), accept()))
	}
	return rules
}

func inboundPolicy(i policy.Inbound) nftables.ChainPolicy {
	if i.All {
		return nftables.ChainPolicyAccept
	}
	return nftables.ChainPolicyDrop
}

// arrivals are what may come in.
func (w *Wall) arrivals(s *sets) (rules []match) {
	rules = append(rules,
		rule(entersBy(loopbackIndex), accept()),
		rule(to.in(loopback4), drop()),
		rule(to.is(loopback6), drop()),
		rule(to.in(policy.FakeRange), drop()),
		// conntrack would take a packet from the middle of a connection that is
		// older than the wall for the beginning of one from outside, and let
		// the container answer. The sysctl nf_conntrack_tcp_loose does the
		// same, but init can't write it where /proc/sys is read-only.
		rule(notFirst(), state(expr.CtStateBitNEW), drop()))
	if w.Inbound.All {
		return rules
	}
	rules = append(rules,
		rule(state(expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED), accept()),
		rule(from.inSet(s.inbound4, false), accept()),
		rule(from.inSet(s.inbound6, false), accept()))
	for kind := byte(133); kind <= 137; kind++ { // router and neighbour discovery, redirects
		rules = append(rules, rule(discovery(kind), accept()))
	}
	for _, p := range protocols {
		rules = append(rules, rule(protocol(p), portIn(s.ports), accept()))
	}
	return rules
}
