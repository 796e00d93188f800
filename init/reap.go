package initproc

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"

	"eggrun/internal/seccomp"

	"golang.org/x/sys/unix"
)

// parseReap recognises the hidden form "--reap FD -- PATH ARGV0 ARGS...".
func parseReap(args []string) (fd int, command []string, ok bool) {
	if len(args) < 5 || args[0] != "--reap" || args[2] != "--" {
		return 0, nil, false
	}
	fd, err := strconv.Atoi(args[1])
	return fd, args[3:], err == nil && fd > 2
}

// reapMain is pid 1 of the stand-alone wrapper's pid namespace: the command is
// its child, so signals have their default effect on it, and orphans are
// reaped. When it ends the kernel ends everything that is left.
func reapMain(aliveFD int, command []string) int {
	status, err := reap(aliveFD, command[0], command[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "eggrun: init: %v\n", err)
	}
	return status
}

func reap(aliveFD int, path string, argv []string) (int, error) {
	if err := dieWithWrapper(aliveFD); err != nil {
		return exitSetup, err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return exitSetup, os.NewSyscallError("set no_new_privs", err)
	}
	guard, err := seccomp.Guard("")
	if err != nil {
		return exitSetup, err
	}
	// On all threads: the command may be forked from any of them.
	if err := seccomp.Load(guard, true); err != nil {
		return exitSetup, err
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, forwarded...)
	process, err := os.StartProcess(path, argv, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return commandStatus(err), fmt.Errorf("exec %q: %w", path, errors.Unwrap(err))
	}
	go forward(signals, func(sig unix.Signal) { _ = process.Signal(sig) })
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return exitSetup, os.NewSyscallError("wait", err)
		case pid == process.Pid:
			return shellStatus(status), nil
		}
	}
}

// dieWithWrapper has the kernel kill this process when the wrapper ends, and
// ends it now if that has happened before the kernel knew.
func dieWithWrapper(aliveFD int) error {
	unix.CloseOnExec(aliveFD)
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return os.NewSyscallError("set parent death signal", err)
	}
	poll := []unix.PollFd{{Fd: int32(aliveFD), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, 0); err == nil && n > 0 {
		return errors.New("the wrapper has ended")
	}
	return nil
}
