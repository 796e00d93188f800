package container

import (
	"errors"
	"fmt"

	"eggrun/internal/hook"
	"eggrun/internal/state"
	"eggrun/internal/syncsocket"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Start lets the program of a created container run. The container must be
// locked.
func (c *Container) Start() error {
	if status := c.Status(); status != specs.StateCreated {
		return c.wrongState("created")
	}
	if !c.state.HasProcess {
		return errors.New("config.json has no process; nothing can be started")
	}
	word := syncsocket.Start
	if c.state.Walled {
		var err error
		if word, err = c.recheckWall(); err != nil {
			return err
		}
	}
	step()
	// The poststart hooks come after the program was executed.
	if err := c.dir.ReleaseFIFO(byte(word), len(c.state.Hooks.Poststart) > 0); err != nil {
		return err
	}
	step()
	if err := hook.Run("poststart", c.state.Hooks.Poststart, c.hookState(specs.StateRunning)); err != nil {
		// Specification 1.3: a container whose poststart hook failed is stopped.
		return oneLine(errors.Join(err, c.killAll(unix.SIGKILL)))
	}
	return nil
}

// Kill sends a signal to the container's init, with all to every process in its
// cgroup.
func (c *Container) Kill(signal unix.Signal, all bool) error {
	status := c.Status()
	if all {
		if status == specs.StateStopped && c.state.OwnPIDNamespace {
			return nil
		}
		return c.killAll(signal)
	}
	// In a pid namespace of its own the kernel kills the others with init; in
	// another they would be left, and may be left from before.
	if signal == unix.SIGKILL && !c.state.OwnPIDNamespace && c.hasProcesses() {
		return c.killAll(signal)
	}
	if status == specs.StateStopped {
		return state.ErrNotRunning
	}
	err := signalProcess(c.state.Init, signal)
	// A frozen process cannot die; who kills wants it dead.
	if err == nil && status == Paused && signal == unix.SIGKILL {
		return c.thaw()
	}
	return err
}

// hasProcesses tells whether anything is known to be in the container's cgroup.
func (c *Container) hasProcesses() bool {
	m, err := openCgroup(c.state)
	if err != nil || m == nil || !m.Exists() {
		return false
	}
	pids, err := m.GetAllPids()
	return err == nil && len(pids) > 0
}

// killAll signals every process of the container's cgroup, again until no new
// one appears. Without a cgroup there is only init to signal.
func (c *Container) killAll(signal unix.Signal) error {
	m, err := openCgroup(c.state)
	if err != nil {
		return err
	}
	if m == nil || !m.Exists() {
		err := signalProcess(c.state.Init, signal)
		if errors.Is(err, state.ErrNotRunning) {
			return nil
		}
		return err
	}
	signalled := make(map[int]bool)
	for {
		pids, err := allPids(m)
		if err != nil {
			return err
		}
		isNew := false
		for _, pid := range pids {
			if signalled[pid] {
				continue
			}
			signalled[pid], isNew = true, true
			if err := unix.Kill(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("signal process %d: %w", pid, err)
			}
		}
		if !isNew {
			break
		}
	}
	if signal == unix.SIGKILL && c.isPaused() {
		return c.thaw()
	}
	return nil
}
