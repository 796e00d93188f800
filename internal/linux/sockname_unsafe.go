package linux

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// IsUnnamedPair tells whether a unix socket is an end of a stream that cannot be
// led anywhere else: connected, and neither it nor its peer has a name, as by
// socketpair(2). Sockets of datagrams, which can send to any, are not such.
//
// The names are not asked for by package unix, which shows none and an abstract
// one that begins with a zero byte alike.
func IsUnnamedPair(fd int) (bool, error) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return false, os.NewSyscallError("getsockopt", err)
	}
	if kind != unix.SOCK_STREAM && kind != unix.SOCK_SEQPACKET {
		return false, nil
	}
	for _, call := range []uintptr{unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME} {
		var name unix.RawSockaddrUnix
		size := uint32(unsafe.Sizeof(name))
		_, _, errno := unix.Syscall(call, uintptr(fd), uintptr(unsafe.Pointer(&name)), uintptr(unsafe.Pointer(&size)))
		switch {
		case errors.Is(errno, unix.ENOTCONN):
			return false, nil
		case errno != 0:
			return false, os.NewSyscallError("socket name", errno)
		case name.Family != unix.AF_UNIX || uintptr(size) != unsafe.Sizeof(name.Family):
			return false, nil
		}
	}
	return true, nil
}
