// Package container is the life of a container as the host sees it: create,
// start, kill, delete and run, and what can be asked about it in between.
package container

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"eggrun/internal/linux"
	"eggrun/internal/state"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Paused is a status that runtimes report beside those of the specification.
const Paused specs.ContainerState = "paused"

// Container is an existing container, opened by its id.
type Container struct {
	dir   *state.Dir
	state *state.State
}

// Open opens a container to look at it. [state.ErrNotExist] where there is none.
func Open(runtimeRoot, id string) (*Container, error) {
	dir, err := state.Open(runtimeRoot, id)
	if err != nil {
		return nil, err
	}
	return load(dir)
}

// Lock opens a container to change it and waits until nobody else does.
func Lock(runtimeRoot, id string) (*Container, error) {
	dir, err := state.Lock(runtimeRoot, id)
	if err != nil {
		return nil, err
	}
	return load(dir)
}

func load(dir *state.Dir) (*Container, error) {
	s, err := dir.Load()
	if err != nil {
		dir.Close()
		return nil, err
	}
	return &Container{dir: dir, state: s}, nil
}

// Close lets go of the container and of its lock.
func (c *Container) Close() error { return c.dir.Close() }

// Status returns creating, created, running, paused or stopped.
func (c *Container) Status() specs.ContainerState {
	switch {
	case !c.state.Init.Alive():
		// Until there is a process there is also the create that makes it,
		// or nothing but what it left behind.
		if !c.state.Ready && c.state.Init.PID == 0 {
			return specs.StateCreating
		}
		return specs.StateStopped
	case !c.state.Ready:
		return specs.StateCreating
	case c.isPaused():
		return Paused
	case c.dir.HasFIFO():
		return specs.StateCreated
	}
	return specs.StateRunning
}

// Info is what the verbs state and list print, runc's fields.
type Info struct {
	OCIVersion  string               `json:"ociVersion"`
	ID          string               `json:"id"`
	PID         int                  `json:"pid"`
	Status      specs.ContainerState `json:"status"`
	Bundle      string               `json:"bundle"`
	Rootfs      string               `json:"rootfs"`
	Created     time.Time            `json:"created"`
	Annotations map[string]string    `json:"annotations,omitempty"`
	Owner       string               `json:"owner"`
	// OwnerUID is for the table of list.
	OwnerUID int `json:"-"`
}

// Info returns the container's state now.
func (c *Container) Info() *Info {
	s := c.state
	info := &Info{
		OCIVersion:  s.OCIVersion,
		ID:          s.ID,
		PID:         s.Init.PID,
		Status:      c.Status(),
		Bundle:      s.Bundle,
		Rootfs:      s.Rootfs,
		Created:     s.Created,
		Annotations: s.Annotations,
		OwnerUID:    s.OwnerUID,
	}
	if info.Status == specs.StateStopped {
		info.PID = 0
	}
	return info
}

// hookState is the container's state as the hooks of the host's side get it.
func (c *Container) hookState(status specs.ContainerState) *specs.State {
	s := &specs.State{
		Version:     specs.Version,
		ID:          c.state.ID,
		Status:      status,
		Bundle:      c.state.Bundle,
		Annotations: c.state.Annotations,
	}
	if status != specs.StateStopped {
		s.Pid = c.state.Init.PID
	}
	return s
}

// List returns all containers below runtimeRoot. One that is deleted meanwhile
// is left out.
func List(runtimeRoot string) ([]*Info, error) {
	ids, err := state.List(runtimeRoot)
	if err != nil {
		return nil, err
	}
	infos := []*Info{}
	for _, id := range ids {
		c, err := Open(runtimeRoot, id)
		if errors.Is(err, state.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		infos = append(infos, c.Info())
		c.Close()
	}
	return infos, nil
}

// wrongState says which state a verb wants.
func (c *Container) wrongState(want ...string) error {
	return fmt.Errorf("container is %s, want %s", c.Status(), strings.Join(want, " or "))
}

// signalProcess sends a signal to exactly that process. ESRCH becomes
// [state.ErrNotRunning].
func signalProcess(p linux.Process, signal unix.Signal) error {
	pidfd, err := p.Open()
	if err == nil {
		defer pidfd.Close()
		err = linux.PidfdSignal(pidfd, signal)
	}
	if errors.Is(err, unix.ESRCH) {
		return state.ErrNotRunning
	}
	return err
}

// killAndWait ends a process and waits until it has ended.
func killAndWait(p linux.Process) error {
	pidfd, err := p.Open()
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer pidfd.Close()
	if err := linux.PidfdSignal(pidfd, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	const patience = 10_000 // milliseconds; a process in the kernel's hands may take a while
	ended, err := linux.PidfdWait(pidfd, patience)
	if err == nil && !ended {
		err = fmt.Errorf("process %d: still there 10 s after SIGKILL", p.PID)
	}
	return err
}
