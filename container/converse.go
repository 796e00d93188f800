package container

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"eggrun/internal/hook"
	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"
	"eggrun/spec"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// send sends the plan, with a clone of the root file system.
func (c *creation) send(fifo *os.File) error {
	setup := syncsocket.Setup{
		ID:            c.options.ID,
		Task:          syncsocket.Create,
		Plan:          c.plan,
		Filters:       c.filters,
		Preserve:      c.options.PreserveFDs,
		ListenFDs:     c.options.ListenFDs,
		ListenFDNames: c.options.ListenFDNames,
		NoPivot:       c.options.NoPivot,
		HostMounts:    c.hostMounts,
		NoNewKeyring:  c.options.NoNewKeyring,
		Bundle:        c.options.Bundle,
	}
	if c.walled != nil && c.network.IsNew() {
		setup.Wall = c.walled.Wall()
	}
	files := []*os.File{fifo}
	err := c.sources().amongMounts(func() error {
		rootfs, err := linux.CloneTree(c.plan.Rootfs, true)
		if err != nil {
			return errors.Unwrap(err)
		}
		files = append(files, rootfs)
		if !c.ownMounts {
			return nil
		}
		// Init, in a user namespace, might not get there.
		place, err := os.OpenFile(c.plan.Rootfs, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err == nil {
			files = append(files, place)
		}
		return err
	})
	defer func() {
		for _, f := range files[1:] {
			f.Close()
		}
	}()
	if err != nil {
		return fmt.Errorf("rootfs %q: %w", c.plan.Rootfs, err)
	}
	if err := c.noteRoot(files[1]); err != nil {
		return err
	}
	if err := setScore(c.child.PID, c.score()); err != nil {
		return err
	}
	return c.socket.Send(syncsocket.Request, &setup, files...)
}

// giveCgroup gives the container's cgroup to its user, where that is asked for.
func (c *creation) giveCgroup() error {
	if !delegates(c.plan, cgroups.IsCgroup2UnifiedMode()) {
		return nil
	}
	dir := c.cgroup.Path("")
	if sub, ok := c.cgroup.(*subgroup); ok {
		dir = sub.below.Path("")
	}
	err := ownCgroup(dir, c.child.PID, c.plan)
	if err != nil && !c.options.Rootless {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

func (c *creation) score() *int {
	if c.plan.Process == nil {
		return nil
	}
	return c.plan.Process.OOMScoreAdj
}

// join puts init into its cgroup, while init makes its mounts.
func (c *creation) join() error {
	if c.cgroup != nil {
		pid := c.child.PID
		if c.child.InCgroup {
			pid = alreadyIn
		}
		err := joinCgroup(c.cgroup, pid, c.limits)
		if err == nil {
			err = c.giveCgroup()
		}
		if err != nil {
			c.socket.Shutdown() // init waits for this
			return err
		}
	}
	resetAffinity(c.child.PID)
	step()
	h, err := hierarchies(c.child.PID, c.plan)
	if err == nil {
		err = c.socket.Send(syncsocket.Joined, h, h.Trees...)
		h.Close()
	}
	if err != nil {
		c.socket.Shutdown()
	}
	return err
}

var errInitEnded = errors.New("init ended without a word; look for an out-of-memory kill in the kernel log")

// converse answers init until it is ready.
func (c *creation) converse() error {
	for {
		message, err := c.socket.Receive()
		if errors.Is(err, io.EOF) {
			return errInitEnded
		}
		if err != nil {
			return err
		}
		switch message.Kind {
		case syncsocket.Failed:
			err = message.Failure()
		case syncsocket.Trees:
			err = c.sources().send(c.socket, c.plan.Mounts, message)
		case syncsocket.Console:
			err = handOverConsole(message, c.options.Console)
		case syncsocket.Listener:
			err = c.takeSockets(message)
		case syncsocket.Hooks:
			err = c.runHooks()
		case syncsocket.Seccomp:
			err = handOverListener(c.socket, c.child, message, c.plan.Seccomp, c.hookState(specs.StateCreating))
		case syncsocket.Ready:
			return nil
		default:
			err = unexpected(message)
		}
		if err != nil {
			return err
		}
	}
}

// handOverConsole gives the master of the program's terminal to who takes it.
func handOverConsole(message *syncsocket.Message, take func(master *os.File) error) error {
	if len(message.Files) != 1 || take == nil {
		return unexpected(message)
	}
	return take(message.Files[0])
}

func unexpected(message *syncsocket.Message) error {
	return fmt.Errorf("sync message %q: unexpected", message.Kind)
}

// runHooks runs the hooks that see the namespaces before anything of the host
// is gone from them.
func (c *creation) runHooks() error {
	if c.plan.Process != nil {
		if err := raiseRlimits(c.child.PID, c.plan.Process.Rlimits); err != nil {
			return err
		}
	}
	if err := c.hostHooks(); err != nil {
		return err
	}
	step()
	return c.socket.Send(syncsocket.Proceed, nil)
}

// hostHooks runs them in the bundle, as other runtimes do.
func (c *creation) hostHooks() error {
	hooks, bundle := c.plan.Hooks, c.options.Bundle
	//nolint:staticcheck // deprecated in the specification, used by engines
	if err := hook.RunIn(bundle, "prestart", hooks.Prestart, c.hookState(specs.StateCreated)); err != nil {
		return err
	}
	return hook.RunIn(bundle, "createRuntime", hooks.CreateRuntime, c.hookState(specs.StateCreating))
}

// finish makes the container known as created.
func (c *creation) finish() error {
	if c.cgroup != nil {
		if err := lateLimits(c.cgroup, c.limits); err != nil {
			return err
		}
		if c.options.Rootless {
			c.state.Cgroup.Paths = existing(c.cgroup.GetPaths())
		}
	}
	if sub, ok := c.cgroup.(*subgroup); ok {
		if err := sub.enterDelegated(c.child.PID, c.plan); err != nil {
			return fmt.Errorf("annotation %s: %w", spec.KeyDelegateCgroup, err)
		}
	}
	step()
	if c.options.Pidfd != nil {
		if err := c.options.Pidfd(c.child.Pidfd); err != nil {
			return err
		}
	}
	base := newExecBase(c.process, c.plan, c.filters)
	if c.walled != nil {
		base.Policy, base.Wall = *c.policy, c.walled.Kept()
	}
	var err error
	if base.Streams, err = streams(); err != nil {
		return err
	}
	if err := c.dir.SaveExec(base); err != nil {
		return err
	}
	c.socket.Close()
	c.state.Ready = true
	if err := c.dir.Save(c.state); err != nil {
		return err
	}
	step()
	return writePIDFile(c.options.PIDFile, c.child.PID)
}

// writePIDFile writes the pid atomically: engines watch for the file. Its
// directory may be one where others can make files: no link that lies in wait
// there is written through.
func writePIDFile(path string, pid int) error {
	if path == "" {
		return nil
	}
	aside := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	err := os.Remove(aside) // what a create that was killed has left
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = writeNew(aside, strconv.Itoa(pid))
	}
	if err != nil {
		return fmt.Errorf("pid file: %w", err)
	}
	if err := os.Rename(aside, path); err != nil {
		return errors.Join(fmt.Errorf("pid file: %w", err), os.Remove(aside))
	}
	return nil
}

func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
