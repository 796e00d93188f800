package proxy

import (
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	for _, domains := range [][]string{{"*.com"}, {"good.test", "127.1"}, {""}} {
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

func TestRejectsNonCONNECT(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, Options{Policy: allow(t, "good.test")}, nil)
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
	p := New(Options{Policy: allow(t, "good.test"), Lookup: f.Lookup, Dial: f.Dial})
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
	_, addr := serve(t, Options{Policy: allow(t, "localhost:"+port), Lookup: f.Lookup}, nil)
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
	_, addr := serve(t, Options{Policy: allow(t, "good.test")}, toOrigin(srv.Listener.Addr().String()))
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
	_, addr := serve(t, Options{Policy: allow(t, "good.test")}, toOrigin(origin(t, echo)))
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

func TestTunnelCap(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, Options{Policy: allow(t, "good.test"), MaxTunnels: 2}, toOrigin(origin(t, echo)))
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

func TestSeveralListeners(t *testing.T) {
	t.Parallel()
	f := toOrigin(origin(t, echo))
	p, addr := serve(t, Options{Policy: allow(t, "good.test")}, f)
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
	_, addr := serve(t, Options{Policy: allow(t, "good.test")}, f)
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
