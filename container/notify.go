package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"eggrun/sandbox"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

const (
	notifyDir    = "notify"      // in the state dir
	notifyTarget = "/run/notify" // in the container
	notifyName   = "notify.sock" // in both
)

// prepareNotify gives the program a NOTIFY_SOCKET where this process has one: a
// socket of the container's own, for the service manager's lets the sender do
// more than say that it is ready. Only the directory is made; the socket is
// there from start on.
func (c *creation) prepareNotify() error {
	if !isNotifyAddress(c.options.NotifySocket) || c.plan.Process == nil {
		return nil
	}
	dir := filepath.Join(c.dir.Path(), notifyDir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	m := spec.Mount{
		Mount: sandbox.Mount{Source: dir, Target: notifyTarget, ReadOnly: true},
		Set:   unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC,
	}
	c.plan.Mounts = append(c.plan.Mounts, m)
	c.plan.Config.Mounts = append(c.plan.Config.Mounts, m.Mount)
	const variable = "NOTIFY_SOCKET="
	env := slices.DeleteFunc(c.plan.Process.Env, func(v string) bool { return strings.HasPrefix(v, variable) })
	c.plan.Process.Env = append(env, variable+notifyTarget+"/"+notifyName)
	return nil
}

// isNotifyAddress tells whether address is one that sd_notify(3) sends to over a
// unix socket.
func isNotifyAddress(address string) bool {
	return strings.HasPrefix(address, "/") || strings.HasPrefix(address, "@")
}

// Notifier tells a service manager that a container's program is ready.
type Notifier struct {
	socket  *os.File
	host    string
	init    *os.File // a pidfd
	initPID int
}

// ListenNotify opens the socket on which the program will say that it is ready,
// before it is started; host is the service manager's, from NOTIFY_SOCKET. It
// returns nil where there is none, now or when the container was created, or
// where the container is in no state to be started. It must be locked.
func (c *Container) ListenNotify(host string) (*Notifier, error) {
	if !isNotifyAddress(host) || c.Status() != specs.StateCreated {
		return nil, nil
	}
	dir, err := os.OpenFile(filepath.Join(c.dir.Path(), notifyDir), unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	pidfd, err := c.state.Init.Open()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		pidfd.Close()
		return nil, os.NewSyscallError("socket", err)
	}
	n := &Notifier{socket: os.NewFile(uintptr(fd), notifyName), host: host, init: pidfd, initPID: c.state.Init.PID}
	// A start that failed may have left one.
	_ = unix.Unlinkat(int(dir.Fd()), notifyName, 0)
	// By the directory, for an address holds no long path.
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), notifyName)})
	if err == nil {
		// Whatever user the program has.
		err = unix.Fchmodat(int(dir.Fd()), notifyName, 0o777, 0)
	}
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("notify socket: %w", err)
	}
	return n, nil
}

// Close is called where [Notifier.Relay] is not.
func (n *Notifier) Close() {
	if n != nil {
		n.socket.Close()
		n.init.Close()
	}
}

// Relay waits until the program is ready or has ended. Once it is ready the
// service manager is told, and that mainPID is the service's main process; 0
// stands for the container's init. Nothing else that the program says is passed
// on.
func (n *Notifier) Relay(mainPID int) error {
	if n == nil {
		return nil
	}
	defer n.Close()
	if mainPID == 0 {
		mainPID = n.initPID
	}
	fds := []unix.PollFd{{Fd: int32(n.socket.Fd()), Events: unix.POLLIN}, {Fd: int32(n.init.Fd()), Events: unix.POLLIN}}
	message := make([]byte, 4096)
	for {
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
		for {
			length, _, err := unix.Recvfrom(int(n.socket.Fd()), message, unix.MSG_DONTWAIT)
			if err != nil {
				break
			}
			if slices.Contains(strings.Split(string(message[:length]), "\n"), "READY=1") {
				return n.tell(mainPID)
			}
		}
		if fds[1].Revents != 0 {
			return nil
		}
	}
}

// tell sends the service manager the message, then a descriptor that it closes
// when it has read that: only as long as this process is there does it know
// whose message it was. See sd_notify_barrier(3).
func (n *Notifier) tell(mainPID int) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	to := &unix.SockaddrUnix{Name: n.host}
	text := fmt.Sprintf("MAINPID=%d\nREADY=1", mainPID)
	err = unix.Sendto(int(n.socket.Fd()), []byte(text), unix.MSG_NOSIGNAL, to)
	if err == nil {
		err = unix.Sendmsg(int(n.socket.Fd()), []byte("BARRIER=1"), unix.UnixRights(int(write.Fd())), to, unix.MSG_NOSIGNAL)
	}
	write.Close()
	if err != nil {
		return &os.PathError{Op: "notify", Path: n.host, Err: err}
	}
	// The receiver need not know of barriers.
	if err := read.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	_, _ = read.Read(make([]byte, 1))
	return nil
}
