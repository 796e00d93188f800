package seccomp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Load installs p like the function [Load], by one raw system call. It neither
// allocates nor grows the stack, so it may run between fork and execve and
// after rlimits were lowered. It returns 0 or the errno; with tsync a thread
// that could not be synchronised is ESRCH.
//
//go:nosplit
func (p *Prog) Load(tsync bool) unix.Errno {
	_, errno := p.load(tsync)
	return errno
}

// load also returns the id of the thread that could not be synchronised.
//
//go:nosplit
func (p *Prog) load(tsync bool) (tid uintptr, errno unix.Errno) {
	flags := p.flags
	if tsync {
		flags |= unix.SECCOMP_FILTER_FLAG_TSYNC
	}
	r, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
		uintptr(unsafe.Pointer(&p.fprog)))
	// The kernel reports an unsynchronised thread as a success with its id.
	// TSYNC_ESRCH would say so by errno, but only since Linux 5.7.
	if errno == 0 && r != 0 {
		return r, unix.ESRCH
	}
	return 0, errno
}
