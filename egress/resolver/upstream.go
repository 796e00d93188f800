package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// serverTime is how long one nameserver has before the next one is asked.
	serverTime = 1500 * time.Millisecond
	dnsPort    = 53
)

// Socket is a socket that can be waited for: an [*os.File] made of a descriptor
// that doesn't block, or a connection of package net.
type Socket interface {
	syscall.Conn
	SetDeadline(time.Time) error
	Close() error
}

// Nameservers is the [Upstream] that asks the nameservers of the engine from
// within the container's namespace. It has one socket for UDP and one for TCP,
// which were opened there and marked for the namespace's rules beforehand; they
// are connected anew for each question, so no privilege is needed any more.
// Questions wait for each other.
type Nameservers struct {
	udp, tcp *socket
	servers  []netip.AddrPort
	turn     chan struct{}
}

// NewNameservers returns an Upstream that asks servers, at most three as
// [ParseConf] gives them, at port 53. udp and tcp are neither bound nor connected;
// a server that is not of their family is skipped. The sockets belong to the
// Nameservers from now on, also after an error.
func NewNameservers(udp, tcp Socket, servers []netip.Addr) (*Nameservers, error) {
	n := &Nameservers{turn: make(chan struct{}, 1)}
	for _, server := range servers {
		n.servers = append(n.servers, netip.AddrPortFrom(server, dnsPort))
	}
	var errs [2]error
	n.udp, errs[0] = newSocket(udp)
	n.tcp, errs[1] = newSocket(tcp)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, errors.Join(fmt.Errorf("socket to the engine's resolver: %w", err), udp.Close(), tcp.Close())
	}
	return n, nil
}

// Close closes both sockets; a question that waits for an answer gets none.
func (n *Nameservers) Close() error {
	return errors.Join(n.udp.Close(), n.tcp.Close())
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
	answer, err := n.udp.ask(ctx, server, func() ([]byte, error) { return n.udp.datagram(query) })
	if err != nil || binary.BigEndian.Uint16(answer[2:])&bitTruncated == 0 {
		return answer, err
	}
	return n.tcp.ask(ctx, server, func() ([]byte, error) { return n.tcp.stream(query) })
}

// isAnswer reports whether msg is an answer to the question with this id.
func isAnswer(msg []byte, id uint16) bool {
	return len(msg) >= headerLen && binary.BigEndian.Uint16(msg) == id && binary.BigEndian.Uint16(msg[2:])&bitResponse != 0
}

// socket is a socket that is connected again and again.
type socket struct {
	Socket
	raw    syscall.RawConn
	family int
}

func newSocket(s Socket) (*socket, error) {
	if err := s.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil, err
	}
	k := &socket{Socket: s, raw: raw}
	err = k.control(func(fd int) (err error) {
		k.family, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		return err
	})
	return k, err
}

// control calls f with the descriptor.
func (k *socket) control(f func(fd int) error) error {
	var err error
	return errors.Join(k.raw.Control(func(fd uintptr) { err = f(int(fd)) }), err)
}

// ask connects to server, calls exchange, and leaves the socket unconnected.
func (k *socket) ask(ctx context.Context, server netip.AddrPort, exchange func() ([]byte, error)) (answer []byte, err error) {
	to, err := k.sockaddr(server)
	if err != nil {
		return nil, err
	}
	if err := k.SetDeadline(time.Now().Add(serverTime)); err != nil {
		return nil, err
	}
	// A past deadline wakes whoever waits. It must not be set when the next
	// question has begun.
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		k.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // closed: nobody waits
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
	return exchange()
}

// sockaddr returns the address of server in the socket's family.
func (k *socket) sockaddr(server netip.AddrPort) (unix.Sockaddr, error) {
	addr := server.Addr()
	switch {
	case k.family == unix.AF_INET && addr.Unmap().Is4():
		return &unix.SockaddrInet4{Port: int(server.Port()), Addr: addr.Unmap().As4()}, nil
	case k.family == unix.AF_INET6 && addr.Zone() == "":
		return &unix.SockaddrInet6{Port: int(server.Port()), Addr: addr.As16()}, nil
	}
	return nil, fmt.Errorf("nameserver %s: the socket is of another family", addr)
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
	return errors.Join(err, result)
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

// Write sends p. The socket is not written through its Go type, which would
// believe that a [net.UDPConn] is not connected.
func (k *socket) Write(p []byte) (int, error) {
	var sendErr error
	// Less than the send buffer of a socket on which nothing else is waiting:
	// sent at once, or not at all.
	err := k.raw.Write(func(fd uintptr) bool {
		sendErr = unix.Sendto(int(fd), p, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, nil)
		return !errors.Is(sendErr, unix.EAGAIN)
	})
	return len(p), errors.Join(err, sendErr)
}

// Read receives what has come.
func (k *socket) Read(p []byte) (int, error) {
	var n int
	var receiveErr error
	err := k.raw.Read(func(fd uintptr) bool {
		n, _, receiveErr = unix.Recvfrom(int(fd), p, unix.MSG_DONTWAIT)
		return !errors.Is(receiveErr, unix.EAGAIN)
	})
	if err := errors.Join(err, receiveErr); err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}
