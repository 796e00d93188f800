package container

import (
	"errors"

	"eggrun/internal/hook"
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
