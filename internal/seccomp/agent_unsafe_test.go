//go:build cgo

package seccomp

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"eggrun/internal/need"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// notification and answer are struct seccomp_notif and seccomp_notif_resp of
// linux/seccomp.h.
type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type answer struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// answerOne waits for a call and answers it with testErrno.
func answerOne(listener int) (nr int32, err error) {
	var n notification
	if err := unixIoctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); err != nil {
		return 0, fmt.Errorf("receive: %w", err)
	}
	a := answer{id: n.id, errno: -int32(testErrno)}
	return n.nr, unixIoctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&a))
}

func unixIoctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// childAgent loads a filter with a listener on one thread, calls getppid there
// and is its own agent on another.
func childAgent() int {
	p, err := readPlan()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := serveSelf(p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serveSelf(p plan) error {
	prog, err := p.Filters[0].Prog()
	if err != nil {
		return err
	}
	type loaded struct {
		listener int
		err      error
	}
	ready, got := make(chan loaded), make(chan unix.Errno)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if err := prepareThread(p); err != nil {
			ready <- loaded{err: err}
			return
		}
		if errno := prog.Load(false); errno != unix.EINVAL {
			ready <- loaded{err: fmt.Errorf("loaded as if without a listener: %v", errno)}
			return
		}
		fd, errno := prog.LoadListener()
		if errno != 0 {
			ready <- loaded{err: errno}
			return
		}
		if _, errno := prog.LoadListener(); errno != unix.EBUSY {
			ready <- loaded{err: fmt.Errorf("a second listener: %v, want EBUSY", errno)}
			return
		}
		ready <- loaded{listener: fd}
		got <- getppid()
	}()
	l := <-ready
	if l.err != nil {
		return l.err
	}
	nr, err := answerOne(l.listener)
	if err != nil {
		return err
	}
	if errno := <-got; nr != unix.SYS_GETPPID || errno != testErrno {
		return fmt.Errorf("agent saw call %d, the caller got %v; want %d and the agent's answer", nr, errno, unix.SYS_GETPPID)
	}
	if errno := getppid(); errno != 0 {
		return fmt.Errorf("on another thread: %v", errno)
	}
	flags, err := unix.FcntlInt(uintptr(l.listener), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		return errors.New("the listener is not close-on-exec")
	}
	return nil
}

func TestListener(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]specs.LinuxSeccompFlag{
		"without flags": {},
		"default flags": nil,
		"killable":      {specs.LinuxSeccompFlagWaitKillableRecv},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			need.That(t, "the flags", func() error {
				for _, flag := range flags {
					if !flagSupported(flag) {
						return fmt.Errorf("kernel lacks %s", flag)
					}
				}
				return nil
			})
			profile := denying(specs.LinuxSyscall{Names: []string{"getppid"}, Action: specs.ActNotify})
			profile.Flags = flags
			filter := mustCompile(t, profile)
			want := uint(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
			switch {
			case flags == nil:
				want |= unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
			case len(flags) > 0:
				want |= unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
			}
			if filter.Flags != want || !filter.HasListener() {
				t.Errorf("flags %#x, want %#x", filter.Flags, want)
			}
			if out, err := command(t, "agent", plan{Filters: []*Filter{filter}}).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestNoListener expects none for a profile that has no use for it.
func TestNoListener(t *testing.T) {
	t.Parallel()
	filter := onGetppid(t, specs.ActErrno, nil)
	if filter.HasListener() {
		t.Error("has one")
	}
	prog, err := filter.Prog()
	if err != nil {
		t.Fatal(err)
	}
	if fd, errno := prog.LoadListener(); errno != unix.EINVAL {
		t.Errorf("LoadListener = %d, %v, want EINVAL", fd, errno)
	}
}
