package linux

import (
	"os"

	"golang.org/x/sys/unix"
)

// OpenPeer unlocks a pseudoterminal and opens its slave side, without a name
// being looked up and without it becoming the controlling terminal. Linux 4.13,
// TIOCGPTPEER in ioctl_tty(2).
func OpenPeer(master *os.File) (*os.File, error) {
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, os.NewSyscallError("unlock pty", err)
	}
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, master.Fd(), unix.TIOCGPTPEER, flags)
	if errno != 0 {
		return nil, os.NewSyscallError("open pty slave", errno)
	}
	return os.NewFile(fd, "pty slave"), nil
}
