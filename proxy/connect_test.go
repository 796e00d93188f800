package proxy

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestStartAndClose(t *testing.T) {
	t.Parallel()
	p, err := StartProxy([]string{"good.test"})
	if err != nil {
		t.Fatal(err)
	}
	if p.Port() == 0 {
		t.Error("no port")
	}
	c := dialProxy(t, fmt.Sprintf("127.0.0.1:%d", p.Port()))
	c.send(t, "CONNECT evil.test:443 HTTP/1.1\r\n\r\n")
	if a := c.read(t, "CONNECT"); a.status != 403 {
		t.Errorf("evil.test: %s", a.line)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if conn, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", p.Port())); err == nil {
		_ = conn.Close()
		t.Error("the port still accepts connections")
	}
}

func TestStartProxyRefusesBadList(t *testing.T) {
	t.Parallel()
	for _, domains := range [][]string{{"*"}, {"good.test", "127.1"}, {""}} {
		p, err := StartProxy(domains)
		if err == nil {
			_ = p.Close()
			t.Errorf("StartProxy(%q) started", domains)
		}
	}
	p, err := StartProxy(nil)
	if err != nil {
		t.Fatalf("an empty list: %v", err)
	}
	defer func() { _ = p.Close() }()
	if a := ask(t, fmt.Sprintf("127.0.0.1:%d", p.Port()), "CONNECT good.test:443 HTTP/1.1\r\n\r\n"); a.status != 403 {
		t.Errorf("an empty list allows: %s", a.line)
	}
}

func TestCloseBeforeServe(t *testing.T) {
	t.Parallel()
	p := New(Options{})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Serve(l); err != nil {
		t.Errorf("Serve after Close: %v", err)
	}
	if _, err := l.Accept(); err == nil {
		t.Error("the listener is still open")
	}
}

// verdicts is asked through every front end: the answers must be the same.
var verdicts = []struct {
	name, list, host string
	port             int
	want             string // reason
}{
	{"exact", "good.test:*", "good.test", 443, "allowed"},
	{"other", "good.test:*", "evil.test", 443, "not_listed"},
	{"wildcard", "*.good.test", "x.good.test", 80, "allowed"},
	{"wildcard deep", "*.good.test", "a.b.good.test", 443, "allowed"},
	{"wildcard not apex", "*.good.test", "good.test", 443, "not_listed"},
	{"suffix", "*.good.test", "evilgood.test", 443, "not_listed"},
	{"suffix trick", "*.good.test good.test", "good.test.evil.test", 443, "not_listed"},
	{"client's case", "good.test", "GOOD.Test", 443, "allowed"},
	{"rule's case", "GOOD.Test", "good.test", 443, "allowed"},
	{"client's dot", "good.test", "good.test.", 443, "allowed"},
	{"rule's dot", "good.test.", "good.test", 443, "allowed"},
	{"denied in another case", "good.test", "EVIL.test", 443, "not_listed"},
	{"denied with a dot", "good.test", "evil.test.", 443, "not_listed"},
	{"two dots", "good.test", "good.test..", 443, "bad_target"},
	{"leading dot", "*.good.test", ".good.test", 443, "bad_target"},
	{"default port 80", "good.test", "good.test", 80, "allowed"},
	{"other port", "good.test", "good.test", 22, "port_not_listed"},
	{"listed port", "good.test:8443", "good.test", 8443, "allowed"},
	{"default port not listed", "good.test:8443", "good.test", 443, "port_not_listed"},
	{"port beyond 16 bits", "good.test", "good.test", 65979, "bad_target"},
	{"short IPv4", "127.0.0.1 good.test", "127.1", 80, "bad_target"},
	{"hex IPv4", "127.0.0.1 good.test", "0x7f.1", 80, "bad_target"},
	{"hex number", "127.0.0.1 good.test", "0x7f000001", 80, "bad_target"},
	{"decimal number", "127.0.0.1 good.test", "2130706433", 80, "bad_target"},
	{"octal", "127.0.0.1 good.test", "0177.0.0.1", 80, "bad_target"},
	{"zero", "127.0.0.1 good.test", "0", 80, "bad_target"},
	{"address without a rule", "good.test", "9.9.9.9", 443, "not_listed"},
	{"address with a rule", "9.9.9.9", "9.9.9.9", 443, "allowed"},
	{"metadata", "good.test", "169.254.169.254", 80, "not_listed"},
	{"metadata with a dot", "good.test", "169.254.169.254.", 80, "not_listed"},
	{"mapped metadata", "good.test", "[::ffff:169.254.169.254]", 80, "not_listed"},
	{"mapped", "9.9.9.9", "[::ffff:9.9.9.9]", 443, "allowed"},
	{"bracketed name", "good.test", "[good.test]", 443, "bad_target"},
	{"zone", "good.test ::1", "[::1%25lo]", 443, "bad_target"},
	{"loopback address through a wide prefix", "64.0.0.0/2", "127.0.0.1", 80, "not_public"},
}

func TestVerdictIsTheSameInEveryFrontEnd(t *testing.T) {
	t.Parallel()
	to := origin(t, func(conn *net.TCPConn) {
		if _, err := http.ReadRequest(bufioReader(conn)); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	for _, tt := range verdicts {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, front := range []string{
				"CONNECT %[1]s:%[2]d HTTP/1.1\r\n\r\n",
				"CONNECT %[1]s:%[2]d HTTP/1.0\r\nHost: good.test\r\n\r\n",
				"GET http://%[1]s:%[2]d/ HTTP/1.1\r\nHost: %[1]s:%[2]d\r\n\r\n",
			} {
				f := toOrigin(to, 8443)
				lines := new(sink)
				_, addr := serve(t, Options{Allowlist: list(t, strings.Fields(tt.list)...), Audit: lines}, f)
				head := fmt.Sprintf(front, tt.host, tt.port)
				c := dialProxy(t, addr)
				c.send(t, head)
				a := c.read(t, head[:strings.IndexByte(head, ' ')])
				asked, dialled := f.counts()
				if tt.want == "allowed" {
					if a.status != 200 && a.status != 204 || dialled != 1 {
						t.Errorf("%q: %s, %d dialled, want it allowed", head, a.line, dialled)
					}
					continue
				}
				if a.status/100 != 4 || dialled != 0 || asked != 0 && tt.want != "not_public" {
					t.Errorf("%q: %s, %d asked, %d dialled, want a refusal", head, a.line, asked, dialled)
				}
				// Go's server refuses a few malformed targets before our handler.
				if got := a.header.Get(denyHeader); got != tt.want && (got != "" || tt.want != "bad_target" || a.status != 400) {
					t.Errorf("%q: code %q, want %q", head, got, tt.want)
				} else if got != "" {
					if reason := lines.wait(t, 1)[0]["reason"]; reason != tt.want {
						t.Errorf("%q: audit says %q, want %q", head, reason, tt.want)
					}
				}
			}
		})
	}
}

func TestRequestTargetIsTakenLiterally(t *testing.T) {
	t.Parallel()
	to := origin(t, echo)
	f := toOrigin(to)
	_, addr := serve(t, Options{Allowlist: list(t, "good.test")}, f)
	for _, head := range []string{
		"CONNECT good.test:443@evil.test:443 HTTP/1.1\r\n\r\n",
		"CONNECT evil.test:443@good.test:443 HTTP/1.1\r\n\r\n",
		"CONNECT user:pw@good.test:443 HTTP/1.1\r\n\r\n",
		"CONNECT https://good.test:443 HTTP/1.1\r\n\r\n",
		"CONNECT good.test HTTP/1.1\r\n\r\n",
		"CONNECT good.test: HTTP/1.1\r\n\r\n",
		"CONNECT good.test:0443 HTTP/1.1\r\n\r\n",
		"CONNECT good.test:+443 HTTP/1.1\r\n\r\n",
		"CONNECT good.test:443/x HTTP/1.1\r\n\r\n",
		"CONNECT good.test:443?x HTTP/1.1\r\n\r\n",
		"CONNECT good.test:443#x HTTP/1.1\r\n\r\n",
		"CONNECT good%2etest:443 HTTP/1.1\r\n\r\n",
		"CONNECT good.test\x00.evil.test:443 HTTP/1.1\r\n\r\n",
		"CONNECT b\xc3\xbccher.test:443 HTTP/1.1\r\n\r\n",
		"CONNECT /path HTTP/1.1\r\nHost: good.test:443\r\n\r\n",
		"CONNECT / HTTP/1.1\r\nHost: good.test:443\r\n\r\n",
		"CONNECT * HTTP/1.1\r\nHost: good.test:443\r\n\r\n",
		"CONNECT good.test:443\r\n\r\n",
		"CONNECT good.test:443 HTTP/2.0\r\n\r\n",
		"CONNECT good.test:443 HTTP/1.1\n\n",
		"CONNECT good.test:443 HTTP/1.1\nHost: good.test:443\r\n\r\n",
		"CONNECT good.test:443 HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
		"CONNECT good.test:443 HTTP/1.1\r\nX : a\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"connect good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n\r\n",
		"CONNECT good.test:443 HTTP/1.1\r\nX: " + strings.Repeat("a", maxHead) + "\r\n\r\n",
	} {
		a := ask(t, addr, head)
		if a.status < 400 {
			t.Errorf("%.80q: %s, want a refusal", head, a.line)
		}
	}
	if asked, dialled := f.counts(); asked != 0 || dialled != 0 {
		t.Errorf("%d lookups and %d dials, want none: %q", asked, dialled, f.asked)
	}
	connect(t, addr, "good.test:443").mustEcho(t, "control")
}

func TestRejectsNonCONNECT(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, Options{Allowlist: list(t, "good.test")}, nil)
	for _, head := range []string{
		"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"POST /x HTTP/1.1\r\nHost: good.test\r\nContent-Length: 3\r\n\r\nabc",
		"OPTIONS * HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"GET https://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"GET ftp://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
	} {
		a := ask(t, addr, head)
		if a.status != 405 || a.header.Get("Allow") != "CONNECT" || !strings.Contains(a.body, "HTTPS_PROXY") {
			t.Errorf("%q: %s, Allow %q, body %q", head, a.line, a.header.Get("Allow"), a.body)
		}
	}
}

// TestServeHTTPWithoutHijack uses a writer as tests of handlers have.
func TestServeHTTPWithoutHijack(t *testing.T) {
	t.Parallel()
	f := toOrigin(origin(t, echo))
	p := New(Options{Allowlist: list(t, "good.test"), Lookup: f.Lookup, Dial: f.Dial})
	defer func() { _ = p.Close() }()
	for _, tt := range []struct {
		method, target string
		status         int
		code           string
	}{
		{"CONNECT", "evil.test:443", 403, "not_listed"},
		{"CONNECT", "good.test:443", 500, "no_hijack"},
		{"GET", "/", 405, "not_proxied"},
		{"GET", "http://evil.test/", 403, "not_listed"},
	} {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(tt.method, tt.target, nil))
		if w.Code != tt.status || w.Header().Get(denyHeader) != tt.code {
			t.Errorf("%s %s: %d %q, want %d %q", tt.method, tt.target, w.Code, w.Header().Get(denyHeader), tt.status, tt.code)
		}
	}
	if asked, dialled := f.counts(); asked != 0 || dialled != 0 {
		t.Errorf("%d lookups and %d dials, want none", asked, dialled)
	}
}

// proxied returns a client that uses the proxy at addr and trusts srv.
func proxied(addr string, srv *httptest.Server) *http.Client {
	transport := srv.Client().Transport.(*http.Transport).Clone()
	transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: addr})
	transport.TLSClientConfig.ServerName = "example.com" // of httptest's certificate
	transport.DisableKeepAlives = true
	return &http.Client{Transport: transport, Timeout: patience}
}

// TestTLSThroughStartProxy uses the real resolver-less path and dialer: the seed
// once never flushed its 200, and Go's client hung.
func TestTLSThroughStartProxy(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello "+r.URL.Path)
	}))
	defer srv.Close()
	host := srv.Listener.Addr().String()
	for _, entry := range []string{host, strings.Replace(host, "127.0.0.1", "localhost", 1), "127.0.0.0/8:*"} {
		p, err := StartProxy([]string{entry})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := proxied(fmt.Sprintf("127.0.0.1:%d", p.Port()), srv).Get("https://" + host + "/x")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(body) != "hello /x" {
			t.Errorf("%s: body %q", entry, body)
		}
		_ = p.Close()
	}
	// The control: the same origin where no rule names it.
	p, err := StartProxy([]string{"good.test", "127.0.0.1", "127.0.0.2:*"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	if resp, err := proxied(fmt.Sprintf("127.0.0.1:%d", p.Port()), srv).Get("https://" + host + "/x"); err == nil {
		_ = resp.Body.Close()
		t.Error("reached without a rule")
	}
}

func TestLocalhostByName(t *testing.T) {
	t.Parallel()
	_, port, _ := net.SplitHostPort(origin(t, echo))
	f := new(fakeNet)
	// The real dialer: only the resolver is fake, and must not be asked.
	_, addr := serve(t, Options{Allowlist: list(t, "localhost:"+port), Lookup: f.Lookup}, nil)
	connect(t, addr, "localhost:"+port).mustEcho(t, "hello")
	if asked, _ := f.counts(); asked != 0 {
		t.Errorf("localhost was looked up %d times", asked)
	}
}

// TestSNIIsNotTouched shows that a tunnel carries TLS as it is.
func TestSNIIsNotTouched(t *testing.T) {
	t.Parallel()
	names := make(chan string, 1)
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.TLS = &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		names <- h.ServerName
		return nil, nil
	}}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	_, addr := serve(t, Options{Allowlist: list(t, "good.test")}, toOrigin(srv.Listener.Addr().String()))
	c := connect(t, addr, "good.test:443")
	conn := tls.Client(c.TCPConn, &tls.Config{ServerName: "other.test", InsecureSkipVerify: true})
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	if got := <-names; got != "other.test" {
		t.Errorf("server saw %q", got)
	}
}

func TestConcurrentTunnels(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, Options{Allowlist: list(t, "good.test")}, toOrigin(origin(t, echo)))
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			c := connect(t, addr, "good.test:443")
			for range 20 {
				c.mustEcho(t, fmt.Sprintf("tunnel %d", i))
			}
		})
	}
	all.Wait()
}

// TestPipelinedBytes sends a request and the first bytes of the tunnel at once.
func TestPipelinedBytes(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, Options{Allowlist: list(t, "good.test")}, toOrigin(origin(t, echo)))
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
		_, addr := serve(t, Options{Allowlist: list(t, "good.test")}, toOrigin(to))
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
		_, addr := serve(t, Options{Allowlist: list(t, "good.test")}, toOrigin(to))
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
	_, addr := serve(t, Options{Allowlist: list(t, "good.test"), Audit: lines}, toOrigin(to))
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
	_, addr := serve(t, Options{Allowlist: list(t, "good.test"), Audit: lines}, toOrigin(to))
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
	p, addr := serve(t, Options{Allowlist: list(t, "good.test"), Audit: lines}, toOrigin(to))
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

func TestTunnelCap(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, Options{Allowlist: list(t, "good.test"), MaxTunnels: 2}, toOrigin(origin(t, echo)))
	first, second := connect(t, addr, "good.test:443"), connect(t, addr, "good.test:443")
	for _, head := range []string{"CONNECT good.test:443 HTTP/1.1\r\n\r\n", "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n"} {
		a := ask(t, addr, head)
		if a.status != 503 || a.header.Get("Retry-After") != "1" || a.header.Get(denyHeader) != "too_many_tunnels" {
			t.Errorf("at the cap: %s %v", a.line, a.header)
		}
	}
	// A refusal needs no place.
	if a := ask(t, addr, "CONNECT evil.test:443 HTTP/1.1\r\n\r\n"); a.status != 403 {
		t.Errorf("evil.test at the cap: %s", a.line)
	}
	_ = first.Close()
	eventually(t, "a place becomes free", func() bool {
		c := dialProxy(t, addr)
		defer func() { _ = c.Close() }()
		c.send(t, "CONNECT good.test:443 HTTP/1.1\r\n\r\n")
		return c.read(t, "CONNECT").status == 200
	})
	second.mustEcho(t, "untouched")
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
	need(t, "/proc/self/fd", func() error { _, err := os.Stat("/proc/self/fd"); return err })
	const n = 64
	p, addr := serve(t, Options{Allowlist: list(t, "good.test")}, toOrigin(origin(t, echo)))
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
	eventually(t, "connections and places are given back", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.conns) == 0 && p.open == 0
	})
}

func TestSeveralListeners(t *testing.T) {
	t.Parallel()
	f := toOrigin(origin(t, echo))
	p, addr := serve(t, Options{Allowlist: list(t, "good.test")}, f)
	connect(t, addr, "good.test:443") // it is being served
	second, err := net.Listen("tcp4", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Serve(second) }()
	for _, a := range []string{addr, second.Addr().String()} {
		connect(t, a, "good.test:443").mustEcho(t, "hello")
	}
	_, port, _ := net.SplitHostPort(addr)
	if got := fmt.Sprint(p.Port()); got != port {
		t.Errorf("Port() = %s, want that of the first listener, %s", got, port)
	}
	_ = p.Close()
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestDeniedNamesAreAskedOfNobody(t *testing.T) {
	t.Parallel()
	f := toOrigin(origin(t, echo))
	_, addr := serve(t, Options{Allowlist: list(t, "good.test")}, f)
	for range 1000 {
		host := strings.ToLower(rand.Text()) + ".evil.test"
		if a := ask(t, addr, "CONNECT "+host+":443 HTTP/1.1\r\n\r\n"); a.status != 403 {
			t.Fatalf("%s: %s", host, a.line)
		}
	}
	if asked, _ := f.counts(); asked != 0 {
		t.Errorf("%d lookups, the first of %q", asked, f.asked[0])
	}
	connect(t, addr, "good.test:443")
	if asked, _ := f.counts(); asked != 1 || !slices.Equal(f.asked, []string{"good.test"}) {
		t.Errorf("the control was looked up %d times: %q", asked, f.asked)
	}
}
