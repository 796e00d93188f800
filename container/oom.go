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
	// file is nil for a cgroup without the memory controller: it has no limit
	// that could be hit.
	file *os.File
	// events are what file is polled for.
	events int16
	// look tells whether memory ran out since it was called last. It does not
	// wait; after it file polls as having nothing new.
	look func() (bool, error)
}

// watchOOM uses the file memory.events of cgroup v2, which polls as having an
// exceptional condition after each change; see the kernel's cgroup-v2,
// "Interface Files". In v1 the kernel writes to an eventfd(2), also when the
// cgroup is removed; see cgroup-v1/memory, "OOM Control".
func watchOOM(m cgroups.Manager) (*oomWatch, error) {
	w := &oomWatch{}
	var err error
	if cgroups.IsCgroup2UnifiedMode() {
		w.events = unix.POLLPRI
		w.file, err = cgroups.OpenFile(m.Path(""), "memory.events", os.O_RDONLY)
		w.look = w.newKills(m.OOMKillCount)
		if err == nil {
			_, err = w.look() // what was before is not new
		}
	} else {
		w.events = unix.POLLIN
		w.file, err = openOOMEventFD(m.Path("memory"))
		w.look = func() (bool, error) {
			notified, err := readEventFD(w.file)
			return notified && m.Exists(), err
		}
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

// newKills tells whether count, how many processes were killed for want of
// memory, has grown: the file changes for other reasons, too.
func (w *oomWatch) newKills(count func() (uint64, error)) func() (bool, error) {
	last := uint64(0)
	return func() (bool, error) {
		// Only a read through the file itself makes it poll as unchanged.
		_, err := unix.Pread(int(w.file.Fd()), make([]byte, 1024), 0)
		kills := last
		if err == nil {
			kills, err = count()
		}
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			// The cgroup has been removed, and polls as changed for ever.
			w.close()
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("cgroup: %w", err)
		}
		isNew := kills > last
		last = kills
		return isNew, nil
	}
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

// readEventFD tells whether something was written to it.
func readEventFD(file *os.File) (bool, error) {
	var count [8]byte
	_, err := unix.Read(int(file.Fd()), count[:])
	if err == unix.EAGAIN {
		return false, nil
	}
	return err == nil, os.NewSyscallError("read eventfd", err)
}

func (w *oomWatch) close() {
	if w.file != nil {
		w.file.Close()
		w.file = nil
	}
}

// wait waits until memory runs out, the process ends or the time has come, and
// tells which of the first two.
func (w *oomWatch) wait(pidfd *os.File, until time.Time) (isOOM, ended bool, err error) {
	polled := []unix.PollFd{{Fd: int32(pidfd.Fd()), Events: unix.POLLIN}, {Fd: -1}}
	if w.file != nil {
		polled[1] = unix.PollFd{Fd: int32(w.file.Fd()), Events: w.events}
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
	if w.file != nil {
		isOOM, err = w.look()
	}
	return isOOM, polled[0].Revents != 0, err
}
