package egress

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"eggrun/egress/inside"
	"eggrun/policy"

	"golang.org/x/sys/unix"
)

// Network is the network namespace that a container is to be in.
type Network struct {
	// Closed tells whether there is no interface that leads out. One may come
	// until the container starts.
	Closed bool
	// file is nil for a namespace that is yet to be made.
	file *os.File
	// entry is the directory in the registry, "" until the namespace is made.
	entry string
	// policy is that of its members, nil where none has one; asked tells whether
	// one of them asked for it, or the administrator's file gave it to all.
	policy *policy.Policy
	asked  bool
	// container is the member whose audit the sidecar writes.
	container string
	// served tells whether it has a sidecar that lives.
	served bool
	where  Where
}

// LookAt returns the namespace at path, or with "" one that will be made. Close
// it.
func LookAt(path string, where Where) (*Network, error) {
	n := &Network{Closed: true, where: where}
	if path == "" {
		return n, nil
	}
	var err error
	if n.file, err = os.Open(path); err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	var cookie uint64
	err = inside.Within(n.file, func() (err error) {
		n.Closed = inside.CheckClosed() == nil
		cookie, err = inside.OwnCookie()
		return err
	})
	if err == nil {
		n.entry, err = entryDir(where.registry(), cookie)
	}
	if err == nil {
		err = n.lookUp()
	}
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	return n, nil
}

// HasAny tells whether any network namespace has a sidecar, so that one that a
// container without a policy is to join may be walled.
func HasAny(where Where) bool {
	entries, err := os.ReadDir(where.registry())
	return err == nil && len(entries) > 0
}

// lookUp asks the registry for the policy of the namespace.
func (n *Network) lookUp() error {
	r, err := loadRecord(n.entry)
	if err == nil && r != nil && r.binds() {
		n.take(r)
	}
	return err
}

func (n *Network) take(r *record) {
	n.policy, n.asked, n.container, n.served = r.Policy, r.Asked, r.Container, r.Sidecar.Alive()
}

// Close lets go of the namespace.
func (n *Network) Close() {
	if n != nil && n.file != nil {
		n.file.Close()
	}
}

// Agree returns the policy of a container that would have own by itself, nil for
// none; asked tells whether it asked for that. One namespace has one policy: what
// would be refused to one member another one would fetch for it. Who asks for
// nothing takes what the others have, and the first one that asks sets it. Who
// asks for no wall is never let in: it could take that of the others down.
func (n *Network) Agree(own *policy.Policy, asked bool) (*policy.Policy, error) {
	switch {
	case n.policy == nil:
		return own, nil
	case !asked:
		return n.policy.ForMember(own), nil
	case !n.asked && own.Wall() != nil:
		return own, nil
	}
	theirs, ours := rules(n.policy), rules(own)
	if !slices.Equal(theirs, ours) {
		return nil, fmt.Errorf("policy: this container asks for [%s], container %s in the same network namespace has [%s]; ask for the same, for nothing, or join another network",
			strings.Join(ours, " "), n.container, strings.Join(theirs, " "))
	}
	return own, nil
}

// rules are all of what a policy says about the network, comparable and to be
// read: the entries of its list, then the keys that differ from their defaults.
func rules(p *policy.Policy) []string {
	if p.Wall() == nil {
		return []string{"network=full"}
	}
	lines := slices.Clone(p.Domains)
	slices.Sort(lines)
	lines = slices.Compact(lines)
	add := func(is bool, format string, args ...any) {
		if is {
			lines = append(lines, fmt.Sprintf(format, args...))
		}
	}
	add(len(p.LocalPorts) > 0, "local-ports=%v", sorted(p.LocalPorts))
	add(!p.Peers.OnLink || len(p.Peers.Prefixes) > 0, "peers=%v,on-link=%v", p.Peers.Prefixes, p.Peers.OnLink)
	add(len(p.PeerNames) > 0, "peer-names=%v", sorted(p.PeerNames))
	add(!p.Inbound.All, "inbound=%v,on-link=%v", sorted(p.Inbound.Ports), p.Inbound.OnLink)
	add(p.SNI != policy.SNIMatch, "sni=%s", p.SNI)
	add(p.Observe, "mode=observe")
	add(!p.Transparent, "transparent=off")
	add(p.UpstreamFake, "upstream-fake")
	// The same list may open less of the host for one than for another, by their
	// limits.
	add(len(p.HostAddresses) > 0, "host-addresses=%v", p.HostAddresses)
	add(len(p.UnnamedAddrs) > 0, "not-of-the-host=%v", p.UnnamedAddrs)
	return lines
}

func sorted[T uint16 | string](list []T) []T {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// openNetNS opens the network namespace of a process.
func openNetNS(pid int) (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/proc/%d/ns/net", pid), unix.O_RDONLY, 0)
}
