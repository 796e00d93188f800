package container

import (
	"errors"
	"fmt"

	"eggrun/internal/state"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

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

// killAll signals every process of the container's cgroup. Without a cgroup there
// is only init to signal.
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
	if signal != unix.SIGKILL || !killAtOnce(m) {
		if err := signalAll(m, signal); err != nil {
			return err
		}
	}
	if signal == unix.SIGKILL && c.isPaused() {
		return c.thaw()
	}
	return nil
}

// killAtOnce has the kernel kill all that is in a cgroup of v2, so that nothing
// gets away by forking. Linux 5.14, see the kernel's cgroup-v2, "cgroup.kill".
func killAtOnce(m cgroups.Manager) bool {
	return cgroups.IsCgroup2UnifiedMode() && cgroups.WriteFile(m.Path(""), "cgroup.kill", "1") == nil
}

// signalAll signals every process of a cgroup, again until no new one appears.
// Where some keep appearing all are frozen meanwhile: who forks could get away
// for ever.
func signalAll(m cgroups.Manager, signal unix.Signal) error {
	signalled := make(map[int]bool)
	const rounds = 100
	for round := range rounds {
		isNew, err := signalOthers(m, signal, signalled)
		if err != nil || !isNew {
			return err
		}
		if round == 0 || m.Freeze(cgroups.Frozen) != nil {
			continue
		}
		_, err = signalOthers(m, signal, signalled)
		return errors.Join(err, m.Freeze(cgroups.Thawed))
	}
	return errors.New("processes: new ones appear all the time; limit their number")
}

// signalOthers signals the processes of a cgroup that are not in signalled, adds
// them, and tells whether there were any.
func signalOthers(m cgroups.Manager, signal unix.Signal, signalled map[int]bool) (isNew bool, err error) {
	pids, err := allPids(m)
	if err != nil {
		return false, err
	}
	for _, pid := range pids {
		if signalled[pid] {
			continue
		}
		signalled[pid], isNew = true, true
		if err := unix.Kill(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return false, fmt.Errorf("signal process %d: %w", pid, err)
		}
	}
	return isNew, nil
}
