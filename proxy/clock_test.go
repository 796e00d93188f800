package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"eggrun/policy"
)

// These tests run on a clock that jumps when everybody waits, over connections
// in memory: hours pass in no time, and a limit is exactly what it says.

// pipeListener hands out one side of pipes.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (l *pipeListener) dial() net.Conn {
	here, there := net.Pipe()
	l.conns <- there
	return here
}

// onFakeClock runs test with a proxy whose only origin echoes.
func onFakeClock(t *testing.T, opts Options, test func(t *testing.T, proxied, redirected *pipeListener)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts.Lookup = func(context.Context, string) ([]netip.Addr, error) { return []netip.Addr{public}, nil }
		if opts.Dial == nil {
			opts.Dial = func(context.Context, string, string) (net.Conn, error) {
				here, there := net.Pipe()
				go func() { _, _ = io.Copy(there, there) }()
				return here, nil
			}
		}
		opts.OwnAddrs = func() ([]netip.Addr, error) { return nil, nil }
		opts.OriginalDst = func(net.Conn) (netip.AddrPort, error) { return netip.AddrPortFrom(fake, tlsPort), nil }
		opts.NameOf = func(netip.Addr) (string, bool) { return "good.test", true }
		p := New(opts)
		proxied := &pipeListener{make(chan net.Conn), make(chan struct{})}
		redirected := &pipeListener{make(chan net.Conn), make(chan struct{})}
		go func() { _ = p.Serve(proxied) }()
		go func() { _ = p.ServeTransparent(redirected) }()
		test(t, proxied, redirected)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestSlowHead(t *testing.T) {
	t.Parallel()
	onFakeClock(t, Options{Policy: allow(t, "good.test")}, func(t *testing.T, proxied, _ *pipeListener) {
		begun := time.Now()
		c := proxied.dial()
		var drip sync.WaitGroup
		defer drip.Wait()
		drip.Go(func() {
			for _, b := range []byte("CONNECT good.test:443 HTTP/1.1\r\n") {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		got, err := io.ReadAll(c)
		if took := time.Since(begun); took != headTimeout || !strings.HasPrefix(string(got), "HTTP/1.1 400 eggrun: head took too long") {
			t.Errorf("%q, %v after %v", got, err, took)
		}
	})
}

func TestSilentClient(t *testing.T) {
	t.Parallel()
	onFakeClock(t, Options{Policy: allow(t, "good.test")}, func(t *testing.T, proxied, _ *pipeListener) {
		for _, sends := range []string{"", "\x05", "\x05\x01\x00"} {
			begun := time.Now()
			c := proxied.dial()
			_, _ = io.WriteString(c, sends)
			got, err := io.ReadAll(c)
			if took := time.Since(begun); err != nil || took < headTimeout || took > headTimeout+sniffTimeout {
				t.Errorf("%q: %q, %v after %v", sends, got, err, took)
			}
		}
	})
}

func TestSilenceIsNotTLS(t *testing.T) {
	t.Parallel()
	hello := clientHello(t, "good.test")
	for _, tt := range []struct {
		name   string
		sends  []byte
		after  time.Duration
		reason string
		answer []byte
	}{
		{"silent", nil, silence, "not_tls", nil},
		{"begins and stops", hello[:50], helloTimeout, "bad_hello", accessDenied()},
	} {
		lines := new(sink)
		onFakeClock(t, Options{Policy: matching(t, policy.SNIMatch, "good.test"), Audit: lines}, func(t *testing.T, proxied, redirected *pipeListener) {
			tunnel := proxied.dial()
			_, _ = io.WriteString(tunnel, "CONNECT good.test:443 HTTP/1.1\r\n\r\n")
			established := make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n"))
			_, _ = io.ReadFull(tunnel, established)
			for _, dial := range []func() net.Conn{func() net.Conn { return tunnel }, redirected.dial} {
				begun := time.Now()
				c := dial()
				_, _ = c.Write(tt.sends)
				got, err := io.ReadAll(c)
				if took := time.Since(begun); err != nil || took != tt.after || !bytes.Equal(got, tt.answer) {
					t.Errorf("%s: % x, %v after %v, want % x after %v", tt.name, got, err, took, tt.answer, tt.after)
				}
			}
		})
		for _, l := range lines.wait(t, 2) {
			if l["reason"] != tt.reason {
				t.Errorf("%s: %v", tt.name, l)
			}
		}
	}
}

// TestIdleTunnel has one event a day.
func TestIdleTunnel(t *testing.T) {
	t.Parallel()
	hello := clientHello(t, "good.test")
	onFakeClock(t, Options{Policy: matching(t, policy.SNIMatch, "good.test")}, func(t *testing.T, proxied, _ *pipeListener) {
		c := proxied.dial()
		_, _ = io.WriteString(c, "CONNECT good.test:443 HTTP/1.1\r\n\r\n")
		_, _ = io.ReadFull(c, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n")))
		for _, event := range [][]byte{hello, []byte("one"), []byte("another")} {
			if _, err := c.Write(event); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(event))
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, event) {
				t.Fatalf("%q, %v", got, err)
			}
			time.Sleep(24 * time.Hour)
		}
		_ = c.Close()
	})
}

func TestDialTimesOut(t *testing.T) {
	t.Parallel()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	onFakeClock(t, Options{Policy: allow(t, "good.test"), Dial: dial}, func(t *testing.T, proxied, _ *pipeListener) {
		begun := time.Now()
		c := proxied.dial()
		_, _ = io.WriteString(c, "CONNECT good.test:443 HTTP/1.1\r\n\r\n")
		got, _ := io.ReadAll(c)
		if took := time.Since(begun); took != dialTimeout || !strings.HasPrefix(string(got), "HTTP/1.1 504 eggrun: good.test:443 connect timed out") {
			t.Errorf("%q after %v", got, took)
		}
	})
}

// TestSecondAddressAfterTheStagger has a first address that never answers.
func TestSecondAddressAfterTheStagger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		dead := netip.MustParseAddr("9.9.9.8")
		dial := func(ctx context.Context, _, address string) (net.Conn, error) {
			if strings.HasPrefix(address, dead.String()) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			here, _ := net.Pipe()
			return here, nil
		}
		conn, to, err := race(t.Context(), dial, []netip.Addr{dead, public}, 443)
		if err != nil || to.Addr() != public || time.Since(begun) != stagger {
			t.Fatalf("%v, %v after %v", to, err, time.Since(begun))
		}
		_ = conn.Close()
	})
}

// starvingListener fails as accept4(2) does.
type starvingListener struct {
	*pipeListener
	errs []error
}

func (l *starvingListener) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, err
	}
	return l.pipeListener.Accept()
}

func TestAcceptBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		l := &starvingListener{&pipeListener{make(chan net.Conn), make(chan struct{})}, nil}
		for range 4 {
			l.errs = append(l.errs, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)})
		}
		p := New(Options{})
		served := make(chan error, 1)
		go func() { served <- p.Serve(l) }()
		c := l.dial()
		if took, want := time.Since(begun), (1+2+4+8)*acceptPause; took != want {
			t.Errorf("accepts again after %v, want %v", took, want)
		}
		_, _ = io.WriteString(c, "CONNECT good.test:443 HTTP/1.1\r\n\r\n")
		if got, _ := io.ReadAll(c); !strings.HasPrefix(string(got), "HTTP/1.1 403 ") {
			t.Errorf("%q", got)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestSilentClientsAreFew needs clients that ask for nothing to be as many as
// there are places for others, and the next one to wait until they are gone.
func TestSilentClientsAreFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &pipeListener{make(chan net.Conn), make(chan struct{})}
		p := New(Options{MaxTunnels: 2})
		served := make(chan error, 1)
		go func() { served <- p.Serve(l) }()
		for range 4 {
			l.dial()
		}
		begun := time.Now()
		c := l.dial()
		_, _ = io.WriteString(c, "CONNECT good.test:443 HTTP/1.1\r\n\r\n")
		if got, _ := io.ReadAll(c); !strings.HasPrefix(string(got), "HTTP/1.1 403 ") {
			t.Errorf("%q", got)
		}
		if took := time.Since(begun); took != headTimeout {
			t.Errorf("served after %v, want %v", took, headTimeout)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func TestServeReturnsTheListenersError(t *testing.T) {
	t.Parallel()
	l := &starvingListener{&pipeListener{make(chan net.Conn), make(chan struct{})}, []error{os.ErrInvalid}}
	p := New(Options{})
	if err := p.Serve(l); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestQuiet is called once after a request has begun or ended, and not between two
// that follow each other.
func TestQuiet(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	onFakeClock(t, Options{Policy: allow(t, "good.test"), Quiet: func() { calls.Add(1) }}, func(t *testing.T, proxied, _ *pipeListener) {
		tunnel := func() net.Conn {
			c := proxied.dial()
			_, _ = io.WriteString(c, "CONNECT good.test:443 HTTP/1.1\r\n\r\n")
			_, _ = io.ReadFull(c, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n")))
			return c
		}
		var idle net.Conn
		nothing, open := func() {}, func() { _ = tunnel().Close() }
		for _, step := range []struct {
			do    func()
			sleep time.Duration
			want  int32
		}{
			{nothing, time.Hour, 0}, {open, quietAfter - 1, 0}, {open, quietAfter - 1, 0}, {nothing, 1, 1}, {nothing, time.Hour, 1}, {open, quietAfter, 2},
			{func() { idle = tunnel() }, quietAfter - 1, 2}, {nothing, 1, 3}, {nothing, time.Hour, 3}, {func() { _ = idle.Close() }, quietAfter, 4},
		} {
			step.do()
			synctest.Wait()
			time.Sleep(step.sleep)
			synctest.Wait()
			if got := calls.Load(); got != step.want {
				t.Errorf("after %v: called %d times, want %d", step.sleep, got, step.want)
			}
		}
	})
}
