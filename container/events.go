package container

import (
	"errors"
	"fmt"
	"time"

	"eggrun/internal/state"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Stats returns what the container uses now. [state.ErrNotRunning] where it has
// stopped.
func (c *Container) Stats() (*Event, error) {
	m, err := c.runningCgroup()
	if err != nil {
		return nil, err
	}
	return c.stats(m)
}

// runningCgroup returns the cgroup of a container that has not ended.
func (c *Container) runningCgroup() (cgroups.Manager, error) {
	switch c.Status() {
	case specs.StateStopped:
		return nil, state.ErrNotRunning
	case specs.StateCreating:
		return nil, c.wrongState("running")
	}
	m, err := openCgroup(c.state)
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	if m == nil || !m.Exists() {
		return nil, fmt.Errorf("statistics: %w", errNoCgroup)
	}
	return m, nil
}

func (c *Container) stats(m cgroups.Manager) (*Event, error) {
	numbers, err := m.GetStats()
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	stats := statsOf(numbers)
	if c.state.IntelRdt != nil {
		root, err := resctrlRoot()
		if err != nil {
			return nil, fmt.Errorf("linux.intelRdt: %w", err)
		}
		rdt, err := rdtClassOf(root, c.state.ID, c.state.IntelRdt).stats()
		if err != nil {
			return nil, err
		}
		stats.IntelRdt = *rdt
	}
	return &Event{Type: "stats", ID: c.state.ID, Data: stats}, nil
}

// Events gives emit the container's statistics, each time after interval, and
// each time that the kernel kills for want of memory, until the container's init
// has ended or emit fails.
func (c *Container) Events(interval time.Duration, emit func(*Event) error) error {
	m, err := c.runningCgroup()
	if err != nil {
		return err
	}
	pidfd, err := c.state.Init.Open()
	if errors.Is(err, unix.ESRCH) {
		return state.ErrNotRunning
	}
	if err != nil {
		return err
	}
	defer pidfd.Close()
	watch, err := watchOOM(m)
	if err != nil {
		return err
	}
	defer watch.close()
	next := time.Now().Add(interval)
	for {
		isOOM, ended, err := watch.wait(pidfd, next)
		if err != nil {
			return err
		}
		if isOOM {
			if err := emit(&Event{Type: "oom", ID: c.state.ID}); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
		if time.Now().Before(next) {
			continue
		}
		// Not those that were missed while the machine, or who reads this, slept.
		next = time.Now().Add(interval)
		event, err := c.stats(m)
		if err != nil {
			// The cgroup may have gone with the container.
			if _, ended, _ := watch.wait(pidfd, time.Time{}); ended {
				return nil
			}
			return err
		}
		if err := emit(event); err != nil {
			return err
		}
	}
}
