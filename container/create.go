package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"eggrun/egress"
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
	Asker
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
	// ConsoleSize is the size of a terminal that the program is to have from
	// its first instruction on, unless config.json has one; nil for none.
	ConsoleSize *specs.Box
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
	criu    *CriuOptions // nil unless it is restored
	plan    *spec.Plan
	process *specs.Process // config.json's
	policy  *policy.Policy // nil where there is no wall
	// walled is what the policy means for the network; nil without a wall.
	walled *egress.Prepared
	cgroup cgroups.Manager
	limits *cgroups.Resources // of cgroup
	// hostMounts is set for a container without a mount namespace of its own.
	hostMounts bool
	// ownMounts is set for one whose mount namespace is new and shows the
	// host's files until init changes its root.
	ownMounts bool
	// there is where such a container's init is; nil for all others. Its thread
	// is started before init is moved into its cgroup, and ends after: in the
	// meantime the kernel makes whoever starts or ends a thread wait.
	there *linux.MountNamespace
	// rdt is nil where config.json asks for none.
	rdt     *rdtClass
	filters []*seccomp.Filter
	child   *linux.Child
	socket  *syncsocket.Socket
	// network is the namespace that the container is to be in; nil where that
	// matters to nobody.
	network *egress.Network
	// asked tells whether the container itself asks for its policy.
	asked bool
	// launch is the sidecar, which gets ready meanwhile; nil where none is
	// needed.
	launch chan launched
}

// Create makes a container from a bundle, up to the point where its program
// could be executed. Its init is a child of this process. On an error nothing
// of it is left.
func Create(options *CreateOptions) (*Container, error) {
	c := &creation{options: options}
	return c.make(c.build)
}

// make decides, and then lets build change the host.
func (c *creation) make(build func() error) (_ *Container, err error) {
	err = c.decide()
	defer c.network.Close()
	if err != nil {
		return nil, err
	}
	setUmask()
	c.dir, err = state.Create(c.options.RuntimeRoot, c.options.ID)
	if err != nil {
		return nil, err
	}
	step()
	if err := build(); err != nil {
		if c.socket != nil {
			c.socket.Close() // lets init end
		}
		err = errors.Join(err, c.endLaunched())
		err = errors.Join(err, c.destroy())
		c.Close()
		return nil, oneLine(err)
	}
	return &c.Container, nil
}

// oneLine keeps an error that was joined from several on one line.
func oneLine(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
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
	pol, err := ResolvePolicy(config, &c.options.Asker)
	if err != nil {
		return err
	}
	if pol, err = c.lookAtNetwork(config, pol); err != nil {
		return err
	}
	if c.plan, err = spec.Translate(config, c.options.Bundle, pol); err != nil {
		return err
	}
	c.policy = pol.Wall()
	if err := egress.CheckPolicyMounts(c.plan.Mounts); err != nil {
		return err
	}
	if err := c.decideRestore(pol); err != nil {
		return err
	}
	if c.criu == nil && entersOthers(c.plan) {
		if err := linux.RunSealed(c.options.RuntimeRoot, ownVariables, c.options.Preserve); err != nil {
			return err
		}
	}
	c.process = config.Process
	if err := checkSysctls(c.plan); err != nil {
		return err
	}
	if err := c.decideMounts(); err != nil {
		return err
	}
	dropLabels(c.plan, linux.HasSELinux())
	if c.options.Rootless {
		sealCgroups(c.plan)
	}
	dropProfile(c.plan, linux.HasAppArmor())
	if err := c.decideConsole(); err != nil {
		return err
	}
	if err := c.decideWall(); err != nil {
		return err
	}
	if c.filters, err = c.compileFilters(); err != nil {
		return err
	}
	if err := c.decideRdt(); err != nil {
		return err
	}
	if c.cgroup, c.limits, err = newCgroup(c.options.ID, c.options.CgroupManager, c.options.Rootless, c.plan); err != nil {
		return err
	}
	return checkFresh(c.cgroup)
}

// decideWall takes from the plan what leads around the wall, where there is to be
// one, and looks whether other containers do.
func (c *creation) decideWall() (err error) {
	if c.policy == nil {
		return checkSharing(c.options.RuntimeRoot, c.plan)
	}
	stateDir := filepath.Join(c.options.RuntimeRoot, c.options.ID)
	if c.walled, err = egress.Prepare(c.plan, c.network, c.policy, stateDir); err != nil {
		return err
	}
	around := surroundings(c.plan.Process, c.options.Preserve, c.options.CgroupManager)
	around.Where = c.where()
	// Podman's, for --sdnotify=container; conmon listens there.
	around.NotifyDir = filepath.Join(c.options.Bundle, "notify")
	if err := egress.Confine(c.plan, c.policy, around); err != nil {
		return err
	}
	if err := checkNetDevices(c.plan.NetDevices); err != nil {
		return err
	}
	return checkRulers(c.options.RuntimeRoot, c.plan)
}

// surroundings are for [egress.Confine]. Where the program has a terminal it gets
// none of the caller's standard streams.
func surroundings(process *spec.Process, preserve []int, cgroupManager string) egress.Surroundings {
	fds := slices.Clone(preserve)
	if process == nil || !process.Terminal {
		fds = append([]int{0, 1, 2}, fds...)
	}
	return egress.Surroundings{FDs: fds, DevicesOpen: cgroupManager == ManagerDisabled}
}

func (c *creation) decideConsole() error {
	wants := c.plan.Process != nil && c.plan.Process.Terminal
	if wants && c.plan.Process.Console == nil {
		c.plan.Process.Console = c.options.ConsoleSize
	}
	return checkConsole(wants, c.options.Console != nil, c.options.ConsoleOptional)
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
	if err := c.prepareSidecar(); err != nil {
		return err
	}
	if err := c.spawn(); err != nil {
		return err
	}
	step()
	if err := c.enterNetwork(); err != nil {
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
	if c.ownMounts {
		if c.there, err = linux.EnterMountNamespace(c.child.Pidfd); err != nil {
			return err
		}
		defer c.there.Close()
	}
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
		Cgroup:          state.Cgroup{Manager: c.options.CgroupManager, Path: c.plan.CgroupsPath, Rootless: c.options.Rootless},
		Hooks:           specs.Hooks{Poststart: c.plan.Hooks.Poststart, Poststop: c.plan.Hooks.Poststop},
	}
	if c.plan.Process != nil {
		s.ExecCPUAffinity = c.plan.Process.ExecCPUAffinity
	}
	if c.cgroup != nil {
		s.Cgroup.Paths = c.cgroup.GetPaths()
		if sub, ok := c.cgroup.(*subgroup); ok {
			s.Cgroup.Subgroup, s.Cgroup.Delegate = sub.name, sub.delegate
		}
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
