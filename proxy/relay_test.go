package proxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"eggrun/internal/need"
)

// TestPipelinedBytes sends a request and the first bytes of the tunnel at once.
func TestPipelinedBytes(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, Options{Policy: allow(t, "good.test")}, toOrigin(origin(t, echo)))
	for _, size := range []int{1, 100, 4000, 40000} {
		for range 25 {
			payload := strings.Repeat("early ", size/6+1)
			c := dialProxy(t, addr)
			c.send(t, "CONNECT good.test:443 HTTP/1.1\r\n\r\n"+payload)
			if a := c.read(t, "CONNECT"); a.status != 200 {
				t.Fatal(a.line)
			}
			got := make([]byte, len(payload))
			if _, err := io.ReadFull(c.in, got); err != nil || string(got) != payload {
				t.Fatalf("%d bytes sent early came back as %d, %v", len(payload), len(got), err)
			}
			c.mustEcho(t, "later")
			_ = c.Close()
		}
	}
}

// TestHalfClose has each side end first and still get everything of the other.
func TestHalfClose(t *testing.T) {
	t.Parallel()
	big := make([]byte, 3<<20) // beyond the point where relaying changes to splice
	_, _ = rand.Read(big)
	t.Run("client first", func(t *testing.T) {
		t.Parallel()
		to := origin(t, func(conn *net.TCPConn) {
			got, err := io.ReadAll(conn)
			if err == nil && bytes.Equal(got, big) {
				_, _ = conn.Write(big)
			}
		})
		_, addr := serve(t, Options{Policy: allow(t, "good.test")}, toOrigin(to))
		c := connect(t, addr, "good.test:443")
		if _, err := c.Write(big); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c.in); err != nil || !bytes.Equal(got, big) {
			t.Errorf("got %d bytes of the answer, %v", len(got), err)
		}
	})
	t.Run("upstream first", func(t *testing.T) {
		t.Parallel()
		uploaded := make(chan []byte, 1)
		to := origin(t, func(conn *net.TCPConn) {
			_, _ = conn.Write(big)
			_ = conn.CloseWrite()
			got, _ := io.ReadAll(conn)
			uploaded <- got
		})
		_, addr := serve(t, Options{Policy: allow(t, "good.test")}, toOrigin(to))
		c := connect(t, addr, "good.test:443")
		if got, err := io.ReadAll(c.in); err != nil || !bytes.Equal(got, big) {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
		if _, err := c.Write(big); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		if got := <-uploaded; !bytes.Equal(got, big) {
			t.Errorf("upstream got %d bytes", len(got))
		}
	})
}

// TestClientGoneAfterHalfClose resets a tunnel whose client direction has ended,
// while the upstream is silent.
func TestClientGoneAfterHalfClose(t *testing.T) {
	t.Parallel()
	halfClosed, gone := make(chan struct{}), make(chan error, 1)
	to := origin(t, func(conn *net.TCPConn) {
		_, _ = io.ReadAll(conn)
		close(halfClosed)
		// No read can tell now, so try to write until that breaks.
		for {
			if _, err := conn.Write([]byte("x")); err != nil {
				gone <- err
				return
			}
		}
	})
	lines := new(sink)
	_, addr := serve(t, Options{Policy: allow(t, "good.test"), Audit: lines}, toOrigin(to))
	c := connect(t, addr, "good.test:443")
	_ = c.CloseWrite()
	<-halfClosed
	_ = c.SetLinger(0)
	_ = c.Close()
	<-gone
	if got := lines.wait(t, 2)[1]["close_reason"]; got != "reset" {
		t.Errorf("close reason %q, want reset", got)
	}
}

// TestSilentUpstreamIsLeftWhenClientResets is the case that only the wait for a
// reset finds: nobody sends anything any more.
func TestSilentUpstreamIsLeftWhenClientResets(t *testing.T) {
	t.Parallel()
	halfClosed, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	to := origin(t, func(conn *net.TCPConn) {
		_, _ = io.ReadAll(conn)
		close(halfClosed)
		<-release
	})
	lines := new(sink)
	_, addr := serve(t, Options{Policy: allow(t, "good.test"), Audit: lines}, toOrigin(to))
	c := connect(t, addr, "good.test:443")
	_ = c.CloseWrite()
	<-halfClosed
	_ = c.SetLinger(0)
	_ = c.Close()
	if got := lines.wait(t, 2)[1]["close_reason"]; got != "reset" {
		t.Errorf("close reason %q, want reset", got)
	}
}

func TestCloseEndsLiveTunnels(t *testing.T) {
	t.Parallel()
	upstreamEnded := make(chan struct{}, 2)
	to := origin(t, func(conn *net.TCPConn) {
		echo(conn)
		upstreamEnded <- struct{}{}
	})
	lines := new(sink)
	p, addr := serve(t, Options{Policy: allow(t, "good.test"), Audit: lines}, toOrigin(to))
	tunnels := []*client{connect(t, addr, "good.test:443"), connect(t, addr, "good.test:443")}
	for _, c := range tunnels {
		c.mustEcho(t, "alive")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range tunnels {
		c.mustEnd(t)
		<-upstreamEnded
	}
	for _, l := range lines.wait(t, 4)[2:] {
		if l["close_reason"] != "closed" {
			t.Errorf("close reason %q, want closed", l["close_reason"])
		}
	}
}

func countFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestIdleTunnelDescriptors runs alone, because it counts the descriptors of
// this process: client and origin live in it too, so two a tunnel are theirs.
func TestIdleTunnelDescriptors(t *testing.T) {
	need.That(t, "/proc/self/fd", func() error { _, err := os.Stat("/proc/self/fd"); return err })
	const n = 64
	p, addr := serve(t, Options{Policy: allow(t, "good.test")}, toOrigin(origin(t, echo)))
	before := countFDs(t)
	tunnels := make([]*client, n)
	for i := range tunnels {
		tunnels[i] = connect(t, addr, "good.test:443")
		tunnels[i].mustEcho(t, "has carried bytes")
	}
	if per := float64(countFDs(t)-before) / n; per > 4.5 {
		t.Errorf("%.1f descriptors for an idle tunnel, want 2 of the proxy and 2 of the test", per)
	}
	for _, c := range tunnels {
		_ = c.Close()
	}
	eventually(t, "descriptors of closed tunnels are given back", func() bool { return countFDs(t) <= before+2 })
	eventually(t, "places are given back", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.live) == 0
	})
}

// keepingListener keeps what it has accepted.
type keepingListener struct {
	net.Listener
	accepted chan net.Conn
}

func (l keepingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- conn
	}
	return conn, err
}

// TestKeepalive looks at both sides of a tunnel.
func TestKeepalive(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := origin(t, echo)
	sides := make(chan net.Conn, 2)
	p := New(Options{Policy: allow(t, "127.0.0.1:*"), Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		sides <- conn
		return conn, err
	}})
	go func() { _ = p.Serve(keepingListener{l, sides}) }()
	defer func() { _ = p.Close() }()
	connect(t, l.Addr().String(), target).mustEcho(t, "up")
	for range 2 {
		conn := <-sides
		raw, ok := rawConn(conn)
		if !ok {
			t.Fatalf("%T has no descriptor", conn)
		}
		on := 0
		if err := raw.Control(func(fd uintptr) { on, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_KEEPALIVE) }); err != nil || on == 0 {
			t.Errorf("%v: SO_KEEPALIVE = %d, %v", conn.RemoteAddr(), on, err)
		}
	}
}
