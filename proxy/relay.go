package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

const (
	bufferSize = 32 << 10
	// spliceAfter is when a direction is busy enough for splice(2), which costs
	// half the CPU but holds a pipe while it waits.
	spliceAfter = 1 << 20
)

// buffers is shared by all tunnels: only those that are moving bytes hold one.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// link is a tunnel while it relays.
type link struct {
	client, upstream net.Conn
	done             atomic.Int32 // directions that have ended well
	once             sync.Once
	reason           string
}

// relay copies between client and upstream until both directions have ended or
// one has broken, and closes both. Each direction begins with what early and late
// send. The end of one direction is passed on and
// leaves the other open, for as long as it wants: git and many others ask for
// the rest of an answer after they have shut down their side. There is no limit
// to how long a tunnel may idle; the keepalive that Go's listener and dialer
// switch on finds a side that is gone.
func relay(client, upstream net.Conn, early, late func() (int64, error)) (up, down int64, reason string) {
	l := &link{client: client, upstream: upstream}
	var back sync.WaitGroup
	back.Go(func() { down = l.direction(client, upstream, late) })
	up = l.direction(upstream, client, early)
	back.Wait()
	return up, down, l.reason
}

// direction copies from src to dst, begun by first, and passes the end on.
func (l *link) direction(dst, src net.Conn, first func() (int64, error)) int64 {
	n, err := first()
	if err == nil {
		var rest int64
		rest, err = transfer(dst, src)
		n += rest
	}
	if err == nil {
		if l.done.Add(1) == 2 {
			l.stop("eof")
			return n
		}
		if err = closeWrite(dst); err == nil {
			err = awaitReset(src)
		}
	}
	if err != nil {
		l.stop(endReason(err))
	}
	return n
}

// stop closes both sides, which ends the other direction. The first reason
// counts.
func (l *link) stop(reason string) {
	l.once.Do(func() {
		l.reason = reason
		_ = l.client.Close()
		_ = l.upstream.Close()
	})
}

// transfer copies until the end of src. Both must be what the listener and the
// dialer returned: a wrapper around either hides splice.
func transfer(dst, src net.Conn) (int64, error) {
	raw, ok := rawConn(src)
	if !ok {
		return io.Copy(dst, src)
	}
	n, end, err := transferPooled(dst, raw, spliceAfter)
	if end || err != nil {
		return n, err
	}
	rest, err := io.Copy(dst, src)
	return n + rest, err
}

// transferPooled copies about limit bytes. It takes a buffer only once there is
// something to read, and gives it back before it waits again.
func transferPooled(dst io.Writer, src syscall.RawConn, limit int64) (n int64, end bool, err error) {
	var buf *[bufferSize]byte
	var got int
	var fault error
	read := func(fd uintptr) bool {
		buf = buffers.Get().(*[bufferSize]byte)
		got, fault = readRetry(int(fd), buf[:])
		if errors.Is(fault, syscall.EAGAIN) {
			buffers.Put(buf)
			return false
		}
		return true
	}
	for n < limit {
		if err := src.Read(read); err != nil {
			return n, false, err
		}
		if got > 0 {
			got, err = dst.Write(buf[:got])
			n += int64(got)
		} else {
			end, err = fault == nil, fault
		}
		buffers.Put(buf)
		if end || err != nil {
			return n, end, err
		}
	}
	return n, false, nil
}

// readRetry is read(2), again when a signal interrupts it. At an error it
// returns no bytes.
func readRetry(fd int, b []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, b)
		if !errors.Is(err, syscall.EINTR) {
			return max(n, 0), err
		}
	}
}

// awaitReset waits, after the peer of conn has ended its direction, until the
// connection breaks or is closed here. Without it a client that is gone
// altogether, not only done with sending, would hold the tunnel for as long as
// the other side is silent: its reset comes as an answer to a keepalive.
//
// A socket whose peer has sent FIN reads as ended even after a reset, so this
// looks at SO_ERROR. The runtime's poller is edge-triggered: no busy loop.
func awaitReset(conn net.Conn) error {
	raw, ok := rawConn(conn)
	if !ok {
		return nil
	}
	var code int
	var fault error
	err := raw.Read(func(fd uintptr) bool {
		code, fault = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
		return code != 0 || fault != nil
	})
	if err == nil && fault == nil {
		err = syscall.Errno(code)
	}
	return errors.Join(err, fault)
}

func rawConn(conn net.Conn) (syscall.RawConn, bool) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, false
	}
	raw, err := sc.SyscallConn()
	return raw, err == nil
}

// closeWrite ends the direction towards the peer of conn.
func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return conn.Close()
}

// endReason is the word of the audit for how a tunnel ended.
func endReason(err error) string {
	switch {
	case errors.Is(err, net.ErrClosed):
		return "closed"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, errOtherName):
		return "sni_differs"
	case isTimeout(err):
		return "timeout"
	}
	return "broken"
}
