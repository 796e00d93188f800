package initproc

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"eggrun/internal/hook"
	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"
	"eggrun/spec"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// execute is the end of a container's init: limits, filters, wait, execve. A
// further process of a container does not wait.
//
// Everything that allocates comes first. From the first rlimit on only plain
// system calls are made, for the Go runtime does not outlive a small
// RLIMIT_AS, RLIMIT_DATA or RLIMIT_NPROC that it notices.
func (s *setup) execute() error {
	p := s.plan.Process
	if p == nil {
		return s.waitForEver()
	}
	last, err := s.prepareLast()
	if err != nil {
		return err
	}
	if s.isExec() {
		linux.HoldThread()
		defer linux.ReleaseThread()
		if err := s.joinCgroup(last); err != nil {
			return err
		}
	}
	program := last.program
	if err := setRlimits(p.Rlimits); err != nil {
		return err
	}
	if err := last.filters.load(); err != nil {
		return err
	}
	if err := s.caps.Apply(0); err != nil {
		return err
	}
	if errno := linux.RawWrite(last.socket, last.ready); errno != 0 {
		return os.NewSyscallError("report ready", errno)
	}
	if !s.isExec() {
		_ = unix.Close(last.socket)
		if waitForStart(last.fifo) != syncsocket.StartOpen {
			program = last.closed
		}
		if err := hook.Run("startContainer", s.startHooks(), s.hookState(specs.StateCreated)); err != nil {
			return err
		}
	}
	errno := program.Run()
	return fmt.Errorf("exec %s: %w", s.command, errno) // in the words of runc, which people search for
}

// last is all that is needed from the first rlimit on.
type last struct {
	program *linux.Exec
	// closed is the program with the environment for a network namespace that no
	// engine has opened.
	closed *linux.Exec
	// ready and settled are written, joined is read.
	ready, settled, joined []byte
	// socket and fifo are descriptors; fifo is -1 where nobody waits for start.
	socket, fifo int
	filters      *filters
}

func (s *setup) prepareLast() (*last, error) {
	l := &last{socket: int(s.container.socket.File().Fd()), fifo: -1}
	if !s.isExec() {
		l.fifo = int(s.container.fifo.Fd())
	}
	var err error
	if l.program, l.closed, err = s.preparePrograms(); err != nil {
		return nil, err
	}
	for _, message := range []struct {
		kind syncsocket.Kind
		data *[]byte
	}{{syncsocket.Ready, &l.ready}, {syncsocket.Settled, &l.settled}, {syncsocket.Joined, &l.joined}} {
		if *message.data, err = syncsocket.Encode(message.kind, nil); err != nil {
			return nil, err
		}
	}
	if l.filters, err = s.prepareFilters(l.socket); err != nil {
		return nil, err
	}
	firstOther := 3 + s.container.request.Preserve
	if err := linux.CloseOnExecFrom(firstOther); err != nil {
		return nil, err
	}
	if err := s.closeHandles(firstOther, l.socket, l.fifo); err != nil {
		return nil, err
	}
	// The soft limit that Go raised for itself is not the program's.
	linux.RestoreNOFILE()
	return l, nil
}

// preparePrograms returns the same program twice where the network namespace has
// no part in its environment.
func (s *setup) preparePrograms() (program, closed *linux.Exec, err error) {
	p := s.plan.Process
	env := listenEnv(p.Env, &s.container.request)
	program, err = linux.PrepareExec(s.command, p.Args, env)
	if err != nil || len(p.ClosedEnv) == 0 {
		return program, program, err
	}
	closed, err = linux.PrepareExec(s.command, p.Args, replaceVariables(env, p.ClosedEnv))
	return program, closed, err
}

// replaceVariables returns env with the variables, in the place of others with
// their names.
func replaceVariables(env, variables []string) []string {
	names := make(map[string]bool)
	for _, variable := range variables {
		name, _, _ := strings.Cut(variable, "=")
		names[name] = true
	}
	env = slices.DeleteFunc(slices.Clone(env), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return names[name]
	})
	return append(env, variables...)
}

// joinCgroup has the host put a further process of a container into its cgroup,
// in which there may be room for the program and for nothing more: no thread of
// Go's, none of its megabytes. What the cgroup bounds is set in it.
func (s *setup) joinCgroup(l *last) error {
	if errno := linux.RawWrite(l.socket, l.settled); errno != 0 {
		return os.NewSyscallError("report settled", errno)
	}
	awaitAnswer(l.socket, l.joined)
	if err := linux.SetUID(s.plan.Process.User.UID); err != nil {
		return err
	}
	if err := s.setMemoryPolicy(); err != nil {
		return err
	}
	return s.setScheduler()
}

// awaitAnswer reads a message of known length. Where the other end is closed the
// host has the reason.
func awaitAnswer(socket int, answer []byte) {
	for len(answer) > 0 {
		n, errno := linux.RawRead(socket, answer)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 || n == 0 {
			os.Exit(exitFailed)
		}
		answer = answer[n:]
	}
}

// waitForStart waits for the word with which start lets the program run.
func waitForStart(fifo int) syncsocket.Word {
	var start [1]byte
	for {
		n, err := unix.Read(fifo, start[:])
		if n == 1 {
			return syncsocket.Word(start[0])
		}
		if err != unix.EINTR {
			os.Exit(exitFailed)
		}
	}
}

// closeHandles closes every descriptor from first on but those in keep, and those
// below that have come to lie where the caller left a hole. That they are
// close-on-exec is not enough: the path of the program or of its interpreter
// could lead through one of them in /proc/self/fd, to the host (CVE-2024-21626).
//
// Those of Go's own poller, which have no file type, stay: the runtime does not
// outlive them, and no path leads through them.
func (s *setup) closeHandles(first int, keep ...int) error {
	handle, err := s.proc.OpenSelf("fd")
	if err != nil {
		return fmt.Errorf("list descriptors: %w", err)
	}
	dir, err := pathrs.Reopen(handle, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("list descriptors: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("list descriptors: %w", err)
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || slices.Contains(keep, fd) || fd < first && !isCloseOnExec(fd) {
			continue
		}
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err == nil && stat.Mode&unix.S_IFMT != 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}

func isCloseOnExec(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC != 0
}

// waitForEver holds the namespaces of a container without a program, which can
// only be deleted.
func (s *setup) waitForEver() error {
	if err := s.container.socket.Send(syncsocket.Ready, nil); err != nil {
		return err
	}
	for {
		if err := unix.Pause(); err != nil {
			return os.NewSyscallError("pause", err)
		}
	}
}

// startHooks are the startContainer hooks; where one has no environment it gets
// the program's, as under other runtimes.
func (s *setup) startHooks() []specs.Hook {
	hooks := slices.Clone(s.plan.StartContainerHooks)
	for i := range hooks {
		if hooks[i].Env == nil {
			hooks[i].Env = s.plan.Process.Env
		}
	}
	return hooks
}

// setRlimits sets what config.json asks for. A limit that must be raised has
// been raised by create already, with the host's rights.
func setRlimits(rlimits []spec.Rlimit) error {
	for _, r := range rlimits {
		limit := unix.Rlimit{Cur: r.Soft, Max: r.Hard}
		if err := unix.Prlimit(0, r.Resource, &limit, nil); err != nil {
			return fmt.Errorf("rlimit %d: soft %d, hard %d: %w", r.Resource, r.Soft, r.Hard, err)
		}
	}
	return nil
}
