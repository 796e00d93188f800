package egress

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"eggrun/egress/inside"
	"eggrun/egress/resolver"
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
// returned sidecar is then told what to serve by [Prepared.Enter].
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

// The messages between a sidecar and those who made it.
const (
	kindServe   syncsocket.Kind = "serve"
	kindServing syncsocket.Kind = "serving"
)

// handed are the files that a sidecar is given beside its sockets: the audit, the
// control socket, a pidfd of the first member, and the ledger of fake addresses.
type handed struct{ audit, control, init, ledger *os.File }

// serveRequest is the body of a serve message. Its files are those of [handed], and
// the sockets in their order.
type serveRequest struct {
	// Container is the first member's id, for the audit.
	Container string          `json:"container"`
	UID       int             `json:"uid"`
	Policy    *policy.Policy  `json:"policy"`
	Filter    *seccomp.Filter `json:"filter"`
	// Sockets are the names of the sockets.
	Sockets []string `json:"sockets"`
	// NoTables is that of [inside.Sockets].
	NoTables bool `json:"noTables,omitempty"`
	// Conf is the resolv.conf that the engine wrote.
	Conf resolver.Conf `json:"conf"`
}

// serve tells the sidecar what to serve and returns when it does. On an error it
// has ended.
func (l *Launched) serve(request *serveRequest, h *handed, sockets []inside.Socket) (linux.Process, error) {
	err := l.tell(request, h, sockets)
	if err != nil {
		return linux.Process{}, errors.Join(err, l.End())
	}
	l.child.Pidfd.Close()
	return l.process, l.socket.Close()
}

func (l *Launched) tell(request *serveRequest, h *handed, sockets []inside.Socket) error {
	if err := setPatience(l.socket); err != nil {
		return err
	}
	request.UID = int(l.uid)
	files := []*os.File{h.audit, h.control, h.init, h.ledger}
	for _, s := range sockets {
		request.Sockets = append(request.Sockets, s.Name)
		files = append(files, s.File)
	}
	// Where it has ended already its last word says more than the broken pipe.
	sendErr := l.socket.Send(kindServe, request, files...)
	if _, err := l.socket.Expect(kindServing, nil); err != nil {
		return fmt.Errorf("sidecar ended: %w", err)
	}
	return sendErr
}

// setPatience bounds how long an answer is waited for: a sidecar that hangs must
// not hang who asks.
func setPatience(socket *syncsocket.Socket) error {
	patience := unix.Timeval{Sec: 10}
	err := unix.SetsockoptTimeval(int(socket.File().Fd()), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience)
	return os.NewSyscallError("setsockopt", err)
}
