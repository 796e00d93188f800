package egress

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"eggrun/internal/linux"
	"eggrun/internal/seccomp"
	"eggrun/internal/syncsocket"
	"eggrun/policy"

	"github.com/moby/sys/userns"
	"golang.org/x/sys/unix"
)

// Launched is a sidecar that is confined, or about to be, and waits to be told
// what to serve. It ends when it never is.
type Launched struct {
	child   *linux.Child
	process linux.Process
	socket  *syncsocket.Socket
	uid     uint32
}

// Launch starts a sidecar. It is a child of the calling process, in a session of
// its own. label is shown in the list of processes.
//
// That takes a few milliseconds, in which the caller may do something else: the
// returned sidecar is then told by [Launched.Serve].
func Launch(label string) (*Launched, error) {
	ours, theirs, err := syncsocket.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	l := &Launched{socket: ours, uid: sidecarUID}
	request := linux.SpawnRequest{
		Env:  []string{},
		New:  unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
		Keep: []*os.File{theirs.File()},
	}
	if os.Geteuid() != 0 || userns.RunningInUserNS() {
		// The id of nobody else is ours to give.
		l.uid = 0
		request.New |= unix.CLONE_NEWUSER
		request.MapIDs = mapSelf
	}
	request.Argv = []string{"eggrun", "sidecar", cageFlag, strconv.Itoa(int(theirs.File().Fd())), strconv.Itoa(int(l.uid)), label}
	if request.Exe, err = os.OpenFile("/proc/self/exe", unix.O_PATH, 0); err == nil {
		l.child, err = linux.SpawnIn(request)
		request.Exe.Close()
	}
	if err != nil {
		ours.Close()
		return nil, err
	}
	if l.process, err = linux.FindProcess(l.child.PID); err != nil {
		return nil, errors.Join(err, l.End())
	}
	return l, nil
}

// mapSelf maps root of a new user namespace to the caller, which anybody may.
func mapSelf(pid int) error {
	for _, file := range []struct{ name, text string }{
		{"setgroups", "deny"},
		{"uid_map", fmt.Sprintf("0 %d 1", os.Geteuid())},
		{"gid_map", fmt.Sprintf("0 %d 1", os.Getegid())},
	} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, file.name), []byte(file.text), 0); err != nil {
			return err
		}
	}
	return nil
}

// End ends a sidecar that is not needed, and reaps it.
func (l *Launched) End() error {
	l.socket.Close()
	defer l.child.Pidfd.Close()
	if err := linux.PidfdSignal(l.child.Pidfd, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	_, err := unix.Wait4(l.child.PID, nil, 0, nil)
	return err
}

// ServeOptions says what a sidecar serves.
type ServeOptions struct {
	// ID is the container's, for the audit.
	ID     string
	Policy *policy.Policy
	// Listener was opened inside the container's network namespace. The caller
	// closes its copy.
	Listener *os.File
	// Init is a pidfd: the sidecar ends with that process.
	Init *os.File
	// Rootless chooses where the audit is kept.
	Rootless bool
	// CacheDir is where the filter is kept, see [seccomp.Compile].
	CacheDir string
}

// The messages between launcher and sidecar.
const (
	kindServe   syncsocket.Kind = "serve"
	kindServing syncsocket.Kind = "serving"
)

// serveRequest is the body of a serve message. Its files are the audit, a pidfd
// and the listener.
type serveRequest struct {
	ID     string          `json:"id"`
	UID    int             `json:"uid"`
	Policy *policy.Policy  `json:"policy"`
	Filter *seccomp.Filter `json:"filter"`
}

// Serve tells the sidecar what to serve and returns when it does. On an error
// it has ended.
func (l *Launched) Serve(o *ServeOptions) (linux.Process, error) {
	if err := l.serve(o); err != nil {
		return linux.Process{}, errors.Join(err, l.End())
	}
	l.child.Pidfd.Close()
	return l.process, l.socket.Close()
}

func (l *Launched) serve(o *ServeOptions) error {
	audit, err := openAudit(o.ID, o.Rootless)
	if err != nil {
		return err
	}
	defer audit.Close()
	filter, err := sidecarFilter(o.CacheDir)
	if err != nil {
		return err
	}
	// A sidecar that hangs must not hang create.
	patience := unix.Timeval{Sec: 10}
	if err := unix.SetsockoptTimeval(int(l.socket.File().Fd()), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	request := &serveRequest{ID: o.ID, UID: int(l.uid), Policy: o.Policy, Filter: filter}
	// Where it has ended already its last word says more than the broken pipe.
	sendErr := l.socket.Send(kindServe, request, audit, o.Init, o.Listener)
	if _, err := l.socket.Expect(kindServing, nil); err != nil {
		return fmt.Errorf("sidecar ended: %w", err)
	}
	return sendErr
}
