package resolver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// maxAsking is how many questions to the engine's resolver wait at a time.
	// It never keeps allowed names waiting: those are answered at once.
	maxAsking = 64
	// maxConns is how many TCP connections there are at a time; more wait in the
	// listeners' queues.
	maxConns = 64
	// tcpIdle is how long a connection may be silent, and may take to be read.
	tcpIdle = 10 * time.Second
	// acceptPause is the wait for descriptors when there are none left.
	acceptPause = 50 * time.Millisecond
)

// ServeUDP answers the questions that come to conn, until [Server.Close], when it
// returns nil. It closes conn. Several sockets may be served at the same time.
func (s *Server) ServeUDP(conn net.PacketConn) error {
	if !s.track(conn) {
		return nil
	}
	defer s.untrack(conn)
	buffer := make([]byte, maxQuery)
	for {
		n, client, err := conn.ReadFrom(buffer)
		if err != nil {
			return s.unlessClosed(err)
		}
		q, r, ask, ok := s.handle(buffer[:n])
		if !ok {
			continue
		}
		// A client that can't be reached asks again, or doesn't.
		send := func(r reply) { _, _ = conn.WriteTo(q.pack(r, q.udpSize), client) }
		if ask == nil {
			send(r)
			continue
		}
		select {
		case s.asking <- struct{}{}:
			s.running.Go(func() { send(s.askFor(ask)) })
		default:
			send(reply{code: dnsmessage.RCodeServerFailure})
		}
	}
}

// handle parses and answers one message; ask is as for [Server.answer]. What
// deserves no answer is not ok.
func (s *Server) handle(msg []byte) (q query, r reply, ask func(context.Context) reply, ok bool) {
	q, code, ok := parseQuery(msg)
	if !ok || code != dnsmessage.RCodeSuccess {
		return q, reply{code: code}, nil, ok
	}
	r, ask = s.answer(q)
	return q, r, ask, true
}

// askFor calls ask and gives back the slot of asking, which the caller has taken.
func (s *Server) askFor(ask func(context.Context) reply) reply {
	defer func() { <-s.asking }()
	ctx, cancel := context.WithTimeout(s.ctx, askTime)
	defer cancel()
	return ask(ctx)
}

// ServeTCP answers the questions that come by connections to listener, until
// [Server.Close], when it returns nil. It closes listener.
func (s *Server) ServeTCP(listener net.Listener) error {
	if !s.track(listener) {
		return nil
	}
	defer s.untrack(listener)
	for {
		select {
		case s.conns <- struct{}{}:
		case <-s.ctx.Done():
			return nil
		}
		conn, err := listener.Accept()
		if err != nil {
			<-s.conns
			if err := s.unlessClosed(err); err == nil || !isShortage(err) {
				return err
			}
			s.pause(acceptPause)
			continue
		}
		s.running.Go(func() {
			defer func() { <-s.conns }()
			s.serveConn(conn)
		})
	}
}

// serveConn answers the questions of one connection, one after the other (RFC
// 7766), until the client ends it or is silent.
func (s *Server) serveConn(conn net.Conn) {
	if !s.track(conn) {
		return
	}
	defer s.untrack(conn)
	buffer := make([]byte, maxQuery)
	for {
		if conn.SetDeadline(time.Now().Add(tcpIdle)) != nil {
			return
		}
		msg, err := readFrame(conn, buffer)
		if err != nil {
			return
		}
		q, r, ask, ok := s.handle(msg)
		if !ok {
			return
		}
		if ask != nil {
			select {
			case s.asking <- struct{}{}:
				r = s.askFor(ask)
			default:
				r = reply{code: dnsmessage.RCodeServerFailure}
			}
		}
		if _, err := conn.Write(frame(q.pack(r, maxTCP))); err != nil {
			return
		}
	}
}

// frame returns msg with the length that it has before it on a stream, RFC 1035
// section 4.2.2.
func frame(msg []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...)
}

// readFrame reads one message of a stream into buffer.
func readFrame(stream io.Reader, buffer []byte) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(stream, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(size[:]))
	if n > len(buffer) {
		return nil, io.ErrShortBuffer
	}
	_, err := io.ReadFull(stream, buffer[:n])
	return buffer[:n], err
}

// isShortage reports whether a listener works again when others have closed
// something.
func isShortage(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func (s *Server) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
	}
}

// track takes charge of c: [Server.Close] closes it, and waits for untrack. After
// Close it closes c and returns false.
func (s *Server) track(c io.Closer) bool {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	if s.open == nil {
		c.Close()
		return false
	}
	s.open[c] = struct{}{}
	s.running.Add(1)
	return true
}

func (s *Server) untrack(c io.Closer) {
	c.Close()
	s.openMu.Lock()
	defer s.openMu.Unlock()
	delete(s.open, c)
	s.running.Done()
}

// unlessClosed returns err, or nil when [Server.Close] is the reason for it.
func (s *Server) unlessClosed(err error) error {
	if s.ctx.Err() != nil {
		return nil
	}
	return err
}

// Close ends the server: it closes every socket and waits until nobody is being
// answered. It may be called more than once.
func (s *Server) Close() {
	s.cancel()
	s.openMu.Lock()
	for c := range s.open {
		c.Close()
	}
	s.open = nil
	s.openMu.Unlock()
	s.running.Wait()
}
