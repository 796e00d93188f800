package linux

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// CloseOnExecFrom marks every open descriptor from first on close-on-exec.
// Linux 5.11, see close_range(2).
func CloseOnExecFrom(first int) error {
	err := unix.CloseRange(uint(first), ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
	return os.NewSyscallError("close_range", err)
}

// FillHoles opens /dev/null, close-on-exec, at each number from first to
// first+count-1 that is not open, so that no descriptor of this process takes a
// number that stands for one of the caller's. It returns the other numbers, the
// caller's own.
func FillHoles(first, count int) (open []int, err error) {
	for fd := first; fd < first+count; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			open = append(open, fd)
			continue
		}
		null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: "/dev/null", Err: err}
		}
		if null == fd {
			continue
		}
		err = unix.Dup3(null, fd, unix.O_CLOEXEC)
		unix.Close(null)
		if err != nil {
			return nil, fmt.Errorf("preserve descriptor %d: %w", fd, err)
		}
	}
	return open, nil
}

// SameFile tells whether two open files are the same inode.
func SameFile(a, b *os.File) (bool, error) {
	infoA, err := a.Stat()
	if err != nil {
		return false, err
	}
	infoB, err := b.Stat()
	if err != nil {
		return false, err
	}
	return os.SameFile(infoA, infoB), nil
}
