package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"eggrun/egress"
	"eggrun/egress/inside"
	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"
	"eggrun/policy"
	"eggrun/sandbox"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// launched is the outcome of [egress.Launch].
type launched struct {
	sidecar *egress.Launched
	err     error
}

// lookAtNetwork returns the policy of a container that asks for own: that of the
// network namespace which it is to join, if that has one.
func (c *creation) lookAtNetwork(config *specs.Spec, own *policy.Policy) (*policy.Policy, error) {
	if config.Linux == nil {
		return own, nil
	}
	i := slices.IndexFunc(config.Linux.Namespaces, func(ns specs.LinuxNamespace) bool { return ns.Type == specs.NetworkNamespace })
	if i < 0 || own == nil && !egress.HasAny(c.where()) {
		return own, nil
	}
	var err error
	c.network, err = egress.LookAt(config.Linux.Namespaces[i].Path, c.where())
	if err != nil {
		return nil, err
	}
	return c.network.Agree(own, c.asks(config))
}

// asks tells whether a container asks for a policy, or has at most what a file
// gives to all.
func (c *creation) asks(config *specs.Spec) bool {
	c.asked = c.options.Asker.Profile != ""
	for key := range config.Annotations {
		c.asked = c.asked || policy.IsKey(key)
	}
	return c.asked
}

func (c *creation) where() egress.Where {
	return egress.Where{RuntimeRoot: c.options.RuntimeRoot, Rootless: c.options.Rootless}
}

// prepareSidecar starts the sidecar, where there is none to join: it confines
// itself while init makes its mounts. Where this process is killed in the
// meantime it ends too.
func (c *creation) prepareSidecar() error {
	if c.walled == nil {
		return nil
	}
	if !c.network.IsServed() {
		c.launchSidecar()
	}
	return c.walled.MountFiles(c.plan)
}

func (c *creation) launchSidecar() {
	c.launch = make(chan launched, 1)
	go func() {
		sidecar, err := egress.Launch(c.dir.Path())
		c.launch <- launched{sidecar, err}
	}()
}

// takeLaunched waits for the sidecar that was launched, once.
func (c *creation) takeLaunched() (*egress.Launched, error) {
	if c.launch == nil {
		c.launchSidecar()
	}
	l := <-c.launch
	c.launch = nil
	return l.sidecar, l.err
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

func (c *creation) member() *egress.Member {
	return &egress.Member{
		ID:       c.options.ID,
		Asked:    c.asked,
		Init:     c.child.Pidfd,
		Process:  c.state.Init,
		CacheDir: filepath.Join(c.options.RuntimeRoot, ".cache"),
		Launch:   c.takeLaunched,
		Note: func(entry string) error {
			c.state.Network = entry
			return c.dir.Save(c.state)
		},
	}
}

// enterNetwork makes the container a member of a network namespace that was
// there before it.
func (c *creation) enterNetwork() error {
	if c.walled == nil || c.network.IsNew() {
		return nil
	}
	sidecar, err := c.walled.Enter(c.member())
	return c.noteSidecar(sidecar, err)
}

// takeSockets hands the sockets that init opened in its own network namespace to
// the sidecar.
func (c *creation) takeSockets(message *syncsocket.Message) error {
	var body syncsocket.Sockets
	if err := message.Decode(syncsocket.Listener, &body); err != nil {
		return err
	}
	if len(body.Names) != len(message.Files) || len(body.Names) == 0 || c.walled == nil {
		return unexpected(message)
	}
	sockets := &inside.Sockets{NoTables: body.NoTables}
	for i, name := range body.Names {
		sockets.All = append(sockets.All, inside.Socket{Name: name, File: message.Files[i]})
	}
	defer sockets.Close()
	sidecar, err := c.walled.EnterNew(c.member(), sockets)
	return c.noteSidecar(sidecar, err)
}

func (c *creation) noteSidecar(sidecar linux.Process, err error) error {
	if err != nil {
		var enforcement *sandbox.EnforcementError
		if errors.As(err, &enforcement) {
			return err
		}
		return fmt.Errorf("egress proxy: %w", err)
	}
	step()
	c.state.Sidecar = sidecar
	if err := c.dir.Save(c.state); err != nil {
		return err
	}
	return c.startKiller()
}

// startKiller sees to it that the container ends with its sidecar, where the
// policy says so, or where nothing but the sidecar sees that the namespace was
// opened.
func (c *creation) startKiller() error {
	if !c.policy.KillOnProxyExit && !c.walled.NoTables {
		return nil
	}
	var kill *os.File
	if c.cgroup != nil && cgroups.IsCgroup2UnifiedMode() {
		f, err := os.OpenFile(filepath.Join(c.cgroup.Path(""), "cgroup.kill"), os.O_WRONLY, 0)
		if err == nil { // not before Linux 5.14, or not yet in its cgroup
			defer f.Close()
			kill = f
		}
	}
	_, err := egress.StartKiller(c.state.Sidecar, c.child.Pidfd, kill, c.dir.Path())
	if err != nil {
		return fmt.Errorf("on-proxy-exit: %w", err)
	}
	step()
	return nil
}

// recheckWall looks whether the wall stands when the program is about to start:
// an engine may have put interfaces into the namespace since create. It tells
// init which environment that makes.
func (c *Container) recheckWall() (syncsocket.Word, error) {
	var base execBase
	if err := c.dir.LoadExec(&base); err != nil {
		return 0, err
	}
	unsettled := base.Wall.Unsettled != nil
	if err := egress.Started(c.state.Init, c.state.Network, &base.Policy, base.Wall); err != nil {
		return 0, err
	}
	if unsettled {
		if err := c.dir.SaveExec(base); err != nil {
			return 0, err
		}
	}
	if !base.Wall.ProxyEnv {
		return syncsocket.StartOpen, nil
	}
	return syncsocket.Start, nil
}
