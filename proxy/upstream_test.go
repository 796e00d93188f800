package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"eggrun/policy"
)

func TestParseUpstream(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"http://proxy.corp:3128":              "proxy.corp:3128",
		"http://user:pass@proxy.corp:3128/":   "proxy.corp:3128",
		"http://10.0.0.1:3128":                "10.0.0.1:3128",
		"http://[fd00::1]:3128":               "[fd00::1]:3128",
		"https://proxy.corp:3128":             "",
		"socks5://proxy.corp:3128":            "",
		"proxy.corp:3128":                     "",
		"http://proxy.corp":                   "",
		"http://proxy.corp:3128/path":         "",
		"http://proxy.corp:3128?q":            "",
		"http://user:secret@proxy.corp:\x003": "",
		"":                                    "",
	} {
		got, err := parseUpstream(in)
		if (err == nil) != (want != "") || err == nil && got.address != want {
			t.Errorf("%q: %v, %v, want %q", in, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: error %q tells the password", in, err)
		}
	}
}

// corporate is an upstream proxy that answers and keeps the heads it has seen.
func corporate(t *testing.T, answer string) (addr string, heads chan string) {
	t.Helper()
	heads = make(chan string, 8)
	return origin(t, func(conn *net.TCPConn) {
		in := bufio.NewReader(conn)
		var head strings.Builder
		for !strings.HasSuffix(head.String(), "\r\n\r\n") {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			head.WriteString(line)
		}
		heads <- head.String()
		_, _ = io.WriteString(conn, answer)
		_, _ = io.Copy(struct{ io.Writer }{conn}, in)
	}), heads
}

// through is a policy whose way out is a proxy.
func through(t *testing.T, url string, domains ...string) *policy.Policy {
	p := allow(t, domains...)
	p.UpstreamProxy = url
	return p
}

// behind is a network in which nothing but proxy.corp can be resolved.
func behind(addr string) *fakeNet {
	return &fakeNet{
		names:  map[string][]netip.Addr{"proxy.corp": {netip.MustParseAddr("10.0.0.1")}},
		routes: map[string]string{"10.0.0.1:3128": addr},
	}
}

func TestUpstreamProxy(t *testing.T) {
	t.Parallel()
	addr, heads := corporate(t, "HTTP/1.1 200 Fine\r\nX: y\r\n\r\nlate ")
	f := behind(addr)
	lines := new(sink)
	_, at := serve(t, Options{Policy: through(t, "http://user:pass@proxy.corp:3128", "good.test", "8.8.8.8", "10.0.0.9"), Audit: lines}, f)
	for i, target := range []string{"good.test:443", "8.8.8.8:443", "10.0.0.9:443"} {
		c := dialProxy(t, at)
		// What comes from the container does not reach that proxy.
		c.send(t, "CONNECT "+target+" HTTP/1.1\r\nProxy-Authorization: Basic eA==\r\nX-Upstream-Https-Proxy: evil.test\r\n\r\nearly")
		if a := c.read(t, "CONNECT"); a.status != http.StatusOK {
			t.Fatalf("%s: %s", target, a.line)
		}
		got := make([]byte, len("late early"))
		if _, err := io.ReadFull(c.in, got); err != nil || string(got) != "late early" {
			t.Errorf("%s: %q, %v", target, got, err)
		}
		_ = c.Close()
		want := fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\nProxy-Authorization: Basic dXNlcjpwYXNz\r\n\r\n", target)
		if head := <-heads; head != want {
			t.Errorf("asked %q, want %q", head, want)
		}
		if l := lines.wait(t, 2*i+2)[2*i+1]; l["via"] != "proxy.corp:3128" || l["dialed"] != "10.0.0.1:3128" || l["bytes_down"] != 10.0 {
			t.Errorf("%v", l)
		}
	}
	if a := ask(t, at, "CONNECT evil.test:443 HTTP/1.1\r\n\r\n"); a.status != http.StatusForbidden || len(heads) > 0 {
		t.Errorf("evil.test: %s", a.line)
	}
	for _, name := range f.asked {
		if name != "proxy.corp" {
			t.Errorf("looked up %q", name)
		}
	}
}

func TestUpstreamProxyAndLoopback(t *testing.T) {
	t.Parallel()
	_, port, _ := net.SplitHostPort(origin(t, echo))
	_, at := serve(t, Options{Policy: through(t, "http://127.0.0.1:1", "localhost:"+port)}, nil)
	connect(t, at, "localhost:"+port).mustEcho(t, "directly")
	connect(t, at, "127.0.0.1:"+port).mustEcho(t, "directly")
}

func TestUpstreamProxyRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ url, answer, want string }{
		{"http://proxy.corp:3128", "HTTP/1.1 403 No\r\n\r\n", "upstream proxy answered 403"},
		{"http://proxy.corp:3128", "HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic\r\n\r\n", "upstream proxy answered 407"},
		{"http://proxy.corp:3128", "SSH-2.0-x\r\n\r\n", "upstream proxy sent no valid response"},
		{"http://proxy.corp:3128", "HTTP/1.1 2x0 \r\n\r\n", "upstream proxy sent no valid response"},
		{"http://proxy.corp:3128", strings.Repeat("a", maxHead), "upstream proxy sent no valid response"},
		{"http://nowhere.corp:3128", "", "upstream proxy has no address"},
		{"https://proxy.corp:3128", "", "upstream proxy is not set up well"},
	} {
		addr, _ := corporate(t, tt.answer)
		_, at := serve(t, Options{Policy: through(t, tt.url, "good.test")}, behind(addr))
		a := ask(t, at, "CONNECT good.test:443 HTTP/1.1\r\n\r\n")
		if want := "HTTP/1.1 502 eggrun: good.test:443 " + tt.want; a.line != want {
			t.Errorf("%.40q: %q, want %q", tt.answer, a.line, want)
		}
	}
}

// TestUpstreamProxyForPlainHTTP: many take CONNECT for port 443 alone.
func TestUpstreamProxyForPlainHTTP(t *testing.T) {
	t.Parallel()
	addr, heads := corporate(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
	_, at := serve(t, Options{Policy: through(t, "http://user:pass@proxy.corp:3128", "good.test")}, behind(addr))
	tunnel := connect(t, at, "good.test:80")
	tunnel.send(t, "GET /x HTTP/1.1\r\nHost: good.test\r\nProxy-Authorization: Basic eA==\r\n\r\n")
	absolute := dialProxy(t, at)
	absolute.send(t, "GET http://good.test/x HTTP/1.1\r\nHost: good.test\r\nProxy-Authorization: Basic eA==\r\n\r\n")
	for _, c := range []*client{tunnel, absolute} {
		if a := c.read(t, "GET"); a.status != http.StatusOK || a.body != "ok" {
			t.Errorf("%s %q", a.line, a.body)
		}
		head := <-heads
		if !strings.HasPrefix(head, "GET http://good.test/x HTTP/1.1\r\nHost: good.test\r\n") ||
			!strings.Contains(head, "Proxy-Authorization: Basic dXNlcjpwYXNz\r\n") || strings.Contains(head, "eA==") {
			t.Errorf("asked %q", head)
		}
	}
	addr, _ = corporate(t, "HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n")
	_, at = serve(t, Options{Policy: through(t, "http://proxy.corp:3128", "good.test")}, behind(addr))
	a := ask(t, at, "GET http://good.test/x HTTP/1.1\r\nHost: good.test\r\n\r\n")
	if a.status != http.StatusBadGateway || !strings.Contains(a.body, "upstream proxy wants a password") {
		t.Errorf("%s %q", a.line, a.body)
	}
}
