package seccomp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Load installs f on the calling thread, and with tsync on every thread of the
// process, for good: filters can be added but never removed, and pass to
// children and through execve(2).
//
// Without tsync the caller must be locked to its thread and start the program
// from that very thread; a child that is forked from another one has no filter.
// The thread needs no_new_privs, or CAP_SYS_ADMIN in its user namespace.
//
// The error matches its errno with errors.Is. EACCES: neither no_new_privs nor
// CAP_SYS_ADMIN; EINVAL: the kernel refuses the program or its flags, or has no
// filters at all; ENOMEM: all filters of the thread exceed 32768 instructions;
// ESRCH: with tsync, another thread has filters that this one lacks, and none
// was changed. Linux 3.17. See seccomp(2).
func Load(f *Filter, tsync bool) error {
	p, err := f.Prog()
	if err != nil {
		return err
	}
	if tid, errno := p.load(tsync); errno != 0 {
		return &loadError{errno: errno, tid: int(tid)}
	}
	return nil
}

// loadError names the errno by its symbol: the texts of EACCES, EPERM and ESRCH
// would make an engine believe that the container's program is at fault.
type loadError struct {
	errno unix.Errno
	tid   int
}

func (e *loadError) Error() string {
	const op = "load seccomp filter"
	switch e.errno {
	case unix.ESRCH:
		return fmt.Sprintf("%s: thread %d has a filter that the others lack", op, e.tid)
	case unix.EACCES:
		return op + ": neither no_new_privs nor CAP_SYS_ADMIN (EACCES)"
	case unix.EPERM, unix.ENOSYS:
		return fmt.Sprintf("%s: seccomp(2) answers %s; an outer filter may forbid it", op, unix.ErrnoName(e.errno))
	}
	return fmt.Sprintf("%s: %v (%s)", op, e.errno, unix.ErrnoName(e.errno))
}

func (e *loadError) Unwrap() error { return e.errno }
