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

// LoadListener installs p, which has a listener, on the calling thread like
// [Prog.Load], and returns the listener: a descriptor, close-on-exec, of which
// seccomp_unotify(2) says what an agent does with it. EBUSY: a filter of the
// thread has a listener already. Linux 5.0.
//
// From its return on, calls of this thread may wait for the agent.
//
//go:nosplit
func (p *Prog) LoadListener() (fd int, errno unix.Errno) {
	if p.flags&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER == 0 {
		return -1, unix.EINVAL
	}
	r, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, p.flags,
		uintptr(unsafe.Pointer(&p.fprog)))
	if errno != 0 {
		return -1, errno
	}
	return int(r), 0
}

// load also returns the id of the thread that could not be synchronised.
//
//go:nosplit
func (p *Prog) load(tsync bool) (tid uintptr, errno unix.Errno) {
	flags := p.flags
	if flags&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 {
		return 0, unix.EINVAL
	}
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
