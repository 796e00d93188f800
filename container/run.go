package container

import (
	"errors"
	"os"
	"os/signal"

	"eggrun/internal/linux"

	"golang.org/x/sys/unix"
)

// Wait waits in the foreground for a container that this process created:
// forwards signals to init, reaps what the kernel hands over, and returns the
// program's exit status, 128+n where signal n ended it.
//
// signals must have been notified before the container was started, so that
// none is lost.
func (c *Container) Wait(signals <-chan os.Signal) (int, error) {
	return waitFor(c.state.Init, signals)
}

// waitFor waits for a child of this process.
func waitFor(init linux.Process, signals <-chan os.Signal) (int, error) {
	// Reaped only here, so the pid is the child's until then.
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case sig := <-signals:
				forwardSignal(init, sig)
			case <-done:
				return
			}
		}
	}()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, os.NewSyscallError("wait", err)
		case pid == init.PID && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == init.PID:
			return status.ExitStatus(), nil
		}
	}
}

// forwardSignal passes a signal on, unless it is one of those that this process
// gets on its own account.
func forwardSignal(init linux.Process, sig os.Signal) {
	switch sig {
	case unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, unix.SIGWINCH:
		return
	}
	_ = signalProcess(init, sig.(unix.Signal))
}

// NotifyAll returns a channel with every signal that can be caught, but for those
// that stop a job in the background when it uses the terminal: the kernel would
// start the call over and over again.
func NotifyAll() <-chan os.Signal {
	signals := make(chan os.Signal, 128)
	const last = 64 // see signal(7)
	for sig := unix.Signal(1); sig <= last; sig++ {
		// Not taken back by signal.Reset: package runtime would keep its handler.
		if sig != unix.SIGTTIN && sig != unix.SIGTTOU {
			signal.Notify(signals, sig)
		}
	}
	return signals
}

// BecomeSubreaper makes this process the parent of all orphans among its
// descendants: a container without a pid namespace leaves them, and so does
// eggrun-criu what it restored. See PR_SET_CHILD_SUBREAPER in prctl(2).
func BecomeSubreaper() error { return setSubreaper(1) }

// StopSubreaping leaves further orphans to the host.
func StopSubreaping() error { return setSubreaper(0) }

func setSubreaper(value uintptr) error {
	return os.NewSyscallError("set subreaper", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, value, 0, 0, 0))
}
