package linux

import (
	"os"

	"golang.org/x/sys/unix"
)

// SetIOPriority sets the I/O class and level of every process and thread of the
// caller's process group; the class is in value from bit 13 on. EPERM: the real
// time class without CAP_SYS_ADMIN or CAP_SYS_NICE. See ioprio_set(2).
func SetIOPriority(value int) error {
	const whoProcessGroup = 2
	if _, _, errno := unix.RawSyscall(unix.SYS_IOPRIO_SET, whoProcessGroup, 0, uintptr(value)); errno != 0 {
		return os.NewSyscallError("ioprio_set", errno)
	}
	return nil
}

// SetPersonality sets the execution domain of the calling thread, and of no
// other. It outlives execve. See personality(2).
func SetPersonality(persona uint32) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, uintptr(persona), 0, 0); errno != 0 {
		return os.NewSyscallError("personality", errno)
	}
	return nil
}
