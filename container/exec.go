package container

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"eggrun/egress"
	"eggrun/internal/linux"
	"eggrun/internal/seccomp"
	"eggrun/internal/state"
	"eggrun/internal/syncsocket"
	"eggrun/policy"
	"eggrun/spec"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// execBase is what create keeps for further processes of the container.
type execBase struct {
	// Process is config.json's.
	Process *specs.Process `json:"process"`
	// Plan is the container's.
	Plan    *spec.Plan        `json:"plan"`
	Filters []*seccomp.Filter `json:"filters,omitempty"`
	// Wall is what a container with a policy is held to.
	Wall *egress.Kept `json:"wall,omitempty"`
	// Agent says who is told of what the filters hand over, and nothing else
	// of linux.seccomp; nil for nobody.
	Agent *specs.LinuxSeccomp `json:"agent,omitempty"`
	// Policy allows nothing for a container without one.
	Policy policy.Policy `json:"policy,omitzero"`
	// Streams are the links in /proc of what create gave the container as its
	// standard streams, for checkpoint.
	Streams []string `json:"streams,omitempty"`
}

func newExecBase(process *specs.Process, plan *spec.Plan, filters []*seccomp.Filter) *execBase {
	base := &execBase{Process: process, Plan: plan, Filters: filters}
	if s := plan.Seccomp; s != nil && s.ListenerPath != "" {
		base.Agent = &specs.LinuxSeccomp{ListenerPath: s.ListenerPath, ListenerMetadata: s.ListenerMetadata}
	}
	return base
}

// ExecOptions say what is to run in an existing container.
type ExecOptions struct {
	// Process returns the whole process, from config.json's, which is nil for
	// a container without one.
	Process func(base *specs.Process) (*specs.Process, error)
	// PIDFile is written when the program is certain to run, "" for none.
	PIDFile string
	// PreserveFDs and Preserve are as in [CreateOptions].
	PreserveFDs int
	Preserve    []int
	// Reads are descriptors of the caller's that Process reads from.
	Reads []int
	// Console receives the master of the program's terminal; nil where there
	// is nobody to take it. The callee closes it.
	Console func(master *os.File) error
	// ConsoleOptional and ConsoleSize are as in [CreateOptions].
	ConsoleOptional bool
	ConsoleSize     *specs.Box
	// Pidfd gets a pidfd of the process, which stays the caller's; nil where
	// nobody wants it.
	Pidfd func(pidfd *os.File) error
	// SubCgroups are paths below the container's cgroup, by v1 controller or
	// under "" on v2, for the process to be in.
	SubCgroups map[string]string
	// IgnorePaused runs it also in a paused container, where it waits.
	IgnorePaused bool
}

// execution is a further process of a container that is being started.
type execution struct {
	*Container
	options *ExecOptions
	base    execBase
	child   *linux.Child
	socket  *syncsocket.Socket
}

// Exec starts a further process in a running container and returns when its
// program has been executed. The process is a child of this one.
func (c *Container) Exec(options *ExecOptions) (linux.Process, error) {
	switch status := c.Status(); {
	case status == specs.StateStopped:
		return linux.Process{}, errors.New("container not running")
	case status == Paused && !options.IgnorePaused:
		return linux.Process{}, errors.New("cannot exec in a paused container; resume it or use --ignore-paused")
	case status == specs.StateCreating:
		return linux.Process{}, c.wrongState("running")
	}
	if err := linux.RunSealed(c.dir.Path(), ownVariables, slices.Concat(options.Preserve, options.Reads)); err != nil {
		return linux.Process{}, err
	}
	setUmask()
	x := &execution{Container: c, options: options}
	if err := x.decide(); err != nil {
		return linux.Process{}, err
	}
	process, err := x.start()
	if err != nil && x.child != nil {
		x.socket.Close() // lets it end
		_ = linux.PidfdSignal(x.child.Pidfd, unix.SIGKILL)
		_, _ = unix.Wait4(x.child.PID, nil, 0, nil)
	}
	return process, err
}

// decide makes the plan: the container's, with the new process.
func (x *execution) decide() error {
	if err := x.dir.LoadExec(&x.base); err != nil {
		return err
	}
	process, err := x.options.Process(x.base.Process)
	if err != nil {
		return err
	}
	plan := x.base.Plan
	planned, err := spec.TranslateProcess(process, plan)
	if err != nil {
		return err
	}
	if planned.OOMScoreAdj == nil && plan.Process != nil {
		planned.OOMScoreAdj = plan.Process.OOMScoreAdj
	}
	if planned.ExecCPUAffinity == nil {
		planned.ExecCPUAffinity = x.state.ExecCPUAffinity
	}
	if planned.Terminal && planned.Console == nil {
		planned.Console = x.options.ConsoleSize
	}
	plan.Process = planned
	dropLabels(plan, linux.HasSELinux())
	dropProfile(plan, linux.HasAppArmor())
	if x.state.Walled {
		planned.Env = egress.Environment(planned.Env, plan.Hostname, x.base.Wall.ProxyEnv)
		around := surroundings(planned, x.options.Preserve, x.state.Cgroup.Manager)
		if err := egress.ConfineExec(planned, x.state.Init.PID, &x.base.Policy, around); err != nil {
			return err
		}
	} else if err := x.confineGuest(planned); err != nil {
		return err
	}
	return checkConsole(planned.Terminal, x.options.Console != nil, x.options.ConsoleOptional)
}

// confineGuest takes from a process of a container without a policy, whose network
// namespace has one since others have joined it, what could undo their wall.
func (x *execution) confineGuest(planned *spec.Process) error {
	where := egress.Where{RuntimeRoot: filepath.Dir(x.dir.Path()), Rootless: x.state.Cgroup.Rootless}
	if _, ok := x.base.Plan.HasNamespace(specs.NetworkNamespace); !ok || !egress.HasAny(where) {
		return nil
	}
	network, err := egress.LookAt(fmt.Sprintf("/proc/%d/ns/net", x.state.Init.PID), where)
	if err != nil {
		return err
	}
	defer network.Close()
	pol, err := network.Agree(nil, false)
	if err != nil || pol == nil {
		return err
	}
	around := surroundings(planned, x.options.Preserve, x.state.Cgroup.Manager)
	return egress.ConfineExec(planned, x.state.Init.PID, pol, around)
}

func (x *execution) start() (linux.Process, error) {
	var err error
	if x.state.Walled {
		if err := egress.Executed(x.state.Init, x.state.Network, &x.base.Policy, x.base.Wall); err != nil {
			return linux.Process{}, err
		}
	}
	go readyToMove(x.state)
	x.child, x.socket, err = startInit(x.dir.Path(), x.options.Preserve, func(request *linux.SpawnRequest) error {
		return joinNamespaces(request, x.base.Plan, x.state.Init)
	})
	if err != nil {
		return linux.Process{}, err
	}
	process, err := linux.FindProcess(x.child.PID)
	if err != nil {
		return process, err
	}
	p := x.base.Plan.Process
	if err := setScore(x.child.PID, p.OOMScoreAdj); err != nil {
		return process, err
	}
	if err := raiseRlimits(x.child.PID, p.Rlimits); err != nil {
		return process, err
	}
	setup := syncsocket.Setup{
		ID: x.state.ID, Task: syncsocket.Exec, Plan: x.base.Plan, Filters: x.base.Filters,
		Preserve: x.options.PreserveFDs, Bundle: x.state.Bundle, HostMounts: x.state.HostMount != 0,
	}
	if err := x.socket.Send(syncsocket.Request, &setup); err != nil {
		return process, err
	}
	err = x.converse()
	if err == nil && x.options.Pidfd != nil {
		err = x.options.Pidfd(x.child.Pidfd)
	}
	if err != nil {
		return process, err
	}
	return process, writePIDFile(x.options.PIDFile, x.child.PID)
}

// place puts the process on its CPUs and into the container's cgroup, or one
// below it, in the order of process.execCPUAffinity in the specification.
func (x *execution) place() error {
	affinity := x.base.Plan.Process.ExecCPUAffinity
	if affinity == nil {
		affinity = &specs.CPUAffinity{}
	}
	if err := setAffinity(x.child.PID, "initial", affinity.Initial); err != nil {
		return err
	}
	if err := joinExisting(x.state, x.child.PID, x.options.SubCgroups); err != nil {
		return err
	}
	if affinity.Initial == "" && affinity.Final == "" {
		resetAffinity(x.child.PID)
	}
	if err := setAffinity(x.child.PID, "final", affinity.Final); err != nil {
		return err
	}
	return x.socket.Send(syncsocket.Joined, nil)
}

// resetAffinity lets the first thread of a process run on every CPU that its
// cgroup allows: those on which the caller runs are not the container's. Where
// it may not, it runs on them.
func resetAffinity(pid int) {
	const maxCPUs = 8192 // CONFIG_NR_CPUS at most
	all := unix.NewCPUSet(maxCPUs)
	all.Fill()
	_ = unix.SchedSetaffinityDynamic(pid, all)
}

// setAffinity lets the first thread of a process, which becomes the program, run
// on the CPUs of a list; "" changes nothing.
func setAffinity(pid int, field, list string) error {
	if list == "" {
		return nil
	}
	field = "process.execCPUAffinity." + field
	ranges, err := spec.ParseIDList(list)
	if err != nil {
		return fmt.Errorf("%s %q: %w", field, list, err)
	}
	err = unix.SchedSetaffinityDynamic(pid, spec.IDMask(ranges))
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%s %q: none of these CPUs is there and in linux.resources.cpu.cpus", field, list)
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w", field, list, err)
	}
	return nil
}

// converse answers init until it has executed the program, which closes its end
// of the socket.
func (x *execution) converse() error {
	isReady := false
	for {
		message, err := x.socket.Receive()
		if errors.Is(err, io.EOF) && isReady {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return errInitEnded
		}
		if err != nil {
			return err
		}
		switch message.Kind {
		case syncsocket.Failed:
			err = message.Failure()
		case syncsocket.Console:
			err = handOverConsole(message, x.options.Console)
		case syncsocket.Settled:
			err = x.place()
		case syncsocket.Seccomp:
			err = handOverListener(x.socket, x.child, message, x.base.Agent, x.hookState(specs.StateRunning))
		case syncsocket.Ready:
			isReady = true
		default:
			err = unexpected(message)
		}
		if err != nil {
			return err
		}
	}
}

// WaitExec waits in the foreground for a process that [Container.Exec] started,
// as [Container.Wait] does for the first one.
func WaitExec(process linux.Process, signals <-chan os.Signal) (int, error) {
	return waitFor(process, signals)
}

// joinExisting moves a process into the cgroups of an existing container. On v2
// the container's init may have moved on below it: the kernel then allows
// processes only where init is.
func joinExisting(s *state.State, pid int, sub map[string]string) error {
	m, err := openCgroup(s)
	if err != nil || m == nil {
		return err
	}
	if len(sub) > 0 {
		return joinSubCgroups(m, pid, sub)
	}
	err = m.AddPid("", pid)
	if err != nil && cgroups.IsCgroup2UnifiedMode() {
		own, parseErr := cgroups.ParseCgroupFile(fmt.Sprintf("/proc/%d/cgroup", s.Init.PID))
		if parseErr == nil {
			err = cgroups.WriteCgroupProc("/sys/fs/cgroup"+own[""], pid)
		}
	}
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

func joinSubCgroups(m cgroups.Manager, pid int, sub map[string]string) error {
	dirs, err := subCgroupDirs(m.GetPaths(), sub)
	if err != nil {
		return fmt.Errorf("option --cgroup: %w", err)
	}
	for _, dir := range dirs {
		if err := cgroups.WriteCgroupProc(dir, pid); err != nil {
			var file *os.PathError
			if errors.As(err, &file) {
				err = file
			}
			return fmt.Errorf("option --cgroup: adding pid %d to cgroups: %w", pid, err)
		}
	}
	return nil
}

// subCgroupDirs returns the container's cgroups, with what is to be below them.
func subCgroupDirs(paths, sub map[string]string) ([]string, error) {
	for controller, below := range sub {
		if _, ok := paths[controller]; !ok && controller != "" {
			return nil, fmt.Errorf("unknown controller %q", controller)
		}
		if slices.Contains(strings.Split(below, "/"), "..") {
			return nil, fmt.Errorf("bad sub cgroup path %q: must stay below the container's", below)
		}
	}
	var dirs []string
	for controller, path := range paths {
		below, ok := sub[controller]
		if !ok {
			below = sub[""] // for every hierarchy
		}
		dirs = append(dirs, filepath.Join(path, below))
	}
	return dirs, nil
}
