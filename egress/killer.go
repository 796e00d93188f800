package egress

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"eggrun/internal/linux"

	"golang.org/x/sys/unix"
)

// killFlag is the hidden first argument of a killer.
const killFlag = "--kill"

// StartKiller starts a small process that ends a container with its sidecar. It
// ends itself with either. init is a pidfd of the container's first process, and
// kill is its cgroup's cgroup.kill, open for writing, or nil: then only init is
// killed, and with it all in its pid namespace.
//
// It is a process of its own because a sidecar may kill nobody, and can't act on
// its own end.
func StartKiller(sidecar linux.Process, init, kill *os.File, label string) (linux.Process, error) {
	pidfd, err := sidecar.Open()
	if err != nil {
		return linux.Process{}, err
	}
	defer pidfd.Close()
	exe, err := os.OpenFile("/proc/self/exe", unix.O_PATH, 0)
	if err != nil {
		return linux.Process{}, err
	}
	defer exe.Close()
	argv := []string{"eggrun", "sidecar", killFlag, strconv.Itoa(int(pidfd.Fd())), strconv.Itoa(int(init.Fd())), "-1", label}
	keep := []*os.File{pidfd, init}
	if kill != nil {
		argv[5] = strconv.Itoa(int(kill.Fd()))
		keep = append(keep, kill)
	}
	child, err := linux.SpawnIn(linux.SpawnRequest{Exe: exe, Argv: argv, Env: []string{}, Keep: keep})
	if err != nil {
		return linux.Process{}, err
	}
	defer child.Pidfd.Close()
	return linux.FindProcess(child.PID)
}

// killer is the main function of the killer; args are its descriptors.
func killer(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("%d arguments, want 4", len(args))
	}
	var fds [3]int
	for i := range fds {
		var err error
		if fds[i], err = strconv.Atoi(args[i]); err != nil {
			return err
		}
	}
	sidecar, init := os.NewFile(uintptr(fds[0]), "sidecar"), os.NewFile(uintptr(fds[1]), "init")
	if err := settle(fds[:]); err != nil {
		return err
	}
	poll := []unix.PollFd{{Fd: int32(fds[0]), Events: unix.POLLIN}, {Fd: int32(fds[1]), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(poll, -1)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
	}
	defer runtime.KeepAlive(sidecar)
	if poll[1].Revents != 0 {
		return nil
	}
	var err error
	if fds[2] >= 0 {
		_, err = unix.Write(fds[2], []byte("1"))
	}
	// Also where the cgroup is gone, or was none of the container's own.
	killErr := linux.PidfdSignal(init, unix.SIGKILL)
	if errors.Is(killErr, unix.ESRCH) {
		killErr = nil
	}
	return errors.Join(err, killErr)
}

// settle lets go of everything but what the killer needs: its descriptors.
func settle(fds []int) error {
	if _, err := unix.Setsid(); err != nil {
		return os.NewSyscallError("setsid", err)
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/dev/null", Err: err}
	}
	for stream := range 3 {
		if err := unix.Dup3(null, stream, 0); err != nil {
			return os.NewSyscallError("dup3", err)
		}
	}
	unix.Close(null)
	for _, fd := range fds {
		if fd >= 0 {
			unix.CloseOnExec(fd)
		}
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return os.NewSyscallError("set not dumpable", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}
