package initproc

import (
	"os"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
)

// takeNulls makes those standard streams that are the host's /dev/null the
// container's: a file that is on none of the container's mounts cannot be
// checkpointed. Where the container has none the host's stays.
func (s *setup) takeNulls() error {
	null, err := s.openDevice("/dev/null", unix.S_IFCHR, 1, 3)
	if err != nil {
		return nil
	}
	defer null.Close()
	for fd := range 3 {
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFCHR || stat.Rdev != unix.Mkdev(1, 3) {
			continue
		}
		mode, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil {
			return os.NewSyscallError("fcntl", err)
		}
		opened, err := pathrs.Reopen(null, mode&unix.O_ACCMODE)
		if err != nil {
			return nil
		}
		err = unix.Dup3(int(opened.Fd()), fd, 0)
		opened.Close()
		if err != nil {
			return os.NewSyscallError("dup", err)
		}
	}
	return nil
}
