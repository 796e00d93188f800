// Package syncsocket is the conversation between create, on the host, and the
// init process inside: one socketpair, messages of a length and JSON, and
// descriptors beside them.
//
//	host                                init
//	 ── Request (plan, fifo, rootfs) ─▶
//	                                    mounts, up to each run of bind mounts:
//	 ◀── Trees ───────────────────────
//	 ── Trees ────────────────────────▶
//	                                    mounts
//	 ── Joined (it is in its cgroup) ─▶
//	                                    cgroup namespace, cgroup mounts
//	 ◀── Listener (walled only) ──────
//	 ◀── Console (terminal only) ─────
//	 ◀── Hooks ───────────────────────
//	prestart, createRuntime
//	 ── Proceed ──────────────────────▶
//	                                    createContainer, pivot, everything else
//	 ◀── Seccomp (with an agent only) ─
//	 ── Proceed ──────────────────────▶
//	 ◀── Ready ───────────────────────
//
// Joined may come at any time after Request. Only a further process of a
// container waits for it in the end, and says so:
//
//	host                                init
//	 ── Request (plan) ───────────────▶
//	 ◀── Console (terminal only) ─────
//	                                    everything else
//	 ◀── Settled ─────────────────────
//	 ── Joined (it is in its cgroup) ─▶
//	                                    limits
//	 ◀── Seccomp (with an agent only) ─
//	 ── Proceed ──────────────────────▶
//	 ◀── Ready ───────────────────────
//
// Instead of any of its messages init may send Failed. Until it has sent Ready
// it exits when the host's end closes.
package syncsocket

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Kind names a message.
type Kind string

// The messages, in the order of the conversation.
const (
	Request  Kind = "request"
	Trees    Kind = "trees"
	Joined   Kind = "joined"
	Listener Kind = "listener"
	Console  Kind = "console"
	Hooks    Kind = "hooks"
	Proceed  Kind = "proceed"
	Settled  Kind = "settled"
	Seccomp  Kind = "seccomp"
	Ready    Kind = "ready"
	Failed   Kind = "failed"
)

// maxLength bounds a message; the plan of a large config.json is some 100 kB.
const maxLength = 64 << 20

// maxFiles bounds the descriptors of a message: SCM_MAX_FD, see unix(7).
const maxFiles = 253

// Message is one message.
type Message struct {
	Kind Kind            `json:"kind"`
	Body json.RawMessage `json:"body,omitempty"`
	// FileCount is how many descriptors come with it.
	FileCount int `json:"fileCount,omitempty"`
	// Files are those descriptors; the receiver closes them.
	Files []*os.File `json:"-"`
}

// Socket is one end of the sync socket.
type Socket struct {
	f *os.File
	// sending keeps the messages of two goroutines apart.
	sending sync.Mutex
}

// Pair returns two connected ends, close-on-exec.
func Pair() (host, init *Socket, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return New(os.NewFile(uintptr(fds[0]), "sync socket")), New(os.NewFile(uintptr(fds[1]), "sync socket")), nil
}

// New makes an end of an open descriptor.
func New(f *os.File) *Socket { return &Socket{f: f} }

// File returns the descriptor, to hand it on.
func (s *Socket) File() *os.File { return s.f }

// Close closes this end.
func (s *Socket) Close() error { return s.f.Close() }

// Encode returns the bytes of a message without descriptors, for whoever can't
// allocate later.
func Encode(kind Kind, body any) ([]byte, error) {
	return encode(kind, body, 0)
}

func encode(kind Kind, body any, fileCount int) ([]byte, error) {
	message := Message{Kind: kind, FileCount: fileCount}
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		message.Body = raw
	}
	data, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	if len(data) > maxLength {
		return nil, fmt.Errorf("sync message of %d bytes: too long", len(data))
	}
	return append(binary.NativeEndian.AppendUint32(nil, uint32(len(data))), data...), nil
}

// Send sends a message; body may be nil. The files stay the caller's to close.
func (s *Socket) Send(kind Kind, body any, files ...*os.File) error {
	data, err := encode(kind, body, len(files))
	if err != nil {
		return err
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	if err := s.write(data); err != nil {
		return err
	}
	// Each batch rides on one byte of its own, for the kernel never joins the
	// descriptors of two writes.
	for len(files) > 0 {
		batch := files[:min(len(files), maxFiles)]
		fds := make([]int, len(batch))
		for i, f := range batch {
			fds[i] = int(f.Fd())
		}
		if err := unix.Sendmsg(int(s.f.Fd()), []byte{0}, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL); err != nil {
			return os.NewSyscallError("send descriptors", err)
		}
		files = files[len(batch):]
	}
	return nil
}

// write does not raise SIGPIPE where the other end is gone.
func (s *Socket) write(data []byte) error {
	for len(data) > 0 {
		n, err := unix.SendmsgN(int(s.f.Fd()), data, nil, nil, unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("send sync message", err)
		}
		data = data[n:]
	}
	return nil
}

// Receive waits for the next message. io.EOF: the other end is closed.
func (s *Socket) Receive() (*Message, error) {
	var length [4]byte
	if err := s.read(length[:]); err != nil {
		return nil, err
	}
	size := binary.NativeEndian.Uint32(length[:])
	if size > maxLength {
		return nil, fmt.Errorf("sync message of %d bytes: too long", size)
	}
	data := make([]byte, size)
	if err := s.read(data); err != nil {
		return nil, err
	}
	var message Message
	if err := json.Unmarshal(data, &message); err != nil {
		return nil, fmt.Errorf("parse sync message: %w", err)
	}
	for len(message.Files) < message.FileCount {
		files, err := s.receiveFiles()
		if err != nil {
			return nil, err
		}
		message.Files = append(message.Files, files...)
	}
	return &message, nil
}

func (s *Socket) read(data []byte) error {
	for len(data) > 0 {
		n, err := unix.Read(int(s.f.Fd()), data)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECONNRESET), err == nil && n == 0:
			return io.EOF
		case err != nil:
			return os.NewSyscallError("read sync message", err)
		}
		data = data[n:]
	}
	return nil
}

func (s *Socket) receiveFiles() ([]*os.File, error) {
	var data [1]byte
	control := make([]byte, unix.CmsgSpace(4*maxFiles))
	_, n, flags, _, err := unix.Recvmsg(int(s.f.Fd()), data[:], control, unix.MSG_CMSG_CLOEXEC)
	if errors.Is(err, unix.ECONNRESET) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, os.NewSyscallError("receive descriptors", err)
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return nil, errors.New("receive descriptors: limit of open files reached; raise RLIMIT_NOFILE")
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return nil, os.NewSyscallError("receive descriptors", err)
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return nil, os.NewSyscallError("receive descriptors", err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	if len(files) == 0 {
		return nil, io.EOF
	}
	return files, nil
}

// Expect receives the next message, which must be of that kind, and decodes its
// body, if it has one, into body, which may be nil. A Failed message is
// returned as its error.
func (s *Socket) Expect(kind Kind, body any) (*Message, error) {
	message, err := s.Receive()
	if err == nil {
		err = message.Decode(kind, body)
	}
	if err != nil {
		return nil, err
	}
	return message, nil
}

// Decode does with a received message what [Socket.Expect] does with the next.
func (m *Message) Decode(kind Kind, body any) error {
	if m.Kind == Failed {
		return m.Failure()
	}
	if m.Kind != kind {
		return fmt.Errorf("sync message %q, want %q", m.Kind, kind)
	}
	if body != nil {
		if err := json.Unmarshal(m.Body, body); err != nil {
			return fmt.Errorf("parse sync message: %w", err)
		}
	}
	return nil
}

// Shutdown ends the conversation in both directions; each side reads io.EOF.
func (s *Socket) Shutdown() { _ = unix.Shutdown(int(s.f.Fd()), unix.SHUT_RDWR) }
