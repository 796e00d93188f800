package container

import (
	"fmt"
	"os"
	"path/filepath"

	"eggrun/egress"
)

// launched is the outcome of [egress.Launch].
type launched struct {
	sidecar *egress.Launched
	err     error
}

// launchSidecar starts the sidecar, which confines itself while init makes its
// mounts. Where this process is killed in the meantime it ends too.
func (c *creation) launchSidecar() {
	c.launch = make(chan launched, 1)
	go func() {
		sidecar, err := egress.Launch(c.dir.Path())
		c.launch <- launched{sidecar, err}
	}()
}

// takeLaunched waits for the sidecar that was launched, once.
func (c *creation) takeLaunched() (*egress.Launched, error) {
	l := <-c.launch
	c.launch = nil
	if l.err != nil {
		return nil, fmt.Errorf("egress proxy: %w", l.err)
	}
	return l.sidecar, nil
}

// endLaunched ends a sidecar that was never told what to serve.
func (c *creation) endLaunched() error {
	if c.launch == nil {
		return nil
	}
	sidecar, err := c.takeLaunched()
	if err != nil {
		return err
	}
	return sidecar.End()
}

// startSidecar hands the listener that init opened to the egress proxy.
func (c *creation) startSidecar(listener *os.File) error {
	defer listener.Close()
	sidecar, err := c.takeLaunched()
	if err != nil {
		return err
	}
	process, err := sidecar.Serve(&egress.ServeOptions{
		ID:       c.options.ID,
		Policy:   c.policy,
		Listener: listener,
		Init:     c.child.Pidfd,
		Rootless: c.options.Rootless,
		CacheDir: filepath.Join(c.options.RuntimeRoot, ".cache"),
	})
	if err != nil {
		return fmt.Errorf("egress proxy: %w", err)
	}
	step()
	c.state.Sidecar = process
	return c.dir.Save(c.state)
}
