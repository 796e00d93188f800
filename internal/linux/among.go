package linux

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// InMountNamespace calls f on a thread that is in the mount namespace of the
// process behind pidfd, at its root, with the rights that the caller has. The
// thread ends with the call, so f must not start others.
//
// The error is f's, or an errno. EPERM: no CAP_SYS_ADMIN over that namespace, or
// no CAP_SYS_CHROOT of one's own. Linux 5.8, see setns(2).
func InMountNamespace(pidfd *os.File, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: Go then ends the thread
		result <- inMountNamespace(pidfd, f)
	}()
	return <-result
}

func inMountNamespace(pidfd *os.File, f func() error) error {
	defer runtime.KeepAlive(pidfd)
	// The threads of a process share their root, and setns would change it.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Setns(int(pidfd.Fd()), unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("join mount namespace", err)
	}
	return f()
}
