package policy

import (
	"maps"
	"slices"
)

// Names tells whether the policy lets host pass on some port: what a resolver,
// which is asked for no port, needs to know. host is in lower case and without a
// dot at its end.
func (p *Policy) Names(host string) bool {
	// Of a host that is listed with other ports that is the reason.
	d := p.Decide(Target{Host: host, Port: 443})
	return d.Allow || d.Reason == ReasonPortNotListed
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
