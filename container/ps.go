package container

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Processes returns the pids, as the caller's pid namespace numbers them, of all
// processes in the container's cgroup and below it; never nil. Unless the
// container is paused some may have ended meanwhile.
func (c *Container) Processes() ([]int, error) {
	m, err := openCgroup(c.state)
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	if m == nil || !m.Exists() {
		switch c.Status() {
		case specs.StateStopped, specs.StateCreating:
			return []int{}, nil
		}
		return nil, fmt.Errorf("processes: %w", errNoCgroup)
	}
	pids, err := m.GetAllPids()
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	return append([]int{}, pids...), nil
}
