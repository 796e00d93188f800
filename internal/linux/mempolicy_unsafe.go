package linux

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SetMemoryPolicy sets the NUMA memory policy of the calling thread, and of no
// other: an MPOL_* mode with MPOL_F_* flags, and a bit for each memory node. It
// outlives execve. EINVAL: a mode or flag that this kernel doesn't know, or none
// of the nodes is there and allowed; ENOSYS: a kernel without NUMA. See
// set_mempolicy(2).
//
// [unix.SetMemPolicyDynamic] gives the kernel the mask's length in bytes where
// it wants bits, so that node 7 would be lost.
func SetMemoryPolicy(mode int, nodes unix.CPUSetDynamic) error {
	var mask unsafe.Pointer
	if len(nodes) > 0 {
		mask = unsafe.Pointer(&nodes[0])
	}
	// The kernel takes one bit less than it is told.
	bits := uintptr(len(nodes))*unsafe.Sizeof(nodes[0])*8 + 1
	if _, _, errno := unix.RawSyscall(unix.SYS_SET_MEMPOLICY, uintptr(mode), uintptr(mask), bits); errno != 0 {
		return os.NewSyscallError("set_mempolicy", errno)
	}
	return nil
}
