package linux

import (
	"fmt"
	"os"
	"runtime"

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

// OpenInRoot opens unsafePath as if root, a directory, were "/": links are
// followed, but lead nowhere else, and no magic link of a procfs is. resolve has
// further RESOLVE_* bits. The file is close-on-exec.
//
// ELOOP: a link that resolve forbids. Linux 5.6, see openat2(2).
func OpenInRoot(root *os.File, unsafePath string, flags int, resolve uint64) (*os.File, error) {
	defer runtime.KeepAlive(root)
	how := unix.OpenHow{
		Flags:   uint64(flags) | unix.O_CLOEXEC,
		Resolve: resolve | unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	// EAGAIN: something was renamed in the meantime, so that the kernel can't
	// tell whether the way led out. Who renames all the time can't win: the
	// last answer is an error.
	const tries = 128
	for try := 1; ; try++ {
		fd, err := retry(func() (int, error) { return unix.Openat2(int(root.Fd()), unsafePath, &how) })
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), unsafePath), nil
		case err != unix.EAGAIN || try == tries: //nolint:errorlint // a bare errno
			return nil, &os.PathError{Op: "open", Path: unsafePath, Err: err}
		}
	}
}
