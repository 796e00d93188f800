package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// serverTime is how long one nameserver has before the next one is asked.
	serverTime = 1500 * time.Millisecond
	dnsPort    = 53
)

// Nameservers is the [Upstream] that asks the nameservers of the engine from
// within the container's namespace. Its sockets were opened there and marked for
// the namespace's rules beforehand; they are connected anew for each question, so
// no privilege is needed any more. Questions wait for each other.
type Nameservers struct {
	sockets []*socket
	servers []netip.AddrPort
	turn    chan struct{}
}

// NewNameservers returns an Upstream that asks servers, at most three as
// [ParseConf] gives them, at port 53. files are one UDP and one TCP socket for
// each family of the servers, neither bound nor connected; a server for which
// there is none is skipped. They are closed, for the Nameservers has copies,
// which don't block: that is a property of the socket, so nobody else may use it.
func NewNameservers(files []*os.File, servers []netip.Addr) (*Nameservers, error) {
	n := &Nameservers{turn: make(chan struct{}, 1)}
	n.SetServers(servers)
	var errs []error
	for _, file := range files {
		k, err := newSocket(file)
		if err == nil {
			n.sockets = append(n.sockets, k)
		}
		errs = append(errs, err, file.Close())
	}
	if err := errors.Join(errs...); err != nil {
		n.Close()
		return nil, fmt.Errorf("socket to the engine's resolver: %w", err)
	}
	return n, nil
}

// SetServers puts servers in the place of those that are asked, once nobody waits
// for an answer.
func (n *Nameservers) SetServers(servers []netip.Addr) {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	n.servers = nil
	for _, server := range servers {
		n.servers = append(n.servers, netip.AddrPortFrom(server, dnsPort))
	}
}

// Close closes the sockets; a question that waits for an answer gets none.
func (n *Nameservers) Close() error {
	var errs []error
	for _, k := range n.sockets {
		errs = append(errs, k.file.Close())
	}
	return errors.Join(errs...)
}

// Exchange asks one server after the other until one answers. What is too long
// for UDP is asked again by TCP.
func (n *Nameservers) Exchange(ctx context.Context, query []byte) ([]byte, error) {
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	err := errUpstream
	for _, server := range n.servers {
		var answer []byte
		if answer, err = n.exchange(ctx, server, query); err == nil {
			return answer, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return nil, err
}

func (n *Nameservers) exchange(ctx context.Context, server netip.AddrPort, query []byte) ([]byte, error) {
	answer, err := n.ask(ctx, server, unix.SOCK_DGRAM, query)
	if err != nil || binary.BigEndian.Uint16(answer[2:])&bitTruncated == 0 {
		return answer, err
	}
	return n.ask(ctx, server, unix.SOCK_STREAM, query)
}

// ask asks server by the socket of its family and of this type.
func (n *Nameservers) ask(ctx context.Context, server netip.AddrPort, kind int, query []byte) ([]byte, error) {
	to, family := sockaddr(server)
	for _, k := range n.sockets {
		if k.family == family && k.kind == kind {
			return k.ask(ctx, to, query)
		}
	}
	return nil, fmt.Errorf("nameserver %s: no socket of its family", server.Addr())
}

// sockaddr returns the address of server and its family. A zone has no meaning
// outside of the container, and the kernel refuses a link-local address without.
func sockaddr(server netip.AddrPort) (unix.Sockaddr, int) {
	if addr := server.Addr().Unmap(); addr.Is4() {
		return &unix.SockaddrInet4{Port: int(server.Port()), Addr: addr.As4()}, unix.AF_INET
	}
	return &unix.SockaddrInet6{Port: int(server.Port()), Addr: server.Addr().As16()}, unix.AF_INET6
}

// isAnswer reports whether msg is an answer to the question with this id.
func isAnswer(msg []byte, id uint16) bool {
	return len(msg) >= headerLen && binary.BigEndian.Uint16(msg) == id && binary.BigEndian.Uint16(msg[2:])&bitResponse != 0
}

// socket is a socket that is connected again and again.
type socket struct {
	file         *os.File
	raw          syscall.RawConn
	family, kind int // AF_INET or AF_INET6, SOCK_DGRAM or SOCK_STREAM
}

// newSocket returns a copy of file that can be waited for.
func newSocket(file *os.File) (*socket, error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	// Only now, since it looks whether the descriptor blocks.
	k := &socket{file: os.NewFile(uintptr(fd), file.Name())}
	var errs [4]error
	k.family, errs[0] = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	k.kind, errs[1] = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	k.raw, errs[2] = k.file.SyscallConn()
	errs[3] = k.file.SetDeadline(time.Time{})
	if err := errors.Join(errs[:]...); err != nil {
		return nil, errors.Join(err, k.file.Close())
	}
	return k, nil
}

// control calls f with the descriptor.
func (k *socket) control(f func(fd int) error) error {
	var err error
	if err := k.raw.Control(func(fd uintptr) { err = f(int(fd)) }); err != nil {
		return err
	}
	return err
}

// ask connects to a server, sends query, returns the answer, and leaves the
// socket unconnected.
func (k *socket) ask(ctx context.Context, to unix.Sockaddr, query []byte) (answer []byte, err error) {
	if err := k.file.SetDeadline(time.Now().Add(serverTime)); err != nil {
		return nil, err
	}
	// A past deadline wakes whoever waits. It must not be set when the next
	// question has begun.
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = k.file.SetDeadline(time.Unix(1, 0)) // closed: nobody waits
	})
	defer func() {
		if !stop() {
			<-woken
		}
		if disconnectErr := k.control(disconnect); disconnectErr != nil && err == nil {
			err = disconnectErr
		}
	}()
	err = k.control(func(fd int) error { return unix.Connect(fd, to) })
	if errors.Is(err, unix.EINPROGRESS) {
		err = k.connected()
	}
	if err != nil {
		return nil, err
	}
	if k.kind == unix.SOCK_STREAM {
		return k.stream(query)
	}
	return k.datagram(query)
}

// connected waits until a connection is made.
func (k *socket) connected() error {
	var result error
	err := k.raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		if err != nil {
			result = err
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err == nil
	})
	if err != nil {
		return err
	}
	return result
}

// datagram sends query and returns its answer. What else arrives is late, for an
// earlier question, or forged.
func (k *socket) datagram(query []byte) ([]byte, error) {
	if _, err := k.Write(query); err != nil {
		return nil, err
	}
	buffer := make([]byte, maxQuery)
	for {
		n, err := k.Read(buffer)
		if err != nil {
			return nil, err
		}
		if isAnswer(buffer[:n], binary.BigEndian.Uint16(query)) {
			return buffer[:n], nil
		}
	}
}

// stream sends query and returns its answer by TCP.
func (k *socket) stream(query []byte) ([]byte, error) {
	if _, err := k.Write(frame(query)); err != nil {
		return nil, err
	}
	answer, err := readFrame(k, make([]byte, maxTCP))
	if err == nil && !isAnswer(answer, binary.BigEndian.Uint16(query)) {
		err = errUpstream
	}
	return answer, err
}

// Write sends p.
func (k *socket) Write(p []byte) (int, error) {
	var sendErr error
	// Less than the send buffer of a socket on which nothing else is waiting:
	// sent at once, or not at all.
	err := k.raw.Write(func(fd uintptr) bool {
		sendErr = unix.Sendto(int(fd), p, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, nil)
		return !errors.Is(sendErr, unix.EAGAIN)
	})
	if err != nil {
		return 0, err
	}
	return len(p), sendErr
}

// Read receives what has come.
func (k *socket) Read(p []byte) (int, error) {
	var n int
	var receiveErr error
	err := k.raw.Read(func(fd uintptr) bool {
		n, _, receiveErr = unix.Recvfrom(int(fd), p, unix.MSG_DONTWAIT)
		return !errors.Is(receiveErr, unix.EAGAIN)
	})
	switch {
	case err != nil:
		return 0, err
	case receiveErr != nil:
		return 0, receiveErr
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
