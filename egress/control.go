package egress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"eggrun/egress/inside"
	"eggrun/egress/resolver"
	"eggrun/internal/syncsocket"
	"eggrun/policy"

	"golang.org/x/sys/unix"
)

// What a sidecar is asked on its control socket, one request a connection. Each
// is answered by done, or failed.
const (
	// kindJoin hands over a further member: its id, and its pidfd.
	kindJoin syncsocket.Kind = "join"
	// kindBrought says what the engine has brought by the start of a member, a
	// [brought].
	kindBrought syncsocket.Kind = "brought"
	// kindReload brings a [policy.Policy].
	kindReload syncsocket.Kind = "reload"
	// kindStatus is answered by a [Status], kindMetrics by a text.
	kindStatus  syncsocket.Kind = "status"
	kindMetrics syncsocket.Kind = "metrics"
	kindDone    syncsocket.Kind = "done"
)

// brought is what an engine has added to a network namespace.
type brought struct {
	// Peers are who is reached directly.
	Peers []inside.Range `json:"peers"`
	// Conf is the engine's resolv.conf, nil where that is as it was at create.
	Conf *resolver.Conf `json:"conf,omitempty"`
}

// controlPause is the wait for a descriptor when there are none left.
const controlPause = 50 * time.Millisecond

// Status is what a sidecar says of itself.
type Status struct {
	// Container is the member whose audit it writes, Members are those that live.
	Container string         `json:"container"`
	Members   []string       `json:"members"`
	Policy    *policy.Policy `json:"policy"`
}

// serveControl answers until the sidecar ends.
func (s *sidecar) serveControl() {
	for {
		conn, err := s.control.Accept()
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			// The container holds them all, and must not end its sidecar by that
			// when somebody asks for it.
			time.Sleep(controlPause)
			continue
		}
		if err != nil {
			s.end(fmt.Errorf("control socket: %w", err))
			return
		}
		// Blocking, as the messages want it; a client that is silent costs a
		// thread for ten seconds, and is the container's owner.
		f, err := conn.(interface{ File() (*os.File, error) }).File()
		conn.Close()
		if err != nil {
			continue
		}
		go s.answer(syncsocket.New(f))
	}
}

// answer answers one request.
func (s *sidecar) answer(conn *syncsocket.Socket) {
	defer conn.Close()
	if setPatience(conn) != nil {
		return
	}
	message, err := conn.Receive()
	if err != nil {
		return
	}
	answer, err := s.obey(message)
	if err != nil {
		_ = conn.SendFailure(err)
		return
	}
	_ = conn.Send(kindDone, answer)
}

func (s *sidecar) obey(m *syncsocket.Message) (answer any, err error) {
	switch m.Kind {
	case kindJoin:
		var id string
		if err := m.Decode(kindJoin, &id); err != nil {
			return nil, err
		}
		if len(m.Files) != 1 {
			return nil, errors.New("a member without a pidfd")
		}
		if len(s.alive()) == 0 {
			return nil, errors.New("the last member has ended")
		}
		return nil, s.addMember(id, m.Files[0])
	case kindBrought:
		var b brought
		if err := m.Decode(kindBrought, &b); err != nil {
			return nil, err
		}
		s.setEngine(&b)
		return nil, nil
	case kindReload:
		p := new(policy.Policy)
		if err := m.Decode(kindReload, p); err != nil {
			return nil, err
		}
		s.setPolicy(p)
		return nil, nil
	case kindStatus:
		s.mu.Lock()
		p := s.policy
		s.mu.Unlock()
		return &Status{Container: s.container, Members: s.alive(), Policy: p}, nil
	case kindMetrics:
		var text bytes.Buffer
		err := s.proxy.WriteMetrics(&text)
		return text.String(), err
	}
	return nil, fmt.Errorf("request %q: unknown", m.Kind)
}

// dialControl connects to the sidecar of an entry.
func dialControl(entry string) (*syncsocket.Socket, error) {
	dir, err := os.OpenFile(entry, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), controlName)
	name := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), controlName)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		f.Close()
		return nil, os.NewSyscallError("connect to the control socket", err)
	}
	return syncsocket.New(f), nil
}

// countMembers asks a sidecar how many of its members live.
func countMembers(entry string) (int, error) {
	status, err := GetStatus(entry)
	if err != nil {
		return 0, err
	}
	return len(status.Members), nil
}

// GetStatus asks the sidecar of an entry of the registry about itself.
func GetStatus(entry string) (*Status, error) {
	status := new(Status)
	return status, ask(entry, kindStatus, nil, status)
}

// Metrics returns the counters of a sidecar, in the text format of Prometheus.
func Metrics(entry string) (text string, err error) {
	err = ask(entry, kindMetrics, nil, &text)
	return text, err
}

// errControl says that a sidecar doesn't answer.
var errControl = errors.New("the sidecar has ended")

// ask sends a request to the sidecar whose entry is given, with files, and
// decodes the answer into answer, which may be nil.
func ask(entry string, kind syncsocket.Kind, body, answer any, files ...*os.File) error {
	conn, err := dialControl(entry)
	if err != nil {
		return fmt.Errorf("egress proxy: %w: %w", errControl, err)
	}
	defer conn.Close()
	if err := setPatience(conn); err != nil {
		return err
	}
	sendErr := conn.Send(kind, body, files...)
	_, err = conn.Expect(kindDone, answer)
	if errors.Is(err, io.EOF) {
		// It had not been killed yet when it was connected to.
		return fmt.Errorf("egress proxy: %w", errControl)
	}
	if err != nil {
		return fmt.Errorf("egress proxy: %w", errors.Join(err, sendErr))
	}
	return nil
}
