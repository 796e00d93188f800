package inside

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// disconnect is connect(AF_UNSPEC), which package unix has no way to say.
func disconnect(fd int) error {
	address := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&address)), unsafe.Sizeof(address))
	if errno != 0 {
		return errno
	}
	return nil
}
