package proxy

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestHostAddresses stand for the host, in every form.
func TestHostAddresses(t *testing.T) {
	t.Parallel()
	to := origin(t, echo)
	for _, tt := range []struct {
		name, rules, answer, host string
		want                      int
	}{
		{"control", "good.test", "9.9.9.9", "", 200},
		{"named", "good.test", "9.9.9.9", "9.9.9.9/32", 403},
		{"in a prefix", "good.test", "9.9.9.9", "9.9.0.0/16", 403},
		{"NAT64", "good.test", "64:ff9b::909:909", "9.9.9.9/32", 403},
		{"control: NAT64", "good.test", "64:ff9b::909:909", "8.8.8.8/32", 200},
		{"a rule names it", "good.test 9.9.9.9", "9.9.9.9", "9.9.9.9/32", 200},
		{"a rule names more", "good.test 9.9.9.0/24", "9.9.9.9", "9.9.9.9/32", 403},
	} {
		f := toOrigin(to)
		f.routes["[64:ff9b::909:909]:443"] = to
		f.lookup = func(string) ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr(tt.answer)}, nil }
		p := allow(t, strings.Fields(tt.rules)...)
		if tt.host != "" {
			p.HostAddresses = []netip.Prefix{netip.MustParsePrefix(tt.host)}
		}
		_, addr := serve(t, Options{Policy: p}, f)
		a := ask(t, addr, "CONNECT good.test:443 HTTP/1.1\r\n\r\n")
		if a.status != tt.want || tt.want == 403 && a.header.Get(denyHeader) != "not_public" {
			t.Errorf("%s: %s, want %d", tt.name, a.line, tt.want)
		}
	}
}

// TestUnnamedAddrs are addresses that the container may ask for because they lie
// in a prefix of its limit. That opens none of the machine's own.
func TestUnnamedAddrs(t *testing.T) {
	t.Parallel()
	own := netip.MustParseAddr("10.0.0.5")
	f := toOrigin("")
	f.routes["10.0.0.5:443"] = origin(t, echo)
	for _, tt := range []struct {
		name string
		own  netip.Addr
		want int
	}{
		{"control: somebody else's", public, 200},
		{"the machine's own", own, 403},
	} {
		p := allow(t, "10.0.0.5")
		p.UnnamedAddrs = []netip.Addr{own}
		_, addr := serve(t, Options{Policy: p, OwnAddrs: func() ([]netip.Addr, error) { return []netip.Addr{tt.own}, nil }}, f)
		if a := ask(t, addr, "CONNECT 10.0.0.5:443 HTTP/1.1\r\n\r\n"); a.status != tt.want {
			t.Errorf("%s: %s, want %d", tt.name, a.line, tt.want)
		}
	}
}

// TestManyAddresses are an answer that would fill the audit.
func TestManyAddresses(t *testing.T) {
	t.Parallel()
	f := toOrigin(origin(t, echo))
	f.lookup = func(string) ([]netip.Addr, error) { return slices.Repeat([]netip.Addr{public}, 4000), nil }
	lines := new(sink)
	_, addr := serve(t, Options{Policy: allow(t, "good.test"), Audit: lines}, f)
	connect(t, addr, "good.test:443").mustEcho(t, "hello")
	if got, _ := lines.first(t)["addresses"].([]any); len(got) != maxAnswers {
		t.Errorf("the audit has %d addresses, want %d", len(got), maxAnswers)
	}
}

// TestUpstreamFake is a machine whose own resolver gives out fake addresses, as
// inside of another eggrun.
func TestUpstreamFake(t *testing.T) {
	t.Parallel()
	to := origin(t, echo)
	theirs := netip.MustParseAddr("198.18.3.4")
	for _, tt := range []struct {
		name   string
		taken  bool
		own    netip.Addr
		target string
		want   int
	}{
		{"taken", true, public, "good.test:443", 200},
		{"not taken", false, public, "good.test:443", 403},
		{"taken, but its own", true, theirs, "good.test:443", 403},
		{"chosen by the client", true, public, "198.18.3.4:443", 403},
	} {
		f := toOrigin(to)
		f.routes["198.18.3.4:443"] = to
		f.lookup = func(string) ([]netip.Addr, error) { return []netip.Addr{theirs}, nil }
		p := allow(t, "good.test")
		p.UpstreamFake = tt.taken
		_, addr := serve(t, Options{Policy: p, OwnAddrs: func() ([]netip.Addr, error) { return []netip.Addr{tt.own}, nil }}, f)
		if a := ask(t, addr, "CONNECT "+tt.target+" HTTP/1.1\r\n\r\n"); a.status != tt.want {
			t.Errorf("%s: %s, want %d", tt.name, a.line, tt.want)
		}
	}
}

// TestUserOfTheClient has each front end ask about the socket as the client's
// namespace knows it.
func TestUserOfTheClient(t *testing.T) {
	t.Parallel()
	type pair struct{ local, remote netip.AddrPort }
	asked := make(chan pair, 3)
	lines := new(sink)
	_, at := enter(t, Options{Policy: allow(t, "good.test"), Audit: lines, UIDOf: func(local, remote netip.AddrPort) (int, bool) {
		asked <- pair{local, remote}
		return 1000, remote.Port() != 4444
	}}, toOrigin(origin(t, echo), 4444))
	at.lead("good.test", netip.AddrPortFrom(fake, tlsPort))
	proxied := netip.MustParseAddrPort(at.proxied)
	expect := func(c *client, remote netip.AddrPort) {
		t.Helper()
		if got, want := <-asked, (pair{addrPort(c.LocalAddr()), remote}); got != want {
			t.Errorf("asked about %v, want %v", got, want)
		}
	}
	tunnel := dialProxy(t, at.proxied)
	tunnel.send(t, "CONNECT evil.test:443 HTTP/1.1\r\n\r\n")
	tunnel.read(t, "CONNECT")
	expect(tunnel, proxied)
	redirected := dialProxy(t, at.redirected)
	redirected.mustEcho(t, "hello")
	expect(redirected, netip.AddrPortFrom(fake, tlsPort))
	at.lead("good.test", netip.AddrPortFrom(fake, 4444))
	unknown := dialProxy(t, at.redirected)
	unknown.send(t, "x")
	_, _ = io.ReadAll(unknown.in)
	uids := []any{}
	for _, l := range lines.wait(t, 3) {
		uids = append(uids, l["uid"])
	}
	if !slices.Equal(uids, []any{1000.0, 1000.0, nil}) {
		t.Errorf("uids %v", uids)
	}
}

// TestCapInEveryFrontEnd is TestTunnelCap for the other ways in.
func TestCapInEveryFrontEnd(t *testing.T) {
	t.Parallel()
	lines := new(sink)
	_, at := enter(t, Options{Policy: allow(t, "good.test"), MaxTunnels: 1, Audit: lines}, toOrigin(origin(t, echo)))
	at.lead("good.test", netip.AddrPortFrom(fake, httpPort))
	connect(t, at.proxied, "good.test:443").mustEcho(t, "the only one")
	c := dialProxy(t, at.redirected)
	c.send(t, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
	if a := c.read(t, "GET"); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" {
		t.Errorf("redirected: %s", a.line)
	}
	if got := socksConnectTo(t, dialProxy(t, at.proxied), "good.test", tlsPort); got != socksFailed {
		t.Errorf("SOCKS5 reply %d", got)
	}
	at.lead("good.test", netip.AddrPortFrom(fake, tlsPort))
	c = dialProxy(t, at.redirected)
	_, _ = c.Write(clientHello(t, "good.test"))
	if got, err := io.ReadAll(c.in); len(got) > 0 || !isReset(err) {
		t.Errorf("redirected TLS: %q, %v, want a reset", got, err)
	}
	// A real address is not allowed yet, and its greeting is not waited for.
	at.lead("good.test", netip.MustParseAddrPort("203.0.113.9:443"))
	c = dialProxy(t, at.redirected)
	_, _ = c.Write(clientHello(t, "good.test")[:100])
	if got, err := io.ReadAll(c.in); len(got) > 0 || !isReset(err) {
		t.Errorf("half a greeting: %q, %v, want a reset", got, err)
	}
	for _, l := range lines.wait(t, 5)[1:] {
		if l["reason"] != "too_many_tunnels" || l["decision"] != "deny" {
			t.Errorf("%v", l)
		}
	}
}

// TestClosedTunnelsLeaveNothing closes one side of many tunnels, and nothing stays.
func TestClosedTunnelsLeaveNothing(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{}, 200)
	p, addr := serve(t, Options{Policy: allow(t, "good.test")}, toOrigin(origin(t, func(conn *net.TCPConn) {
		echo(conn)
		ended <- struct{}{}
	})))
	for range cap(ended) {
		_ = connect(t, addr, "good.test:443").Close()
	}
	for range cap(ended) {
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatal("a tunnel to the origin is still open")
		}
	}
	eventually(t, "places are given back", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.live) == 0
	})
}
