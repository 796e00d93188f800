package linux

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SetGroups sets the supplementary groups of the calling thread, and of no
// other. EPERM: denied in this user namespace, see user_namespaces(7). See
// setgroups(2).
func SetGroups(groups []uint32) error {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		return os.NewSyscallError("setgroups", errno)
	}
	return nil
}
