package linux

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// SendFile connects to the unix stream socket at path and sends payload, not
// empty, with exactly one descriptor beside its first byte, then hangs up. That
// is what conmon wants, with at most 4095 bytes, and what seccomp agents want.
//
// The path may be longer than the 107 bytes that an address holds: its directory
// is opened first. ECONNREFUSED: nobody listens. See unix(7).
func SendFile(path, payload string, f *os.File) error {
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	name := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		return &os.PathError{Op: "connect", Path: path, Err: err}
	}
	rest, rights := []byte(payload), unix.UnixRights(int(f.Fd()))
	for len(rest) > 0 {
		n, err := retry(func() (int, error) { return unix.SendmsgN(fd, rest, rights, nil, unix.MSG_NOSIGNAL) })
		if err != nil {
			return &os.PathError{Op: "send", Path: path, Err: err}
		}
		rest, rights = rest[n:], nil
	}
	return nil
}
