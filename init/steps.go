package initproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"
	"eggrun/spec"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"github.com/cyphar/filepath-securejoin/pathrs-lite/procfs"
	"golang.org/x/sys/unix"
)

// setup is the state of an init process while it works through its steps.
type setup struct {
	plan *spec.Plan
	// container is nil in the stand-alone wrapper.
	container *container
	// home is set in the stand-alone wrapper only.
	home home

	// rootfs is the handle of what is or will be "/"; O_PATH.
	rootfs *os.File
	// proc is a procfs of our own: the image's /proc may be anything
	// (CVE-2019-16884, CVE-2025-52881).
	proc *procfs.Handle
	// sealLast are the mounts that become read-only after all are made.
	sealLast []sealed
	// maskDir is the first mounted empty directory that hides a denied one;
	// the others are its clones.
	maskDir *os.File
	// held is the wrapper's end of the socket pair over which the reaper says
	// that it is ready, or why not, and learns that the wrapper is gone.
	held *os.File
	// caps are the program's capability sets.
	caps *linux.CapabilitySets
	// inCwd is set when the working directory has been entered.
	inCwd bool
	// command is the program, found as the user who will run it.
	command string
}

// container is what only a container's init has.
type container struct {
	socket  *syncsocket.Socket
	request syncsocket.Setup
	// fifo is the exec fifo.
	fifo *os.File
	// trees are the detached mounts that create cloned, by mount index.
	trees map[int]*os.File
	// place is where the root file system goes, nil for "/" or, among the
	// host's mounts, where it comes from.
	place *os.File
	// joined is that message where it came early.
	joined *syncsocket.Message
	// wall is the outcome of building it, which began with the first step; nil
	// where there is none to build.
	wall chan built
	// hierarchies are the container's cgroups, known once it has joined them.
	hierarchies *syncsocket.Hierarchies
}

// step is one entry of the list. A step whose part of the plan is empty does
// nothing, so the list is the same for containers and for the stand-alone
// wrapper.
type step struct {
	name string
	run  func(*setup) error
}

// steps is what init does, in this order.
var steps = []step{
	// Nothing that is mounted from here on may reach the host.
	{"private mounts", (*setup).privateMounts},
	// In the order of config.json: a mount may lie below an earlier one.
	{"rootfs", (*setup).attachRootfs},
	{"mounts", (*setup).mountAll},
	{"cgroup", (*setup).waitJoined},
	{"devices", (*setup).makeDevices},
	{"working directory, made", (*setup).makeCwd},
	// After the mounts, for the pty is one of the container's own devpts, and
	// before the root is read-only, for /dev/console is made in it.
	{"console", (*setup).makeConsole},
	// The last moment at which a hook sees host and container side by side.
	{"hooks", (*setup).runCreateHooks},
	{"pivot", (*setup).pivot},
	// Writable holes are bound from below the read-only home; denied paths
	// come after both, so that a hole never uncovers one.
	{"home", (*setup).sealHome},
	// Sysctls before readonly paths: /proc/sys is one of them.
	{"host name", (*setup).setNames},
	{"sysctl", (*setup).setSysctls},
	{"readonly paths", (*setup).denyWrites},
	{"masked paths", (*setup).denyPaths},
	{"root", (*setup).finishRoot},
	// After the root is read-only, for nothing can be made in it then.
	{"policy paths", (*setup).denyPolicy},
	// Opened before any privilege is given up, so that clients can connect
	// from their first instruction on: the kernel queues them.
	{"network", (*setup).setUpNetwork},
	{"keyring", (*setup).joinKeyring},
	// The label is for the next execve, so it holds from the program on.
	{"AppArmor", (*setup).setApparmor},
	{"SELinux", (*setup).setSelinux},
	// After the cgroup has been joined, whose CPUs and memory nodes bound
	// these, and before the rights that they need are given up. They hold for
	// this thread, the last for all of its process group, and outlive execve.
	{"personality", (*setup).setPersonality},
	{"memory policy", (*setup).setMemoryPolicy},
	{"scheduler", (*setup).setScheduler},
	{"I/O priority", (*setup).setIOPriority},
	{"working directory of root", (*setup).enterCwdAsRoot},
	// The working directory and the program are looked up with the ids and
	// capabilities that the program will have.
	{"user", (*setup).becomeUser},
	{"working directory", (*setup).enterCwd},
	{"command", (*setup).findCommand},
}

// execSteps is what init does for a further process of a container, which has
// everything else. It joins the cgroup, and sets what that bounds, last of all,
// see [setup.joinCgroup].
var execSteps = []step{
	{"handles", (*setup).openHandles},
	{"console", (*setup).makeConsole},
	{"keyring", (*setup).joinKeyring},
	{"AppArmor", (*setup).setApparmor},
	{"SELinux", (*setup).setSelinux},
	{"personality", (*setup).setPersonality},
	{"I/O priority", (*setup).setIOPriority},
	{"working directory of root", (*setup).enterCwdAsRoot},
	{"user", (*setup).becomeUser},
	{"working directory", (*setup).enterCwd},
	{"command", (*setup).findCommand},
}

// mountSteps and unmountSteps are what init does to change the mounts of a
// container.
var mountSteps = []step{
	{"handles", (*setup).openHandles},
	{"mounts", (*setup).mountAll},
	{"read-only mounts", (*setup).sealMounts},
}

var unmountSteps = []step{
	{"handles", (*setup).openHandles},
	{"mounts", (*setup).unmountAll},
}

// stepsOf are the steps of each task.
var stepsOf = map[syncsocket.Task][]step{
	syncsocket.Create:  steps,
	syncsocket.Exec:    execSteps,
	syncsocket.Mount:   mountSteps,
	syncsocket.Unmount: unmountSteps,
}

// run works through the steps.
func (s *setup) run() error {
	list := steps
	if s.container != nil {
		list = stepsOf[s.container.request.Task]
	}
	for _, step := range list {
		if err := step.run(s); err != nil {
			return err
		}
	}
	return nil
}

// runsProgram tells whether init ends in an execve.
func (s *setup) runsProgram() bool {
	task := s.container.request.Task
	return task == syncsocket.Create || task == syncsocket.Exec
}

func (s *setup) isExec() bool {
	return s.container != nil && s.container.request.Task == syncsocket.Exec
}

// openHandles opens what the steps of a container's start make for themselves.
func (s *setup) openHandles() error {
	proc, err := procfs.OpenProcRoot()
	if err != nil {
		return fmt.Errorf("open procfs: %w", err)
	}
	s.proc = proc
	root := "/"
	if s.container.request.HostMounts {
		root = s.plan.Rootfs
	}
	s.rootfs, err = os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil && s.container.request.HostMounts {
		// No mount namespace whose root setns(2) would have given us.
		err = s.enterRoot()
	}
	return err
}

// privateMounts makes this mount namespace a slave of the host's, unless it is
// the host's: what the host mounts later may appear, nothing goes back.
func (s *setup) privateMounts() error {
	if s.container == nil || !s.container.request.HostMounts {
		if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
			return &os.PathError{Op: "make slave", Path: "/", Err: err}
		}
	}
	proc, err := procfs.OpenProcRoot()
	if err != nil {
		return fmt.Errorf("open procfs: %w", err)
	}
	s.proc = proc
	if s.container == nil {
		s.rootfs, err = os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	return err
}

// setNames sets the names of a uts namespace of our own.
func (s *setup) setNames() error {
	if name := s.plan.Hostname; name != "" {
		if err := unix.Sethostname([]byte(name)); err != nil {
			return fmt.Errorf("set hostname %q: %w", name, err)
		}
	}
	if name := s.plan.Domainname; name != "" {
		if err := unix.Setdomainname([]byte(name)); err != nil {
			return fmt.Errorf("set domainname %q: %w", name, err)
		}
	}
	return nil
}

// setSysctls writes below /proc/sys of our own procfs.
func (s *setup) setSysctls() error {
	for name, value := range s.plan.Sysctl {
		f, err := s.proc.OpenRoot("sys/" + name)
		if err != nil {
			return fmt.Errorf("sysctl %q: %w", name, err)
		}
		err = writeHandle(f, value)
		f.Close()
		if err != nil {
			return fmt.Errorf("sysctl %q: %w", name, err)
		}
	}
	return nil
}

// finishRoot makes the root what config.json says, when nothing has to be made
// in it any more.
func (s *setup) finishRoot() error {
	if s.container == nil {
		return nil
	}
	if s.plan.RootReadonly {
		if err := linux.SetMountAttr(s.rootfs, unix.MOUNT_ATTR_RDONLY, 0, false); err != nil {
			return fmt.Errorf("root read-only: %w", err)
		}
	}
	if s.plan.RootPropagation != 0 {
		return linux.SetPropagation(s.rootfs, s.plan.RootPropagation)
	}
	return nil
}

// joinKeyring gives the container a session keyring of its own: the caller's
// keys are not the container's.
func (s *setup) joinKeyring() error {
	if s.container == nil || s.container.request.NoNewKeyring {
		return nil
	}
	if err := s.labelKeys(); err != nil {
		return err
	}
	keyring, err := unix.KeyctlJoinSessionKeyring("_ses." + s.container.request.ID)
	if err == unix.ENOSYS { //nolint:errorlint // a kernel without keyrings has none to share
		return nil
	}
	if err != nil {
		return os.NewSyscallError("join session keyring", err)
	}
	// The new keyring must be searchable by the program, whatever uid it has.
	const userSearch = 0x00080000
	perm, err := keyringPermissions(keyring)
	if err != nil {
		return err
	}
	if err := unix.KeyctlSetperm(keyring, perm|userSearch); err != nil {
		return os.NewSyscallError("keyring permissions", err)
	}
	return nil
}

// setApparmor asks for the profile that the program is to run under. The
// attribute is written in our own procfs: in the image's it could be any file,
// and the program would run unconfined (CVE-2019-16884).
func (s *setup) setApparmor() error {
	if s.container == nil || s.plan.Process == nil || s.plan.Process.ApparmorProfile == "" {
		return nil
	}
	profile := s.plan.Process.ApparmorProfile
	err := s.setAttr("apparmor/exec", "exec "+profile)
	if errors.Is(err, os.ErrNotExist) { // Linux before 5.8
		err = s.setAttr("exec", "exec "+profile)
	}
	if err != nil {
		return fmt.Errorf("apparmor profile %q: %w; load it or run without one", profile, err)
	}
	return nil
}

// setAttr writes an attribute of the calling thread, see proc_pid_attr(5).
func (s *setup) setAttr(name, value string) error {
	f, done, err := s.proc.OpenThreadSelf("attr/" + name)
	if err != nil {
		return err
	}
	defer done()
	defer f.Close()
	return writeHandle(f, value)
}

func keyringPermissions(keyring int) (uint32, error) {
	description, err := unix.KeyctlString(unix.KEYCTL_DESCRIBE, keyring)
	if err != nil {
		return 0, os.NewSyscallError("describe keyring", err)
	}
	// "keyring;UID;GID;PERMISSIONS;NAME", the permissions in hexadecimal.
	fields := strings.SplitN(description, ";", 5)
	if len(fields) < 5 {
		return 0, fmt.Errorf("describe keyring: unexpected %q", description)
	}
	perm, err := strconv.ParseUint(fields[3], 16, 32)
	return uint32(perm), err
}

// writeHandle writes to a file of procfs that is open with O_PATH.
func writeHandle(f *os.File, value string) error {
	opened, err := pathrs.Reopen(f, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer opened.Close()
	_, err = opened.WriteString(value)
	return err
}

// readHandle reads up to limit bytes of a file that is open with O_PATH.
func readHandle(f *os.File, limit int64) ([]byte, error) {
	opened, err := pathrs.Reopen(f, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	return io.ReadAll(io.LimitReader(opened, limit))
}
