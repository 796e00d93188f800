package linux

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// MountNamespace is a thread in another mount namespace.
type MountNamespace struct {
	calls   chan func() error
	results chan error
}

// EnterMountNamespace starts a thread that is in the mount namespace of the
// process behind pidfd, at its root, with the rights that the caller has. It is
// there until Close.
//
// The error wraps an errno. EPERM: no CAP_SYS_ADMIN over that namespace, or no
// CAP_SYS_CHROOT of one's own. Linux 5.8, see setns(2).
func EnterMountNamespace(pidfd *os.File) (*MountNamespace, error) {
	n := &MountNamespace{calls: make(chan func() error), results: make(chan error)}
	go func() {
		runtime.LockOSThread() // never unlocked: Go then ends the thread
		n.results <- joinMountNamespace(pidfd)
		for call := range n.calls {
			n.results <- call()
		}
	}()
	err := <-n.results
	if err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// Do calls f on the thread. f must not start goroutines that outlive it or rely
// on it.
func (n *MountNamespace) Do(f func() error) error {
	n.calls <- f
	return <-n.results
}

// Close ends the thread.
func (n *MountNamespace) Close() { close(n.calls) }

func joinMountNamespace(pidfd *os.File) error {
	defer runtime.KeepAlive(pidfd)
	// The threads of a process share their root, and setns would change it.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	return os.NewSyscallError("join mount namespace", unix.Setns(int(pidfd.Fd()), unix.CLONE_NEWNS))
}
