package linux

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// PidfdOpen returns a close-on-exec descriptor of a process. ESRCH: no such
// process, or it has been reaped. Linux 5.3, see pidfd_open(2).
func PidfdOpen(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, &os.PathError{Op: "pidfd_open", Path: strconv.Itoa(pid), Err: err}
	}
	return os.NewFile(uintptr(fd), "pidfd:"+strconv.Itoa(pid)), nil
}

// PidfdSignal sends a signal. ESRCH: the process has ended. Linux 5.1, see
// pidfd_send_signal(2).
func PidfdSignal(pidfd *os.File, signal unix.Signal) error {
	if err := unix.PidfdSendSignal(int(pidfd.Fd()), signal, nil, 0); err != nil {
		return os.NewSyscallError("pidfd_send_signal", err)
	}
	return nil
}

// PidfdWait waits until the process has ended, whoever its parent is, or for
// timeoutMillis (-1: for ever), and tells whether it has. It does not reap.
func PidfdWait(pidfd *os.File, timeoutMillis int) (ended bool, err error) {
	// A file that nobody else holds would be collected meanwhile, and closed.
	defer runtime.KeepAlive(pidfd)
	poll := []unix.PollFd{{Fd: int32(pidfd.Fd()), Events: unix.POLLIN}}
	n, err := retry(func() (int, error) { return unix.Poll(poll, timeoutMillis) })
	if err == nil && poll[0].Revents&unix.POLLNVAL != 0 {
		err = unix.EBADF
	}
	if err != nil {
		return false, os.NewSyscallError("poll", err)
	}
	return n > 0, nil
}

// PidfdGetFD returns a copy of the descriptor that has the number fd in that
// process, close-on-exec. EBADF: it has none; EPERM: the caller may not trace
// it, see ptrace(2), "Ptrace access mode checking". Linux 5.6, see
// pidfd_getfd(2).
func PidfdGetFD(pidfd *os.File, fd int) (*os.File, error) {
	defer runtime.KeepAlive(pidfd)
	own, err := unix.PidfdGetfd(int(pidfd.Fd()), fd, 0)
	if err != nil {
		return nil, os.NewSyscallError("pidfd_getfd", err)
	}
	return os.NewFile(uintptr(own), pidfd.Name()+" fd "+strconv.Itoa(fd)), nil
}

// Process names a process for longer than it lives: pids are used again, a pid
// with a start time is not.
type Process struct {
	PID int `json:"pid"`
	// Start is in clock ticks since boot, field 22 of /proc/PID/stat, see
	// proc_pid_stat(5).
	Start uint64 `json:"start"`
}

// FindProcess returns the process that has that pid now. The error wraps
// ESRCH where there is none or only its zombie.
func FindProcess(pid int) (Process, error) {
	p, isZombie, err := readStat(pid)
	if err == nil && isZombie {
		err = noProcess(pid)
	}
	if err != nil {
		return Process{}, err
	}
	return p, nil
}

// FindChild is [FindProcess] for a child of this process, which need not live any
// more as long as it has not been waited for.
func FindChild(pid int) (Process, error) {
	p, _, err := readStat(pid)
	return p, err
}

func noProcess(pid int) error {
	return os.NewSyscallError("find process "+strconv.Itoa(pid), unix.ESRCH)
}

// readStat also tells whether the process's first thread has ended; others may
// not have.
func readStat(pid int) (p Process, isZombie bool, err error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return Process{}, false, noProcess(pid)
	}
	if err != nil {
		return Process{}, false, err
	}
	// The name, in brackets, may hold spaces and brackets itself.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const state, start = 0, 19
	if len(fields) <= start {
		return Process{}, false, fmt.Errorf("parse /proc/%d/stat: %d fields", pid, len(fields))
	}
	ticks, err := strconv.ParseUint(string(fields[start]), 10, 64)
	if err != nil {
		return Process{}, false, fmt.Errorf("parse /proc/%d/stat: %w", pid, err)
	}
	s := fields[state][0]
	return Process{PID: pid, Start: ticks}, s == 'Z' || s == 'X', nil
}

// Open returns a pidfd of exactly this process. The error wraps ESRCH where it
// has ended, also where its pid belongs to another one by now. One whose first
// thread alone has ended is still there.
func (p Process) Open() (*os.File, error) {
	if p.PID <= 0 {
		return nil, noProcess(p.PID)
	}
	pidfd, err := PidfdOpen(p.PID)
	if err != nil {
		return nil, err
	}
	// Looked at after the open: what the pidfd names is what was looked at,
	// or has ended since.
	found, isZombie, err := readStat(p.PID)
	isGone := err != nil || found != p
	if !isGone && isZombie {
		isGone, err = PidfdWait(pidfd, 0)
	}
	if isGone || err != nil {
		pidfd.Close()
		return nil, noProcess(p.PID)
	}
	return pidfd, nil
}

// Alive tells whether the process is there and not a zombie.
func (p Process) Alive() bool {
	found, err := FindProcess(p.PID)
	return p.PID > 0 && err == nil && found == p
}

// RestoreNOFILE gives this process, and so what it starts, the soft
// RLIMIT_NOFILE that it was started with. Go raises it for itself at start-up
// and remembers the old one only for package syscall, which puts it back before
// it tries an exec: here one that must come to nothing (EACCES, "/" is a
// directory).
func RestoreNOFILE() {
	_ = syscall.Exec("/", []string{"/"}, nil)
}
