package initproc

import (
	"os"

	"eggrun/internal/hook"
	"eggrun/internal/syncsocket"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// runCreateHooks lets create run the hooks of the host's side, then runs
// createContainer: in the container's namespaces, with the host's root.
func (s *setup) runCreateHooks() error {
	if s.container == nil {
		return nil
	}
	if err := s.container.socket.Send(syncsocket.Hooks, nil); err != nil {
		return err
	}
	if _, err := s.container.socket.Expect(syncsocket.Proceed, nil); err != nil {
		return err
	}
	// Where other runtimes run them.
	if len(s.plan.CreateContainerHooks) > 0 {
		if err := unix.Fchdir(int(s.rootfs.Fd())); err != nil {
			return &os.PathError{Op: "chdir", Path: s.rootfs.Name(), Err: err}
		}
	}
	return hook.Run("createContainer", s.plan.CreateContainerHooks, s.hookState(specs.StateCreating))
}

// hookState is the container's state as hooks get it; inside, the pid is the
// one in the container's pid namespace.
func (s *setup) hookState(status specs.ContainerState) *specs.State {
	return &specs.State{
		Version:     specs.Version,
		ID:          s.container.request.ID,
		Status:      status,
		Pid:         os.Getpid(),
		Bundle:      s.container.request.Bundle,
		Annotations: s.plan.Annotations,
	}
}
