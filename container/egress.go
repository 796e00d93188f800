package container

import (
	"errors"
	"maps"

	"eggrun/egress"
	"eggrun/policy"

	"github.com/opencontainers/runtime-spec/specs-go"
)

var errNoPolicy = errors.New("the container has no policy")

// HasPolicy tells whether the container is walled in.
func (c *Container) HasPolicy() bool { return c.state.Walled }

// EgressStatus asks the container's sidecar about itself, and for its counters
// in the text format of Prometheus.
func (c *Container) EgressStatus() (status *egress.Status, metrics string, err error) {
	if !c.state.Walled {
		return nil, "", errNoPolicy
	}
	if status, err = egress.GetStatus(c.state.Network); err != nil {
		return nil, "", err
	}
	metrics, err = egress.Metrics(c.state.Network)
	return status, metrics, err
}

// ReloadEgress resolves the container's policy anew, with its annotations as
// they were but for those in changed, and puts it in the place of the one that
// its network namespace has. Connections to what is no longer allowed are closed.
func (c *Container) ReloadEgress(changed map[string]string, asker *Asker) (*policy.Policy, error) {
	if !c.state.Walled {
		return nil, errNoPolicy
	}
	annotations := maps.Clone(c.state.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, changed)
	p, err := ResolvePolicy(&specs.Spec{Annotations: annotations}, asker)
	if err != nil {
		return nil, err
	}
	if p.Wall() == nil {
		return nil, errors.New("policy: there would be no wall any more; delete the container and create it without a policy")
	}
	own, err := c.Policy()
	if err != nil {
		return nil, err
	}
	return p, egress.Reload(c.state.Network, own, p)
}
