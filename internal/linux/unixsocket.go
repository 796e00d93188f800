package linux

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// SendFile connects to the unix stream socket at path and sends one message:
// payload, of 1 to 4095 bytes, and exactly one descriptor, as conmon wants it.
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
	if err := unix.Sendmsg(fd, []byte(payload), unix.UnixRights(int(f.Fd())), nil, unix.MSG_NOSIGNAL); err != nil {
		return &os.PathError{Op: "send", Path: path, Err: err}
	}
	return nil
}
