package container

import (
	"errors"
	"fmt"
	"time"

	"eggrun/egress"
	"eggrun/internal/hook"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Delete removes a stopped or created container, with force any. The container
// must be locked. Where a part cannot be removed the rest is, and the state dir
// stays so that delete can be called again.
//
// A poststop hook that fails is reported by a returned warning only, and the
// others run, as the specification says.
func (c *Container) Delete(force bool) (warnings []error, err error) {
	status := c.Status()
	if !force && status != specs.StateStopped && status != specs.StateCreated {
		return nil, fmt.Errorf("container is %s, want stopped; kill it first or use --force", status)
	}
	hooks := c.state.Hooks.Poststop
	step()
	if err := c.destroy(); err != nil {
		return nil, oneLine(err)
	}
	step()
	return hook.RunAll("poststop", hooks, c.hookState(specs.StateStopped)), nil
}

// destroy ends every process of the container and removes all that it has on
// the host. It works from the state alone, whatever create or an earlier delete
// got done.
func (c *Container) destroy() error {
	var errs []error
	// Of a create that was killed, too: package cgroups freezes a cgroup of v1
	// while systemd changes its device rules.
	if c.isPaused() {
		errs = append(errs, c.thaw())
	}
	errs = append(errs, c.endInit())
	step()
	errs = append(errs, c.removeCgroup(), removeRdt(c.state.Resctrl))
	step()
	errs = append(errs, c.unmountRoot())
	step()
	errs = append(errs, egress.Leave(c.state.Network, c.state.Sidecar))
	step()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.dir.Remove()
}

// endInit kills init and, where it is a child of this process, reaps it: a zombie
// keeps systemd from ending its scope.
func (c *Container) endInit() error {
	if err := killAndWait(c.state.Init); err != nil || c.state.Init.PID == 0 {
		return err
	}
	for {
		if _, err := unix.Wait4(c.state.Init.PID, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return nil
		}
	}
}

// removeCgroup ends what outlived init and removes the container's cgroup.
func (c *Container) removeCgroup() error {
	m, err := openCgroup(c.state)
	if err != nil || m == nil {
		return err
	}
	// A killed process leaves its cgroup a moment after it can be seen dead. A
	// scope that is stopped with one in it waits for systemd's notice of its end,
	// which with v1 may never come.
	deadline := time.Now().Add(10 * time.Second)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if err := c.killAll(unix.SIGKILL); err != nil {
			return err
		}
		pids, err := allPids(m)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			err = m.Destroy()
		} else {
			err = fmt.Errorf("process %d: still in it 10 s after SIGKILL", pids[0])
		}
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cgroup: %w", err)
		}
		time.Sleep(pause)
	}
}

func (c *Container) thaw() error {
	m, err := openCgroup(c.state)
	if err != nil || m == nil {
		return err
	}
	if err := m.Freeze(cgroups.Thawed); err != nil {
		return fmt.Errorf("thaw cgroup: %w", err)
	}
	return nil
}
