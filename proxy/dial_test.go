package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"eggrun/internal/need"
	"eggrun/policy"
)

// canary counts the connections to a listener on loopback.
func canary(t *testing.T) (addr string, count *atomic.Int32) {
	t.Helper()
	count = new(atomic.Int32)
	return origin(t, func(conn *net.TCPConn) {
		count.Add(1)
		echo(conn)
	}), count
}

// TestRebinding has a name that is public at one lookup and loopback at the
// next, as in DNS rebinding.
func TestRebinding(t *testing.T) {
	t.Parallel()
	inside, hits := canary(t)
	insideAddr := netip.MustParseAddrPort(inside)
	outside := origin(t, echo)
	for _, tt := range []struct {
		name, list string
		reached    bool
	}{
		{"no address rule", "good.test:*", false},
		{"rule for another port", "good.test:* 127.0.0.1", false},
		{"rule for another address", "good.test:* 127.0.0.2:*", false},
		{"control: a rule names it", "good.test:* 127.0.0.1:*", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := hits.Load()
			f := toOrigin(outside, int(insideAddr.Port()))
			f.routes[inside] = inside
			f.lookup = func(string) ([]netip.Addr, error) {
				if len(f.asked)%2 == 1 {
					return []netip.Addr{public}, nil
				}
				return []netip.Addr{insideAddr.Addr()}, nil
			}
			_, addr := serve(t, Options{Policy: allow(t, strings.Fields(tt.list)...)}, f)
			target := netJoin("good.test", insideAddr.Port())
			connect(t, addr, target).mustEcho(t, "public")
			if asked, _ := f.counts(); asked != 1 {
				t.Fatalf("%d lookups for one request, want 1", asked)
			}
			if tt.reached {
				connect(t, addr, target).mustEcho(t, "inside")
			} else if a := ask(t, addr, "CONNECT "+target+" HTTP/1.1\r\n\r\n"); a.status != 403 || a.header.Get(denyHeader) != "not_public" {
				t.Errorf("%s, code %q, want 403 not_public", a.line, a.header.Get(denyHeader))
			}
			if got := hits.Load() > before; got != tt.reached {
				t.Errorf("inside was reached: %v, want %v", got, tt.reached)
			}
			if asked, _ := f.counts(); asked != 2 {
				t.Errorf("%d lookups for two requests, want 2", asked)
			}
		})
	}
}

func netJoin(host string, port uint16) string {
	return host + ":" + strings.TrimPrefix(netip.AddrPortFrom(public, port).String(), public.String()+":")
}

func TestPrivateAnswers(t *testing.T) {
	t.Parallel()
	to := origin(t, echo)
	private := netip.MustParseAddr("10.1.2.3")
	for _, tt := range []struct {
		name, list  string
		answers     []netip.Addr
		wantDialled []string
	}{
		{"only private", "good.test", []netip.Addr{private}, nil},
		{"mapped", "good.test", []netip.Addr{netip.MustParseAddr("::ffff:10.1.2.3")}, nil},
		{"metadata", "good.test", []netip.Addr{netip.MustParseAddr("169.254.169.254")}, nil},
		{"NAT64", "good.test", []netip.Addr{netip.MustParseAddr("64:ff9b::a01:203")}, nil},
		{"private beside public", "good.test", []netip.Addr{private, public}, []string{"9.9.9.9:443"}},
		{"address rule", "good.test 10.1.2.3", []netip.Addr{private}, []string{"10.1.2.3:443"}},
		{"prefix rule", "good.test 10.0.0.0/8", []netip.Addr{private}, []string{"10.1.2.3:443"}},
		{"mapped with a rule", "good.test 10.1.2.3", []netip.Addr{netip.MustParseAddr("::ffff:10.1.2.3")}, []string{"10.1.2.3:443"}},
		{"address rule of another port", "good.test 10.1.2.3:22", []netip.Addr{private}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			lines := new(sink)
			f := toOrigin(to)
			f.routes["10.1.2.3:443"] = to
			f.lookup = func(string) ([]netip.Addr, error) { return tt.answers, nil }
			_, addr := serve(t, Options{Policy: allow(t, strings.Fields(tt.list)...), Audit: lines}, f)
			a := ask(t, addr, "CONNECT good.test:443 HTTP/1.1\r\n\r\n")
			if !slices.Equal(f.dialled, tt.wantDialled) {
				t.Errorf("dialled %q, want %q", f.dialled, tt.wantDialled)
			}
			if tt.wantDialled != nil {
				if a.status != 200 {
					t.Errorf("%s, want a tunnel", a.line)
				}
				return
			}
			if a.status != 403 || a.header.Get(denyHeader) != "not_public" {
				t.Errorf("%s, code %q, want 403 not_public", a.line, a.header.Get(denyHeader))
			}
			if strings.Contains(a.line+a.body, "10.1.2.3") || strings.Contains(a.line+a.body, "169.254") {
				t.Errorf("the answer tells the address: %s %q", a.line, a.body)
			}
			if refused, _ := lines.wait(t, 1)[0]["refused"].([]any); len(refused) != 1 {
				t.Errorf("audit lists the refused addresses as %v", refused)
			}
		})
	}
}

func TestOwnAddresses(t *testing.T) {
	t.Parallel()
	to := origin(t, echo)
	for _, tt := range []struct {
		name, list string
		own        func() ([]netip.Addr, error)
		want       int
	}{
		{"control: not its own", "good.test", func() ([]netip.Addr, error) { return nil, nil }, 200},
		{"its own", "good.test", func() ([]netip.Addr, error) { return []netip.Addr{public}, nil }, 403},
		{"its own, named", "good.test 9.9.9.9", func() ([]netip.Addr, error) { return []netip.Addr{public}, nil }, 200},
		{"its own, in a prefix", "good.test 9.9.9.0/24", func() ([]netip.Addr, error) { return []netip.Addr{public}, nil }, 403},
		{"unknown", "good.test", func() ([]netip.Addr, error) { return nil, os.ErrInvalid }, 502},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := toOrigin(to)
			_, addr := serve(t, Options{Policy: allow(t, strings.Fields(tt.list)...), OwnAddrs: tt.own}, f)
			a := ask(t, addr, "CONNECT good.test:443 HTTP/1.1\r\n\r\n")
			if _, dialled := f.counts(); a.status != tt.want || (dialled == 1) != (tt.want == 200) {
				t.Errorf("%s and %d dialled, want %d", a.line, dialled, tt.want)
			}
		})
	}
}

func TestInterfaceAddrs(t *testing.T) {
	t.Parallel()
	addrs, err := interfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(addrs, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("own addresses %v lack 127.0.0.1", addrs)
	}
}

// TestDialerVetsAgain goes past everything before it.
func TestDialerVetsAgain(t *testing.T) {
	t.Parallel()
	inside, hits := canary(t)
	to := netip.MustParseAddrPort(inside)
	dial := func(rules ...string) (net.Conn, error) {
		p := New(Options{Policy: allow(t, rules...)})
		defer func() { _ = p.Close() }()
		x := p.newExchange()
		defer x.end()
		x.policy, x.target = p.policy.Load(), policy.Target{Host: "good.test", Port: to.Port()}
		return x.dialer()(context.Background(), "tcp", inside)
	}
	conn, err := dial("good.test:*")
	if err == nil {
		_ = conn.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "127.0.0.0/8 loopback") {
		t.Errorf("dialled loopback: %v", err)
	}
	conn, err = dial("127.0.0.1:*")
	if err != nil {
		t.Fatalf("the control: %v", err)
	}
	_ = conn.Close()
	eventually(t, "the control arrives", func() bool { return hits.Load() == 1 })
}

func TestResolverFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"no such name", &net.DNSError{Err: "no such host", Name: "good.test", Server: "10.9.8.7:53", IsNotFound: true}, "HTTP/1.1 502 eggrun: good.test:443 name has no address"},
		{"no answers", nil, "HTTP/1.1 502 eggrun: good.test:443 name has no address"},
		{"timeout", &net.DNSError{Err: "i/o timeout", Name: "good.test", Server: "10.9.8.7:53", IsTimeout: true}, "HTTP/1.1 504 eggrun: good.test:443 lookup timed out"},
		{"server trouble", &net.DNSError{Err: "server misbehaving", Name: "good.test", Server: "10.9.8.7:53"}, "HTTP/1.1 502 eggrun: good.test:443 lookup got no answer"},
		{"anything else", errors.New("open /etc/resolv.conf: permission denied"), "HTTP/1.1 502 eggrun: good.test:443 lookup got no answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := toOrigin("")
			f.lookup = func(string) ([]netip.Addr, error) { return nil, tt.err }
			_, addr := serve(t, Options{Policy: allow(t, "good.test")}, f)
			a := ask(t, addr, "CONNECT good.test:443 HTTP/1.1\r\n\r\n")
			if a.line != tt.want {
				t.Errorf("%q, want %q", a.line, tt.want)
			}
			for _, leak := range []string{"10.9.8.7", "resolv.conf", "permission denied", "misbehaving"} {
				if strings.Contains(a.body, leak) {
					t.Errorf("body %q tells %q", a.body, leak)
				}
			}
			if asked, dialled := f.counts(); asked != 1 || dialled != 0 {
				t.Errorf("%d lookups and %d dials, want 1 and 0", asked, dialled)
			}
		})
	}
}

func TestBadGateway(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 9, 8, 7), Port: 443}, Err: err}
	}
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"refused", wrap(os.NewSyscallError("connect", syscall.ECONNREFUSED)), "HTTP/1.1 502 eggrun: good.test:443 connection refused"},
		{"unreachable", wrap(os.NewSyscallError("connect", syscall.EHOSTUNREACH)), "HTTP/1.1 502 eggrun: good.test:443 host unreachable"},
		{"no route", wrap(os.NewSyscallError("connect", syscall.ENETUNREACH)), "HTTP/1.1 502 eggrun: good.test:443 host unreachable"},
		{"timeout", wrap(os.ErrDeadlineExceeded), "HTTP/1.1 504 eggrun: good.test:443 connect timed out"},
		{"no descriptors", wrap(os.NewSyscallError("socket", syscall.EMFILE)), "HTTP/1.1 502 eggrun: good.test:443 proxy has no descriptors left"},
		{"a filter", wrap(os.NewSyscallError("connect", syscall.EPERM)), "HTTP/1.1 502 eggrun: good.test:443 could not connect"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := toOrigin("")
			f.dial = func(context.Context, string) (net.Conn, bool, error) { return nil, true, tt.err }
			lines := new(sink)
			_, addr := serve(t, Options{Policy: allow(t, "good.test"), Audit: lines}, f)
			for _, head := range []string{"CONNECT good.test:443 HTTP/1.1\r\n\r\n", "GET http://good.test:443/ HTTP/1.1\r\nHost: good.test:443\r\n\r\n"} {
				a := ask(t, addr, head)
				if a.line != tt.want || a.header.Get(denyHeader) != "connect" {
					t.Errorf("%q, code %q, want %q", a.line, a.header.Get(denyHeader), tt.want)
				}
				if strings.Contains(a.body, "10.9.8.7") || strings.Contains(a.body, "operation not permitted") {
					t.Errorf("body %q tells more than the reason", a.body)
				}
			}
			_, want, _ := strings.Cut(tt.want, "good.test:443 ")
			if got := lines.wait(t, 4)[1]["close_reason"]; got != want {
				t.Errorf("close reason %q, want %q", got, want)
			}
		})
	}
}

// TestRealRefusal uses the real dialer and a port nobody listens on.
func TestRealRefusal(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := l.Addr().String()
	_ = l.Close()
	_, addr := serve(t, Options{Policy: allow(t, "127.0.0.1:*")}, nil)
	if a := ask(t, addr, "CONNECT "+target+" HTTP/1.1\r\n\r\n"); a.line != "HTTP/1.1 502 eggrun: "+target+" connection refused" {
		t.Error(a.line)
	}
}

// TestDeadFirstAddress has an address that never answers before one that does.
func TestDeadFirstAddress(t *testing.T) {
	t.Parallel()
	to := origin(t, echo)
	dead := netip.MustParseAddr("2600::1")
	for _, tt := range []struct {
		name string
		dial func(ctx context.Context) error
	}{
		{"silent", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		{"refused", func(context.Context) error { return syscall.ECONNREFUSED }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := toOrigin(to)
			f.lookup = func(string) ([]netip.Addr, error) { return []netip.Addr{dead, public}, nil }
			left := make(chan struct{})
			f.dial = func(ctx context.Context, address string) (net.Conn, bool, error) {
				if address != netip.AddrPortFrom(dead, 443).String() {
					return nil, false, nil
				}
				defer close(left)
				return nil, true, tt.dial(ctx)
			}
			_, addr := serve(t, Options{Policy: allow(t, "good.test")}, f)
			connect(t, addr, "good.test:443").mustEcho(t, "hello")
			<-left // the dead attempt has been given up
		})
	}
}

// TestLateWinnerIsClosed has both addresses answer.
func TestLateWinnerIsClosed(t *testing.T) {
	t.Parallel()
	to := origin(t, echo)
	f := toOrigin(to)
	slow := netip.MustParseAddr("9.9.9.8")
	f.lookup = func(string) ([]netip.Addr, error) { return []netip.Addr{slow, public}, nil }
	late, other := net.Pipe()
	f.dial = func(ctx context.Context, address string) (net.Conn, bool, error) {
		if !strings.HasPrefix(address, slow.String()) {
			return nil, false, nil
		}
		<-ctx.Done()
		return late, true, nil
	}
	_, addr := serve(t, Options{Policy: allow(t, "good.test")}, f)
	connect(t, addr, "good.test:443").mustEcho(t, "hello")
	if n, err := other.Read(make([]byte, 1)); err == nil {
		t.Errorf("the connection that came too late carries %d bytes", n)
	}
}

func TestInterleave(t *testing.T) {
	t.Parallel()
	parse := func(s string) (addrs []netip.Addr) {
		for field := range strings.FieldsSeq(s) {
			addrs = append(addrs, netip.MustParseAddr(field))
		}
		return addrs
	}
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"1.1.1.1", "1.1.1.1"},
		{"1.1.1.1 1.1.1.2 2600::1 2600::2", "1.1.1.1 2600::1 1.1.1.2 2600::2"},
		{"2600::1 2600::2 2600::3 1.1.1.1", "2600::1 1.1.1.1 2600::2 2600::3"},
		{strings.Repeat("1.1.1.1 ", 40), strings.Repeat("1.1.1.1 ", maxAddrs)},
	} {
		if got := interleave(parse(tt.in)); !slices.Equal(got, parse(tt.want)) {
			t.Errorf("interleave(%s) = %v, want %s", tt.in, got, tt.want)
		}
	}
}

// TestLookup needs no network: hosts files are read first.
func TestLookup(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if addrs, err := lookup(ctx, "good.test"); err == nil {
		t.Errorf("a cancelled lookup answered %v", addrs)
	}
	need.That(t, "localhost in /etc/hosts", func() error {
		hosts, err := os.ReadFile("/etc/hosts")
		if err == nil && !strings.Contains(string(hosts), "localhost") {
			err = os.ErrNotExist
		}
		return err
	})
	if addrs, err := lookup(context.Background(), "localhost"); err != nil || !addrs[0].Unmap().IsLoopback() {
		t.Errorf("localhost = %v, %v", addrs, err)
	}
}
