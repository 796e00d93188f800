package policy

import (
	"maps"
	"slices"
	"strings"
)

// Naming is how a policy names a host, whatever the port: what a resolver, which
// is asked for no port, needs to know.
type Naming int

const (
	// Unnamed: the policy reaches the host on no port.
	Unnamed Naming = iota
	// NamedByStar: only "*", or observing, lets the host pass. Such a name is
	// public: see [ParseAllowlist].
	NamedByStar
	// Named: a rule names the host, or what it is below.
	Named
)

// Naming says how the policy names host, which is in lower case and without a dot
// at its end. Any other form, and any host of a nil Policy, is [Unnamed].
func (p *Policy) Naming(host string) Naming {
	if p == nil || !isCanonicalName(host) {
		return Unnamed
	}
	if p.Allowlist.names(host) {
		return Named
	}
	if !p.isPublic(host) {
		return Unnamed
	}
	// The port matters for the verdict, but not for whether there is one: a rule
	// that names the host with other ports is the reason port_not_listed.
	decision := p.Decide(Target{Host: host, Port: 443})
	if p.Observe || decision.Allow || decision.Reason == ReasonPortNotListed {
		return NamedByStar
	}
	return Unnamed
}

// names reports whether a rule names host, or something that host is below.
func (a *Allowlist) names(host string) bool {
	if a == nil {
		return false
	}
	if len(a.exact[host]) > 0 {
		return true
	}
	for _, parent, ok := strings.Cut(host, "."); ok; _, parent, ok = strings.Cut(parent, ".") {
		if len(a.below[parent]) > 0 {
			return true
		}
	}
	return false
}

// Ports returns the ports that rules name, in order. That "*" stands for every
// port is not among them.
func (a *Allowlist) Ports() []uint16 {
	if a == nil {
		return nil
	}
	var ports []uint16
	for _, e := range a.entries {
		ports = append(ports, e.ports.list...)
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// ExactNames returns the names that rules name in full, in order, without
// localhost, which stands for addresses of its own.
func (a *Allowlist) ExactNames() []string {
	if a == nil {
		return nil
	}
	names := slices.Sorted(maps.Keys(a.exact))
	return slices.DeleteFunc(names, func(name string) bool { return name == localhost })
}
