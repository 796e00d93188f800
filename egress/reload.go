package egress

import (
	"errors"
	"fmt"
	"slices"

	"eggrun/policy"
)

// replace puts another policy in the place of that of a namespace.
func replace(e *entry, r *record, p *policy.Policy) error {
	if !slices.Equal(sorted(r.Policy.LocalPorts), sorted(p.LocalPorts)) || r.Policy.Transparent != p.Transparent {
		return errors.New("policy: local-ports and transparent can't change while the network namespace is in use; stop its containers first")
	}
	if err := ask(e.dir, kindReload, p, nil); err != nil {
		return err
	}
	r.Policy, r.Asked = p, true
	return e.save(r)
}

// Reload puts another policy in the place of that of the namespace with an entry,
// at once for whatever is decided from then on. own is what the container has that
// it is for.
func Reload(entry string, own, p *policy.Policy) error {
	e, err := lockExisting(entry)
	if err != nil {
		return err
	}
	defer e.close()
	r, err := e.load()
	if err != nil {
		return err
	}
	if r == nil || !r.Sidecar.Alive() {
		return fmt.Errorf("egress proxy: %w", errControl)
	}
	if fixedNetwork(r.Policy) != fixedNetwork(p) || fixedContainer(own) != fixedContainer(p) {
		return errors.New("policy: peers, inbound, deny, deny-write, sockets and allow-fds don't change in a container that exists; create it anew")
	}
	return replace(e, r, p)
}

// fixedNetwork is what of a policy was put into the namespace when that was
// created, and fixedContainer what was put into the container.
func fixedNetwork(p *policy.Policy) string { return fmt.Sprint(p.Peers, p.Inbound) }

func fixedContainer(p *policy.Policy) string {
	return fmt.Sprint(p.Deny, p.DenyWrite, p.AllowSockets, p.MaskSockets, p.AllowFDs, p.KillOnProxyExit)
}
