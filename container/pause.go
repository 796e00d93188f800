package container

import (
	"errors"
	"fmt"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// errNoCgroup is of a container that was made with the cgroup manager disabled,
// or by somebody who may not make cgroups.
var errNoCgroup = errors.New("the container has no cgroup of its own")

// Pause suspends every process of a created or running container. The container
// must be locked.
func (c *Container) Pause() error {
	switch c.Status() {
	case specs.StateRunning, specs.StateCreated:
	default:
		return c.wrongState("running")
	}
	return c.freeze(cgroups.Frozen)
}

// Resume lets a paused container go on: it is created or running again. The
// container must be locked.
func (c *Container) Resume() error {
	if c.Status() != Paused {
		return c.wrongState(string(Paused))
	}
	return c.freeze(cgroups.Thawed)
}

// freeze also thaws. See the kernel's cgroup-v2, "cgroup.freeze", since Linux
// 5.2, and cgroup-v1/freezer-subsystem.
func (c *Container) freeze(want cgroups.FreezerState) error {
	m, err := openCgroup(c.state)
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	if m == nil || !m.Exists() {
		return fmt.Errorf("freezer: %w", errNoCgroup)
	}
	has, err := m.GetFreezerState()
	if err != nil {
		return fmt.Errorf("freezer: %w", err)
	}
	// The library's own error for this would be about a missing file.
	if has == cgroups.Undefined {
		return errors.New("freezer: the kernel has none for this cgroup; use cgroup v2 of Linux 5.2 or mount the v1 hierarchy freezer")
	}
	if err := m.Freeze(want); err != nil {
		return fmt.Errorf("freezer: %w", err)
	}
	return nil
}
