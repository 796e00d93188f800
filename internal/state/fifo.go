package state

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MakeFIFO makes the exec fifo and opens it for init. While it is there the
// container is created, not running.
//
// It is opened for reading and writing: init's read then waits for a byte and
// not for a first writer, and who opens it for writing without waiting learns
// whether init still holds it.
func (d *Dir) MakeFIFO() (*os.File, error) {
	if err := unix.Mkfifoat(int(d.f.Fd()), fifoFile, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: filepath.Join(d.path, fifoFile), Err: err}
	}
	fd, err := d.openFIFO(unix.O_RDWR)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), fifoFile), nil
}

// openFIFO does not open it through package os, which would have Go's poller
// wait for it.
func (d *Dir) openFIFO(flags int) (int, error) {
	fd, err := unix.Openat(int(d.f.Fd()), fifoFile, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: filepath.Join(d.path, fifoFile), Err: err}
	}
	return fd, nil
}

// HasFIFO tells whether the exec fifo is there.
func (d *Dir) HasFIFO() bool {
	_, err := d.root.Lstat(fifoFile)
	return err == nil
}

// ReleaseFIFO gives init the word to go on and removes the fifo: created becomes
// running.
// [ErrNotRunning] where init is gone. With untilExec it waits until init has
// executed the program, or has ended.
func (d *Dir) ReleaseFIFO(word byte, untilExec bool) error {
	fd, err := d.openFIFO(unix.O_WRONLY | unix.O_NONBLOCK)
	if errors.Is(err, unix.ENXIO) {
		return ErrNotRunning
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// Removed first: init may be seen running as soon as it has the byte.
	if err := d.root.Remove(fifoFile); err != nil {
		return err
	}
	if _, err := unix.Write(fd, []byte{word}); err != nil {
		return os.NewSyscallError("write exec fifo", err)
	}
	if !untilExec {
		return nil
	}
	// Init is the last that could read, and execve closes its end: POLLERR,
	// which needs not be asked for, see poll(2).
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, -1)
		if err != unix.EINTR {
			return os.NewSyscallError("poll", err)
		}
	}
}
