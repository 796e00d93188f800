package integration

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"
	"unsafe"

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

// agent is a seccomp agent, as far as a test needs one.
type agent struct {
	path string
	// decide says with which errno a call is answered; 0 lets it through.
	decide func(nr int32) unix.Errno
	// told is what the runtime sent.
	told chan specs.ContainerProcessState
	// calls are the numbers of the calls that the agent has answered.
	calls chan int32
}

// startAgent serves each process that comes with a filter until that has no user
// any more.
func startAgent(t *testing.T, path string, decide func(nr int32) unix.Errno) *agent {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{path: path, decide: decide, told: make(chan specs.ContainerProcessState, 10), calls: make(chan int32, 1000)}
	stopped, stop, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return // the test is over
			}
			serving.Go(func() {
				if err := a.serve(conn, stopped); err != nil {
					t.Errorf("seccomp agent: %v", err)
				}
			})
		}
	})
	t.Cleanup(func() {
		_, _ = listener.Close(), stop.Close()
		serving.Wait()
		_ = stopped.Close()
	})
	return a
}

// wantTold waits for what the runtime sent.
func (a *agent) wantTold(t *testing.T) specs.ContainerProcessState {
	t.Helper()
	select {
	case state := <-a.told:
		return state
	case <-time.After(patience):
		t.Fatal("the agent was not told")
		panic("unreachable")
	}
}

// startAgentThatLeaves takes the state and the descriptor, and lets go of both.
func startAgentThatLeaves(t *testing.T, path string) (left <-chan struct{}) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		a := &agent{told: make(chan specs.ContainerProcessState, 1)}
		notify, err := a.receive(conn)
		if err != nil {
			t.Errorf("seccomp agent: %v", err)
		}
		_ = unix.Close(notify)
	}()
	return done
}

func (a *agent) serve(conn *net.UnixConn, stopped *os.File) error {
	defer func() { _ = conn.Close() }()
	notify, err := a.receive(conn)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(notify) }()
	for {
		// Ready also when the last process with the filter has ended.
		poll := []unix.PollFd{{Fd: int32(notify), Events: unix.POLLIN}, {Fd: int32(stopped.Fd())}}
		if _, err := unix.Poll(poll, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return err
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			return nil
		}
		if err := a.answerOne(notify); err != nil {
			return err
		}
	}
}

// receive expects the descriptor beside the first bytes, and nothing after the
// state.
func (a *agent) receive(conn *net.UnixConn) (notify int, err error) {
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return -1, err
	}
	data, control := make([]byte, 1<<16), make([]byte, 1<<10)
	n, nControl, _, _, err := conn.ReadMsgUnix(data, control)
	if err != nil {
		return -1, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:nControl])
	if err != nil || len(messages) != 1 {
		return -1, errors.Join(err, errors.New("not one control message"))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, errors.Join(err, errors.New("not one descriptor"))
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		return fds[0], errors.New("the connection has more than one message")
	}
	var state specs.ContainerProcessState
	err = json.Unmarshal(data[:n], &state)
	a.told <- state
	return fds[0], err
}

func (a *agent) answerOne(notify int) error {
	var n notification
	if err := ioctl(notify, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); err != nil {
		if errors.Is(err, unix.ENOENT) { // the caller has been killed meanwhile
			return nil
		}
		return os.NewSyscallError("receive", err)
	}
	reply := answer{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	if errno := a.decide(n.nr); errno != 0 {
		reply = answer{id: n.id, errno: -int32(errno)}
	}
	a.calls <- n.nr
	err := ioctl(notify, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&reply))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return os.NewSyscallError("answer", err)
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}
