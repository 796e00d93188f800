package resolver

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// disconnect makes a connected socket an unconnected one, so that it can be
// connected anew: connect(2) to AF_UNSPEC. A TCP connection is reset. Package
// unix has no such address.
func disconnect(fd int) error {
	unspec := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspec)), unsafe.Sizeof(unspec))
	if errno != 0 {
		return errno
	}
	return nil
}
