package container

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"eggrun/egress"
	"eggrun/internal/hook"
	"eggrun/internal/linux"
	"eggrun/internal/seccomp"
	"eggrun/internal/state"
	"eggrun/internal/syncsocket"
	"eggrun/policy"
	"eggrun/spec"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// CreateOptions are what the command line says beside the bundle.
type CreateOptions struct {
	RuntimeRoot string
	ID          string
	// Bundle is absolute.
	Bundle string
	// PIDFile is written last, "" for none.
	PIDFile string
	// PreserveFDs is how many descriptors from 3 on the program keeps;
	// Preserve are those of them that are open. See [linux.FillHoles].
	PreserveFDs int
	Preserve    []int
	// ListenFDs is how many of them a service manager passed to this process,
	// ListenFDNames what it called them; see sd_listen_fds(3).
	ListenFDs     int
	ListenFDNames string
	NoNewKeyring  bool
	// NoPivot keeps the host's root below the container's, where pivot_root(2)
	// is not to be had. Who may unmount in the container gets at it.
	NoPivot bool
	// CgroupManager is one of the Manager constants.
	CgroupManager string
	// Rootless is set for a caller that may not manage cgroups.
	Rootless bool
	// Console receives the master of the program's terminal; nil where there
	// is nobody to take it. The callee closes it.
	Console func(master *os.File) error
	// ConsoleOptional is set where it is no error if Console is not needed.
	ConsoleOptional bool
	// Pidfd gets a pidfd of the container's init, which stays the caller's;
	// nil where nobody wants it.
	Pidfd func(pidfd *os.File) error
	// NotifySocket is the address of the service manager's socket, from
	// NOTIFY_SOCKET; "" for none. See [Container.ListenNotify].
	NotifySocket string
}

// creation is a container that is being made.
type creation struct {
	Container
	options *CreateOptions
	plan    *spec.Plan
	process *specs.Process // config.json's
	policy  *policy.Policy
	cgroup  cgroups.Manager
	// hostMounts is set for a container without a mount namespace of its own.
	hostMounts bool
	// rdt is nil where config.json asks for none.
	rdt     *rdtClass
	filters []*seccomp.Filter
	child   *linux.Child
	socket  *syncsocket.Socket
}

// Create makes a container from a bundle, up to the point where its program
// could be executed. Its init is a child of this process. On an error nothing
// of it is left.
func Create(options *CreateOptions) (_ *Container, err error) {
	c := &creation{options: options}
	if err := c.decide(); err != nil {
		return nil, err
	}
	c.dir, err = state.Create(options.RuntimeRoot, options.ID)
	if err != nil {
		return nil, err
	}
	step()
	if err := c.build(); err != nil {
		if c.socket != nil {
			c.socket.Close() // lets init end
		}
		err = errors.Join(err, c.destroy())
		c.Close()
		return nil, oneLine(err)
	}
	return &c.Container, nil
}

// oneLine keeps an error that was joined from several on one line.
func oneLine(err error) error {
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // not one that is wrapped
	if !ok || !strings.Contains(err.Error(), "\n") {
		return err
	}
	var line error
	for _, err := range joined.Unwrap() {
		if line == nil {
			line = oneLine(err)
			continue
		}
		line = fmt.Errorf("%w; and then: %w", line, oneLine(err))
	}
	return line
}

// decide does all that needs no change on the host.
func (c *creation) decide() error {
	config, err := spec.Load(c.options.Bundle)
	if err != nil {
		return err
	}
	if c.policy, err = policy.Resolve(config.Annotations); err != nil {
		return err
	}
	if c.plan, err = spec.Translate(config, c.options.Bundle, c.policy); err != nil {
		return err
	}
	c.process = config.Process
	if err := c.decideMounts(); err != nil {
		return err
	}
	dropLabels(c.plan, linux.HasSELinux())
	if c.options.Rootless {
		sealCgroups(c.plan)
	}
	dropProfile(c.plan, linux.HasAppArmor())
	wantsTerminal := c.plan.Process != nil && c.plan.Process.Terminal
	if err := checkConsole(wantsTerminal, c.options.Console != nil, c.options.ConsoleOptional); err != nil {
		return err
	}
	if c.policy != nil {
		if err := egress.Prepare(c.plan); err != nil {
			return err
		}
		if err := checkNetDevices(c.plan.NetDevices); err != nil {
			return err
		}
	}
	if c.filters, err = c.compileFilters(); err != nil {
		return err
	}
	if err := c.decideRdt(); err != nil {
		return err
	}
	if c.cgroup, err = newCgroup(c.options.ID, c.options.CgroupManager, c.options.Rootless, c.plan); err != nil {
		return err
	}
	return checkFresh(c.cgroup)
}

// checkConsole tells whether somebody takes the terminal that is wanted, and
// nobody waits for one that is not.
func checkConsole(wants, offered, optional bool) error {
	if wants && !offered {
		return errors.New("process.terminal: nobody takes the terminal; give --console-socket")
	}
	if !wants && offered && !optional {
		return errors.New("option --console-socket: process.terminal is not set")
	}
	return nil
}

// compileFilters returns, in the order in which they are loaded, the guard of a
// container with a policy and the filter of config.json. The guard is first, for
// a profile may deny seccomp(2); the stricter verdict wins in either order. The
// cache is beside the containers' state.
func (c *creation) compileFilters() ([]*seccomp.Filter, error) {
	var filters []*seccomp.Filter
	cache := filepath.Join(c.options.RuntimeRoot, ".cache")
	if c.policy != nil {
		guard, err := seccomp.Guard(cache)
		if err != nil {
			return nil, err
		}
		filters = append(filters, guard)
	}
	filter, err := seccomp.Compile(c.plan.Seccomp, cache)
	if err != nil {
		return nil, err
	}
	if filter != nil {
		filters = append(filters, filter)
	}
	return filters, nil
}

// build changes the host: state, cgroup, process. Each step is in the state
// before it is taken.
func (c *creation) build() error {
	c.state = c.newState()
	if err := c.dir.Save(c.state); err != nil {
		return err
	}
	step()
	if err := c.prepareNotify(); err != nil {
		return err
	}
	fifo, err := c.dir.MakeFIFO()
	if err != nil {
		return err
	}
	defer fifo.Close()
	step()
	if err := c.spawn(); err != nil {
		return err
	}
	step()
	if err := c.joinRdt(); err != nil {
		return err
	}
	step()
	if err := moveNetDevices(c.child.PID, c.plan.NetDevices); err != nil {
		return err
	}
	step()
	if err := c.send(fifo); err != nil {
		return err
	}
	step()
	joined := make(chan error, 1)
	go func() { joined <- c.join() }()
	err = c.converse()
	// Whatever happened: the cgroup must not be made after it was removed. Of
	// two errors that which made init end comes first.
	if joinErr := <-joined; joinErr != nil && (err == nil || errors.Is(err, errInitEnded)) {
		return joinErr
	}
	if err != nil {
		return err
	}
	return c.finish()
}

func (c *creation) newState() *state.State {
	_, ownPID := c.plan.HasNamespace(specs.PIDNamespace)
	s := &state.State{
		OCIVersion:      c.plan.OCIVersion,
		ID:              c.options.ID,
		Bundle:          c.options.Bundle,
		Rootfs:          c.plan.Rootfs,
		Created:         time.Now().UTC(),
		Annotations:     c.plan.Annotations,
		OwnerUID:        os.Getuid(),
		OwnPIDNamespace: ownPID,
		HasProcess:      c.plan.Process != nil,
		Cgroup:          state.Cgroup{Manager: c.options.CgroupManager, Path: c.plan.CgroupsPath},
		Hooks:           specs.Hooks{Poststart: c.plan.Hooks.Poststart, Poststop: c.plan.Hooks.Poststop},
	}
	if c.plan.Process != nil {
		s.ExecCPUAffinity = c.plan.Process.ExecCPUAffinity
	}
	if c.cgroup != nil {
		s.Cgroup.Paths = c.cgroup.GetPaths()
		s.Resources = withoutDevices(c.plan.Resources)
	}
	if c.rdt != nil {
		s.Resctrl, s.IntelRdt = c.rdt.leaves(), c.plan.IntelRdt
	}
	if c.policy != nil {
		s.Walled, s.Domains = true, c.policy.Domains
	}
	return s
}

// spawn starts init, which waits for its plan.
func (c *creation) spawn() error {
	var err error
	c.child, c.socket, err = startInit(c.dir.Path(), c.options.Preserve, func(request *linux.SpawnRequest) error {
		request.Cgroup = birthCgroup(c.cgroup, c.options.CgroupManager)
		return setNamespaces(request, c.plan)
	})
	if err != nil {
		return err
	}
	step()
	if c.state.Init, err = linux.FindProcess(c.child.PID); err != nil {
		return err
	}
	return c.dir.Save(c.state)
}

// send sends the plan, with a clone of the root file system.
func (c *creation) send(fifo *os.File) error {
	setup := syncsocket.Setup{
		ID:            c.options.ID,
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
	rootfs, err := linux.CloneTree(c.plan.Rootfs, true)
	if err != nil {
		return fmt.Errorf("rootfs %q: %w", c.plan.Rootfs, errors.Unwrap(err))
	}
	defer rootfs.Close()
	if err := c.noteRoot(rootfs); err != nil {
		return err
	}
	if err := setScore(c.child.PID, c.score()); err != nil {
		return err
	}
	return c.socket.Send(syncsocket.Request, &setup, fifo, rootfs)
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
		if err := joinCgroup(c.cgroup, pid, c.resources()); err != nil {
			c.socket.Shutdown() // init waits for this
			return err
		}
	}
	step()
	h, err := hierarchies(c.child.PID, c.plan)
	if err == nil {
		err = c.socket.Send(syncsocket.Joined, h, h.Trees...)
	}
	if err != nil {
		c.socket.Shutdown()
	}
	return err
}

func (c *creation) resources() *cgroups.Resources {
	config, err := c.cgroup.GetCgroups()
	if err != nil {
		return &cgroups.Resources{}
	}
	return config.Resources
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
			err = c.sendTrees(message)
		case syncsocket.Console:
			err = c.options.Console(message.Files[0])
		case syncsocket.Listener:
			err = c.startSidecar(message.Files[0])
		case syncsocket.Hooks:
			err = c.runHooks()
		case syncsocket.Seccomp:
			err = handOverListener(c.socket, c.child, message, c.plan.Seccomp, c.hookState(specs.StateCreating))
		case syncsocket.Ready:
			return nil
		default:
			err = fmt.Errorf("sync message %q: unexpected", message.Kind)
		}
		if err != nil {
			return err
		}
	}
}

// runHooks runs the hooks that see the namespaces before anything of the host
// is gone from them.
func (c *creation) runHooks() error {
	if c.plan.Process != nil {
		if err := raiseRlimits(c.child.PID, c.plan.Process.Rlimits); err != nil {
			return err
		}
	}
	hooks := c.plan.Hooks
	//nolint:staticcheck // deprecated in the specification, used by engines
	if err := hook.Run("prestart", hooks.Prestart, c.hookState(specs.StateCreated)); err != nil {
		return err
	}
	if err := hook.Run("createRuntime", hooks.CreateRuntime, c.hookState(specs.StateCreating)); err != nil {
		return err
	}
	step()
	return c.socket.Send(syncsocket.Proceed, nil)
}

// startSidecar hands the listener that init opened to the egress proxy.
func (c *creation) startSidecar(listener *os.File) error {
	defer listener.Close()
	sidecar, err := egress.StartSidecar(&egress.SidecarOptions{
		ID:       c.options.ID,
		Domains:  c.policy.Domains,
		Listener: listener,
		Init:     c.child.Pidfd,
		StateDir: c.dir.Path(),
		Rootless: c.options.Rootless,
	})
	if err != nil {
		return fmt.Errorf("egress proxy: %w", err)
	}
	step()
	c.state.Sidecar = sidecar
	return c.dir.Save(c.state)
}

// finish makes the container known as created.
func (c *creation) finish() error {
	if c.cgroup != nil {
		if err := lateLimits(c.cgroup, c.resources()); err != nil {
			return err
		}
	}
	step()
	if c.options.Pidfd != nil {
		if err := c.options.Pidfd(c.child.Pidfd); err != nil {
			return err
		}
	}
	if err := c.dir.SaveExec(newExecBase(c.process, c.plan, c.filters)); err != nil {
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

// writePIDFile writes the pid atomically: engines watch for the file.
func writePIDFile(path string, pid int) error {
	if path == "" {
		return nil
	}
	aside := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.WriteFile(aside, []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("pid file: %w", err)
	}
	if err := os.Rename(aside, path); err != nil {
		return errors.Join(fmt.Errorf("pid file: %w", err), os.Remove(aside))
	}
	return nil
}
