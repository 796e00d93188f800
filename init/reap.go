package initproc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"eggrun/internal/linux"
	"eggrun/internal/seccomp"

	"golang.org/x/sys/unix"
)

// The hidden forms "--reap-own-group FD -- PATH ARGV0 ARGS..." and, for a
// command that shares the wrapper's process group, "--reap-same-group ...".
const (
	reapOwnGroup  = "--reap-own-group"
	reapSameGroup = "--reap-same-group"
)

// reaperReady is the first thing that the reaper says, once it takes signals.
// What follows is the text of an error.
const reaperReady = "\x00"

// reaper is pid 1 of the stand-alone wrapper's pid namespace.
type reaper struct {
	// wrapper is the reaper's end of a socket pair.
	wrapper  *os.File
	ownGroup bool
	path     string
	argv     []string
}

// parseReap recognises the hidden forms.
func parseReap(args []string) (*reaper, bool) {
	if len(args) < 5 || args[0] != reapOwnGroup && args[0] != reapSameGroup || args[2] != "--" {
		return nil, false
	}
	fd, err := strconv.Atoi(args[1])
	if err != nil || fd < 3 {
		return nil, false
	}
	unix.CloseOnExec(fd)
	return &reaper{
		wrapper:  os.NewFile(uintptr(fd), "wrapper"),
		ownGroup: args[0] == reapOwnGroup,
		path:     args[3],
		argv:     args[4:],
	}, true
}

// main returns the exit status. The command is its child, not pid 1 itself, so
// that signals have their default effect on it and orphans are reaped. When
// this ends the kernel ends everything that is left.
func (r *reaper) main() int {
	status, err := r.run()
	if err != nil {
		// To the log of the wrapper, not to the command's terminal.
		_, _ = r.wrapper.WriteString(err.Error())
	}
	return status
}

func (r *reaper) run() (int, error) {
	if err := r.dieWithWrapper(); err != nil {
		return exitSetup, err
	}
	if err := giveUpPrivileges(); err != nil {
		return exitSetup, err
	}
	signals := make(chan os.Signal, 64)
	notify(signals)
	if r.ownGroup {
		if err := unix.Setpgid(0, 0); err != nil {
			return exitSetup, os.NewSyscallError("setpgid", err)
		}
	}
	if _, err := r.wrapper.WriteString(reaperReady); err != nil {
		return exitSetup, err
	}
	process, err := os.StartProcess(r.path, r.argv, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setpgid: r.ownGroup},
	})
	if err != nil {
		return commandStatus(err), fmt.Errorf("exec %q: %w", r.path, errors.Unwrap(err))
	}
	if !r.ownGroup {
		// It stays behind in the group of the terminal; what the terminal
		// sends there must not come a second time from here.
		if err := unix.Setpgid(0, 0); err != nil {
			return exitSetup, os.NewSyscallError("setpgid", err)
		}
	}
	go forward(signals, false, func(sig unix.Signal) { _ = process.Signal(sig) })
	return reapUntil(process.Pid)
}

// reapUntil reaps every child and returns the status of that one.
func reapUntil(last int) (int, error) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return exitSetup, os.NewSyscallError("wait", err)
		case pid == last:
			return shellStatus(status), nil
		}
	}
}

// dieWithWrapper has the kernel kill this process when the wrapper ends, and
// ends it now if that has happened before the kernel knew.
func (r *reaper) dieWithWrapper() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return os.NewSyscallError("set parent death signal", err)
	}
	poll := []unix.PollFd{{Fd: int32(r.wrapper.Fd()), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, 0); err == nil && n > 0 {
		return errors.New("the wrapper has ended")
	}
	return nil
}

// giveUpPrivileges takes from this process, and from the command, what could
// undo the sandbox.
func giveUpPrivileges() error {
	// The command has the same ids and could rewrite this process.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return os.NewSyscallError("set not dumpable", err)
	}
	// Root of the nested namespace has capabilities in it, among them one over
	// this process. Other ids have lost them in execve.
	if os.Geteuid() == 0 {
		none := linux.NewCapabilitySets(nil)
		if err := none.DropBounding(); err != nil {
			return err
		}
		if err := none.Apply(0); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("set no_new_privs", err)
	}
	guard, err := seccomp.Guard("")
	if err != nil {
		return err
	}
	// On all threads: the command may be forked from any of them.
	return seccomp.Load(guard, true)
}
