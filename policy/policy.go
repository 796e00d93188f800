// Package policy says what a container may reach: it joins the request that
// comes with the container and the files of administrator and user into one
// [Policy], parses the allowlist, and decides for one target whether it is
// allowed, and why.
//
// The package is pure. It opens no file, resolves no name and knows no clock;
// every front end of the proxy asks the same [Policy.Decide].
package policy

import (
	"encoding/json"
	"net/netip"
	"slices"

	"eggrun/sandbox"
)

// Policy is what one container may reach, with everything decided: annotations,
// files and defaults are already one. The zero Policy reaches nothing.
type Policy struct {
	// Domains are the entries as they were written, groups replaced by their
	// entries, for messages and for the process that parses them again.
	Domains []string
	// Allowlist is Domains, parsed. It is never nil in a Policy from [Resolve].
	Allowlist *Allowlist `json:"-"`
	// NetworkNeed is the least network that covers Domains.
	NetworkNeed sandbox.NetworkNeed
	// LocalPorts are TCP ports of the host's 127.0.0.1 that appear on the
	// container's.
	LocalPorts []uint16
	// Peers is what a locked namespace reaches directly.
	Peers Peers
	// PeerNames are names that are passed to the engine's resolver.
	PeerNames []string
	// Inbound is who may connect to the container.
	Inbound Inbound
	// Deny and DenyWrite are paths in the container that can't be read and
	// written, or only not written. They are absolute and clean.
	Deny, DenyWrite []string
	// AllowSockets are paths of the host on which sockets may be mounted,
	// absolute and clean.
	AllowSockets []string
	// MaskSockets mounts nothing where a socket was asked for, instead of
	// refusing the container.
	MaskSockets bool
	// AllowFDs lets descriptors that are sockets into the container.
	AllowFDs bool
	// SNI is how the name in a TLS greeting is compared.
	SNI SNI
	// Observe lets every public name pass and logs what would have been denied.
	Observe bool
	// ProxyEnv and Transparent turn parts of the way out on or off.
	ProxyEnv    ProxyEnv
	Transparent bool
	// KillOnProxyExit ends the container with its sidecar.
	KillOnProxyExit bool
	// HostAddresses are addresses that stand for the host and are dialled only
	// where a rule names them exactly.
	HostAddresses []netip.Prefix
	// UpstreamProxy is the URL of a proxy through which everything is dialled,
	// or empty.
	UpstreamProxy string
	// UpstreamFake accepts answers within 198.18.0.0/15 from the resolver.
	UpstreamFake bool
	// Profile is the profile that was picked, or empty.
	Profile string
	// UnnamedAddrs are addresses that a rule of the container names, but its limit
	// only as part of a prefix: none of them opens an address of the host.
	UnnamedAddrs []netip.Addr
	// SearchDomains are the domains that the container's resolver appends. No
	// name below one is public. They come from the network, not from [Resolve].
	SearchDomains []string
	// Origins says where each part comes from, in the order of the keys.
	Origins []Origin
}

// Origin is one line of a policy and where it was written.
type Origin struct {
	// Key is the name of the key in policy.toml, Value one of its values; empty
	// for an empty list.
	Key, Value string
	// From is an annotation, a file with line and section, or default.
	From string
}

// Peers is what a container reaches without the proxy.
type Peers struct {
	// OnLink is the subnets of the container's veth interfaces, without the
	// host's addresses.
	OnLink bool
	// Prefixes are further networks.
	Prefixes []netip.Prefix
}

// Inbound is who may connect to a container. The zero Inbound is nobody.
type Inbound struct {
	// All is everybody, and OnLink the subnets of the container's interfaces.
	All, OnLink bool
	// Ports are TCP and UDP ports that everybody may connect to.
	Ports []uint16
}

// SNI is how strictly the server name of a TLS greeting is held to the target.
type SNI string

const (
	// SNIMatch demands the name that was asked for.
	SNIMatch SNI = "match"
	// SNIAllowlisted demands a name that is allowed.
	SNIAllowlisted SNI = "allowlisted"
	// SNIOff looks at nothing.
	SNIOff SNI = "off"
)

// ProxyEnv is whether a container's environment names the proxy.
type ProxyEnv string

const (
	// ProxyEnvAuto sets the variables where the namespace is closed.
	ProxyEnvAuto ProxyEnv = "auto"
	// ProxyEnvOn always sets them.
	ProxyEnvOn ProxyEnv = "on"
	// ProxyEnvOff never does.
	ProxyEnvOff ProxyEnv = "off"
)

// Wall returns p where it walls the container in, and nil for a policy that
// says in so many words that there is no wall: of such a one only the paths count.
func (p *Policy) Wall() *Policy {
	if p == nil || p.NetworkNeed == sandbox.NetworkFull {
		return nil
	}
	return p
}

// ForMember returns p for a container that joins the network namespace of those
// who have it and asks for nothing itself. What is not about the network stays
// as in own, which may be nil: the paths that another one hides are not its, nor
// are the sockets that another one may see.
func (p *Policy) ForMember(own *Policy) *Policy {
	if own == nil {
		own = &Policy{ProxyEnv: p.ProxyEnv, KillOnProxyExit: p.KillOnProxyExit}
	}
	member := *p
	member.Deny, member.DenyWrite = own.Deny, own.DenyWrite
	member.AllowSockets, member.MaskSockets, member.AllowFDs = own.AllowSockets, own.MaskSockets, own.AllowFDs
	member.ProxyEnv, member.KillOnProxyExit = own.ProxyEnv, own.KillOnProxyExit
	isOwn := func(o Origin) bool { return slices.Contains(containerKeys, o.Key) }
	member.Origins = slices.DeleteFunc(slices.Clone(p.Origins), isOwn)
	for _, o := range own.Origins {
		if isOwn(o) {
			member.Origins = append(member.Origins, o)
		}
	}
	return &member
}

// Decide says whether t may be reached: the verdict of the allowlist, where * and
// observing pass no name below a search domain. A policy that observes allows
// every public name on every port; the decision then has the reason for which it
// would have been denied. A nil Policy denies everything.
func (p *Policy) Decide(t Target) Decision {
	if p == nil {
		return Decision{Reason: ReasonNotListed}
	}
	d := p.Allowlist.decide(t, p.isPublic)
	if !d.Allow && p.Observe && t.Port != 0 && !t.Addr.IsValid() && p.isPublic(t.Host) {
		d.Allow, d.WouldDeny = true, true
	}
	return d
}

// isPublic reports whether name is a public one and not the container's network
// making one up: with a search domain api.example.com is also asked for as
// api.example.com.corp.example.
func (p *Policy) isPublic(name string) bool {
	return isPublicName(name) && !slices.ContainsFunc(p.SearchDomains, func(domain string) bool { return isBelow(name, domain) })
}

// VetAddr says whether addr may be dialled for t, which is allowed: it is the
// function [VetAddr] with what the policy says of addresses. Those of
// HostAddresses are own ones, UnnamedAddrs open nothing of the host's, and with
// UpstreamFake the resolver's answers may lie within 198.18.0.0/15. An address
// that the client chose is no answer.
func (p *Policy) VetAddr(t Target, addr netip.Addr, own ...netip.Addr) Decision {
	if p == nil {
		return VetAddr(nil, addr, t.Port)
	}
	addr = addr.Unmap()
	if p.UpstreamFake && !t.Addr.IsValid() && t.Port != 0 && FakeRange.Contains(addr) && !isOwn(addr, own) {
		return Decision{Allow: true, Reason: ReasonAllowed, Rule: "upstream-fake"}
	}
	carried := carriedIPv4(addr)
	for _, prefix := range p.HostAddresses {
		if prefix.Contains(addr) || prefix.Contains(carried) {
			own = append(slices.Clip(own), addr, carried)
		}
	}
	if slices.Contains(p.UnnamedAddrs, addr) && (isOwn(addr, own) || isOwn(carried, own)) {
		return Decision{Reason: ReasonNotPublic, Rule: ownAddress(addr).String()}
	}
	return VetAddr(p.Allowlist, addr, t.Port, own...)
}

// FakeRange holds the addresses that eggrun's resolver gives out for names, each
// of which stands for one, and those of other proxies that do the same. RFC 2544
// has it for benchmarks, so nobody routes it and no service hides below it.
var FakeRange = netip.MustParsePrefix("198.18.0.0/15")

// UnmarshalJSON reads what encoding/json makes of a Policy, and parses its list
// again.
func (p *Policy) UnmarshalJSON(data []byte) error {
	type plain Policy
	read := plain{}
	if err := json.Unmarshal(data, &read); err != nil {
		return err
	}
	list, err := ParseAllowlist(read.Domains)
	if err != nil {
		return err
	}
	read.Allowlist = list
	*p = Policy(read)
	return nil
}
