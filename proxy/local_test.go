package proxy

import (
	"io"
	"net"
	"net/netip"
	"testing"
)

func TestServeLocal(t *testing.T) {
	t.Parallel()
	port := netip.MustParseAddrPort(origin(t, echo)).Port()
	listed := allow(t, "good.test")
	listed.LocalPorts = []uint16{port}
	lines := new(sink)
	p := New(Options{Policy: listed, Audit: lines})
	defer func() { _ = p.Close() }()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.ServeLocal(l, port) }()
	c := dialProxy(t, l.Addr().String())
	c.mustEcho(t, "hello")
	p.SetPolicy(listed)
	c.mustEcho(t, "still allowed")
	p.SetPolicy(allow(t, "127.0.0.1:*")) // a rule for the address is another thing
	c.mustEnd(t)
	lines.wait(t, 2)
	// The reset may come before it is said to be connected.
	denied, err := net.Dial("tcp4", l.Addr().String())
	if err == nil {
		defer denied.Close()
		var got []byte
		if got, err = io.ReadAll(denied); len(got) > 0 {
			t.Errorf("%q, want a reset", got)
		}
	}
	if !isReset(err) {
		t.Errorf("%v, want a reset", err)
	}
	got := lines.wait(t, 3)
	if got[0]["proto"] != "local" || got[0]["rule"] != "local-ports" || got[0]["host"] != "127.0.0.1" ||
		got[1]["close_reason"] != "revoked" || got[2]["reason"] != "port_not_listed" || got[2]["decision"] != "deny" {
		t.Errorf("%v", got)
	}
	// The port stays out of reach of every other way in.
	p.SetPolicy(listed)
	_, addr := serve(t, Options{Policy: listed}, nil)
	if a := ask(t, addr, "CONNECT "+netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port).String()+" HTTP/1.1\r\n\r\n"); a.status != 403 {
		t.Error(a.line)
	}
}

// arrivedConn is a connection to an address that a listener on all of them got.
type arrivedConn struct {
	*net.TCPConn
	at net.Addr
}

func (c arrivedConn) LocalAddr() net.Addr { return c.at }

type arrivals struct {
	net.Listener
	at net.Addr
}

func (l arrivals) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return arrivedConn{conn.(*net.TCPConn), l.at}, nil
}

// TestWithoutTables has clients arrive at fake addresses, which nothing has
// redirected, and at others.
func TestWithoutTables(t *testing.T) {
	t.Parallel()
	for at, reached := range map[string]bool{"198.18.0.7:8443": true, "127.0.0.1:8443": false, "192.0.2.1:8443": false, "198.18.0.8:8443": false} {
		f := toOrigin(origin(t, echo), 8443)
		p := New(Options{
			Policy: allow(t, "good.test:8443", "192.0.2.1:*", "127.0.0.1:*"), Lookup: f.Lookup, Dial: f.Dial,
			NameOf: func(addr netip.Addr) (string, bool) { return "good.test", addr == fake },
		})
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = p.ServeTransparent(arrivals{l, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(at))}) }()
		c := dialProxy(t, l.Addr().String())
		if reached {
			c.mustEcho(t, "hello")
		} else {
			c.send(t, "hello")
			if got, _ := io.ReadAll(c.in); len(got) > 0 {
				t.Errorf("%s: %q", at, got)
			}
		}
		_ = p.Close()
		if _, dialled := f.counts(); (dialled == 1) != reached {
			t.Errorf("%s: %d dialled", at, dialled)
		}
	}
}
