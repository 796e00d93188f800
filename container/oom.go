package container

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// oomWatch waits for a cgroup to run out of memory.
type oomWatch struct {
	cgroup cgroups.Manager
	isV2   bool
	// file is nil for a cgroup without the memory controller: it has no limit
	// that could be hit.
	file *os.File
	// kills is, in v2, how many processes had been killed at the last look.
	kills uint64
}

// watchOOM uses the file memory.events of cgroup v2, which polls as having an
// exceptional condition after each change; see the kernel's cgroup-v2,
// "Interface Files". In v1 the kernel writes to an eventfd(2), also when the
// cgroup is removed; see cgroup-v1/memory, "OOM Control".
func watchOOM(m cgroups.Manager) (*oomWatch, error) {
	w := &oomWatch{cgroup: m, isV2: cgroups.IsCgroup2UnifiedMode()}
	var err error
	if !w.isV2 {
		w.file, err = openOOMEventFD(m.Path("memory"))
	} else if w.file, err = cgroups.OpenFile(m.Path(""), "memory.events", os.O_RDONLY); err == nil {
		_, err = w.take()
	}
	if errors.Is(err, os.ErrNotExist) {
		return w, nil
	}
	if err != nil {
		w.close()
		return nil, fmt.Errorf("out-of-memory events: %w", err)
	}
	return w, nil
}

// openOOMEventFD returns a descriptor that can be read once memory has run out
// in the cgroup of v1, an error that wraps ENOENT where it has no such file.
func openOOMEventFD(dir string) (*os.File, error) {
	if dir == "" {
		return nil, os.ErrNotExist
	}
	control, err := cgroups.OpenFile(dir, "memory.oom_control", os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer control.Close() // the kernel asks for it only now
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	file := os.NewFile(uintptr(fd), "eventfd")
	if err := cgroups.WriteFile(dir, "cgroup.event_control", fmt.Sprintf("%d %d", fd, control.Fd())); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func (w *oomWatch) close() {
	if w.file != nil {
		w.file.Close()
	}
}

// wait waits until memory runs out, the process ends or the time has come, and
// tells which of the first two.
func (w *oomWatch) wait(pidfd *os.File, until time.Time) (isOOM, ended bool, err error) {
	polled := []unix.PollFd{{Fd: int32(pidfd.Fd()), Events: unix.POLLIN}, {Fd: -1}}
	if w.file != nil {
		polled[1] = unix.PollFd{Fd: int32(w.file.Fd()), Events: unix.POLLIN}
		if w.isV2 {
			polled[1].Events = unix.POLLPRI
		}
	}
	for {
		left := max(time.Until(until)+time.Millisecond, 0)
		_, err = unix.Poll(polled, int(min(left.Milliseconds(), 1<<30)))
		if err != unix.EINTR { //nolint:errorlint // a bare errno
			break
		}
	}
	if err != nil {
		return false, false, os.NewSyscallError("poll", err)
	}
	// Looked at in any case: what ends init for want of memory may end it
	// before poll returns.
	isOOM, err = w.take()
	return isOOM, polled[0].Revents != 0, err
}

// take tells whether memory ran out since the last look.
func (w *oomWatch) take() (bool, error) {
	if w.file == nil {
		return false, nil
	}
	if !w.isV2 {
		var count [8]byte
		_, err := unix.Read(int(w.file.Fd()), count[:])
		if err == unix.EAGAIN { //nolint:errorlint // a bare errno
			return false, nil
		}
		return err == nil && w.cgroup.Exists(), os.NewSyscallError("read eventfd", err)
	}
	// This makes the file poll as unchanged.
	var text [1 << 10]byte
	_, err := unix.Pread(int(w.file.Fd()), text[:], 0)
	kills := w.kills
	if err == nil {
		kills, err = w.cgroup.OOMKillCount()
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		// The cgroup has been removed, and its file polls as changed for ever.
		w.close()
		w.file = nil
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cgroup: %w", err)
	}
	isNew := kills > w.kills
	w.kills = kills
	return isNew, nil
}
