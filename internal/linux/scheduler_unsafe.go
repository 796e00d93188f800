package linux

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SetScheduler sets the scheduling policy of the calling thread, and of no other,
// by a raw system call, see [HoldThread]. It outlives execve. EPERM: a right or
// realtime bandwidth is missing; EINVAL: a policy or flag that this kernel
// doesn't know. See sched_setattr(2).
func SetScheduler(attr *unix.SchedAttr) error {
	attr.Size = unix.SizeofSchedAttr
	if _, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETATTR, 0, uintptr(unsafe.Pointer(attr)), 0); errno != 0 {
		return os.NewSyscallError("sched_setattr", errno)
	}
	return nil
}
