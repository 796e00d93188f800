package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// httpOrigin serves handle and returns its address.
func httpOrigin(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(handle)
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

func TestForward(t *testing.T) {
	t.Parallel()
	to := httpOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", fmt.Sprintf("%s %s host=%s body=%s", r.Method, r.RequestURI, r.Host, body))
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "tea")
	})
	for _, tt := range []struct{ name, head, want string }{
		{"plain", "GET http://good.test/a/b?c=d HTTP/1.1\r\nHost: good.test\r\n\r\n", "GET /a/b?c=d host=good.test body="},
		{"no path", "GET http://good.test HTTP/1.1\r\nHost: good.test\r\n\r\n", "GET / host=good.test body="},
		{"only a query", "GET http://good.test?x HTTP/1.1\r\nHost: good.test\r\n\r\n", "GET /?x host=good.test body="},
		{"default port written", "GET http://good.test:80/ HTTP/1.1\r\nHost: good.test\r\n\r\n", "GET / host=good.test body="},
		{"default port in Host", "GET http://good.test/ HTTP/1.1\r\nHost: good.test:80\r\n\r\n", "GET / host=good.test body="},
		{"other port", "GET http://good.test:8080/ HTTP/1.1\r\nHost: good.test:8080\r\n\r\n", "GET / host=good.test:8080 body="},
		{"case and dot", "GET HTTP://GOOD.test./ HTTP/1.1\r\nHost: good.TEST\r\n\r\n", "GET / host=good.test body="},
		{"escaped path", "GET http://good.test/a%2Fb%20c;d?e=%zz;f HTTP/1.1\r\nHost: good.test\r\n\r\n", "GET /a%2Fb%20c;d?e=%zz;f host=good.test body="},
		{"HTTP/1.0 without Host", "GET http://good.test/ HTTP/1.0\r\n\r\n", "GET / host=good.test body="},
		{"post", "POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\nContent-Length: 3\r\n\r\nabc", "POST / host=good.test body=abc"},
		{"chunked post", "POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "POST / host=good.test body=abc"},
		{"IP with a rule", "GET http://9.9.9.9/ HTTP/1.1\r\nHost: 9.9.9.9\r\n\r\n", "GET / host=9.9.9.9 body="},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, addr := serve(t, Options{Policy: allow(t, "good.test", "good.test:8080", "9.9.9.9")}, toOrigin(to, 8080))
			c := dialProxy(t, addr)
			c.send(t, tt.head)
			a := c.read(t, "GET")
			if a.status != http.StatusTeapot || a.body != "tea" || a.header.Get("X-Seen") != tt.want {
				t.Errorf("%s, body %q, origin saw %q, want %q", a.line, a.body, a.header.Get("X-Seen"), tt.want)
			}
			c.mustEnd(t)
		})
	}
}

// TestForwardHostMustAgree would let a client choose one host for the decision
// and another for the server.
func TestForwardHostMustAgree(t *testing.T) {
	t.Parallel()
	to := httpOrigin(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) })
	f := toOrigin(to, 8080)
	_, addr := serve(t, Options{Policy: allow(t, "good.test:*", "evil.test:*")}, f)
	for _, tt := range []struct {
		head   string
		status int
		code   string
	}{
		{"GET http://good.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", 400, "host_differs"},
		{"GET http://good.test/ HTTP/1.1\r\nHost: good.test:8080\r\n\r\n", 400, "host_differs"},
		{"GET http://good.test:8080/ HTTP/1.1\r\nHost: good.test\r\n\r\n", 400, "host_differs"},
		{"GET http://good.test/ HTTP/1.1\r\nHost: \r\n\r\n", 400, "host_differs"},
		{"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n", 400, "bad_head"},
		{"GET http://good.test/ HTTP/1.1\r\n\r\n", 400, "host_differs"},
		{"GET http://good.test/#x HTTP/1.1\r\nHost: good.test\r\n\r\n", 400, "bad_target"},
		{"GET http://u:p@good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", 400, "bad_target"},
		{"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "bad_head"},
		{"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400, "bad_head"},
		{"GET http://good.test/ HTTP/1.1\nHost: good.test\n\n", 400, "bad_head"},
		{"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\nX: a\r\n b\r\n\r\n", 400, "bad_head"},
		// The control, spelt differently but the same.
		{"GET http://GOOD.test:80/ HTTP/1.1\r\nhOST:\tgood.test.  \r\n\r\n", 200, ""},
	} {
		a := ask(t, addr, tt.head)
		if a.status != tt.status || a.header.Get(denyHeader) != tt.code {
			t.Errorf("%q: %s, code %q, want %d %q", tt.head, a.line, a.header.Get(denyHeader), tt.status, tt.code)
		}
	}
	if _, dialled := f.counts(); dialled != 1 {
		t.Errorf("%d dials, want that of the control", dialled)
	}
}

// TestForwardServesOneRequest pipelines a second one to a host that is denied.
func TestForwardServesOneRequest(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 4)
	to := httpOrigin(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Host })
	f := toOrigin(to)
	_, addr := serve(t, Options{Policy: allow(t, "good.test")}, f)
	c := dialProxy(t, addr)
	c.send(t, "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\nGET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	a := c.read(t, "GET")
	if a.status != 200 || a.header.Get("Connection") != "" && a.header.Get("Connection") != "close" {
		t.Errorf("%s %v", a.line, a.header)
	}
	c.mustEnd(t)
	if got := <-seen; got != "good.test" {
		t.Errorf("origin saw %q", got)
	}
	if asked, dialled := f.counts(); asked != 1 || dialled != 1 || len(seen) != 0 {
		t.Errorf("%d lookups, %d dials, %d more requests, want one request alone", asked, dialled, len(seen))
	}
}

// TestForwardDropsHopByHop includes what Connection names.
func TestForwardDropsHopByHop(t *testing.T) {
	t.Parallel()
	to := origin(t, func(conn *net.TCPConn) {
		r, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		body := r.Header.Get("X-Forwarded-For")
		for name := range r.Header {
			body += " " + name
		}
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: secret\r\nProxy-Authenticate: Basic\r\nX-Kept: 1\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	})
	_, addr := serve(t, Options{Policy: allow(t, "good.test")}, toOrigin(to))
	a := ask(t, addr, "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\nConnection: close, X-Secret, Upgrade\r\nX-Secret: 1\r\n"+
		"Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\nProxy-Whatever: 1\r\nKeep-Alive: 1\r\nUpgrade: websocket\r\nTe: gzip\r\n"+
		"X-Kept: 1\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n")
	if a.status != 200 {
		t.Fatal(a.line)
	}
	for _, gone := range []string{"X-Secret", "Proxy-", "Keep-Alive", "Upgrade", "Te", "User-Agent", "Accept-Encoding"} {
		for _, name := range strings.Fields(a.body) {
			if strings.HasPrefix(name, gone) {
				t.Errorf("origin saw %s", name)
			}
		}
	}
	if !strings.HasPrefix(a.body, "192.0.2.1 ") || !strings.Contains(a.body, "X-Kept") {
		t.Errorf("origin saw %q, want X-Kept and the client's own X-Forwarded-For", a.body)
	}
	if a.header.Get("X-Hop") != "" || a.header.Get("Proxy-Authenticate") != "" || a.header.Get("X-Kept") != "1" {
		t.Errorf("client saw %v", a.header)
	}
}

// TestForwardStreams has the origin wait for the client between two pieces.
func TestForwardStreams(t *testing.T) {
	t.Parallel()
	got := make(chan struct{})
	to := httpOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "piece %d\n", i)
			w.(http.Flusher).Flush()
			select {
			case <-got:
			case <-r.Context().Done():
				return
			}
		}
	})
	_, addr := serve(t, Options{Policy: allow(t, "good.test")}, toOrigin(to))
	c := dialProxy(t, addr)
	c.send(t, "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n")
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		line, err := lines.ReadString('\n')
		if err != nil || line != fmt.Sprintf("piece %d\n", i) {
			t.Fatalf("piece %d: %q, %v", i, line, err)
		}
		got <- struct{}{}
	}
}

func TestForwardHead(t *testing.T) {
	t.Parallel()
	to := httpOrigin(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "1000000") })
	_, addr := serve(t, Options{Policy: allow(t, "good.test")}, toOrigin(to))
	for target, want := range map[string]int{"good.test": 200, "evil.test": 403} {
		c := dialProxy(t, addr)
		c.send(t, "HEAD http://"+target+"/ HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
		if a := c.read(t, "HEAD"); a.status != want || a.header.Get("Content-Length") == "" {
			t.Errorf("%s: %s %v", target, a.line, a.header)
		}
		c.mustEnd(t)
	}
}

func TestForwardBrokenUpstream(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, sends, want string }{
		{"nothing", "", "sent no valid response"},
		{"not HTTP", "SSH-2.0-x\r\n\r\n", "sent no valid response"},
		{"another protocol", "HTTP/1.1 101 Switching Protocols\r\n\r\nraw", "sent no valid response"},
		{"head too big", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 300<<10) + "\r\n\r\n", "sent no valid response"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			to := origin(t, func(conn *net.TCPConn) {
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = io.WriteString(conn, tt.sends)
				}
			})
			lines := new(sink)
			_, addr := serve(t, Options{Policy: allow(t, "good.test"), Audit: lines}, toOrigin(to))
			a := ask(t, addr, "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n")
			if a.status != 502 || !strings.Contains(a.body, tt.want) || a.header.Get(denyHeader) != "response" {
				t.Errorf("%s %q", a.line, a.body)
			}
			if got := lines.wait(t, 2)[1]["close_reason"]; got != "broken" {
				t.Errorf("close reason %q, want broken", got)
			}
		})
	}
}

// TestForwardCutShort must not look like a complete answer.
func TestForwardCutShort(t *testing.T) {
	t.Parallel()
	to := origin(t, func(conn *net.TCPConn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
		}
	})
	lines := new(sink)
	_, addr := serve(t, Options{Policy: allow(t, "good.test"), Audit: lines}, toOrigin(to))
	c := dialProxy(t, addr)
	c.send(t, "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n")
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("body %q, %v, want it to be cut short", body, err)
	}
	if got := lines.wait(t, 2)[1]["close_reason"]; got != "broken" {
		t.Errorf("close reason %q, want broken", got)
	}
}

func TestCloseEndsLiveForward(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	to := httpOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		close(begun)
		<-r.Context().Done() // the proxy has closed its side
	})
	p, addr := serve(t, Options{Policy: allow(t, "good.test")}, toOrigin(to))
	c := dialProxy(t, addr)
	c.send(t, "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n")
	<-begun
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c.in); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
}

// TestForwardUnderAnotherServer has no raw head to check; the Host header is
// replaced by that of the URL.
func TestForwardUnderAnotherServer(t *testing.T) {
	t.Parallel()
	to := httpOrigin(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) })
	f := toOrigin(to)
	p := New(Options{Policy: allow(t, "good.test"), Lookup: f.Lookup, Dial: f.Dial, OwnAddrs: func() ([]netip.Addr, error) { return nil, nil }})
	defer func() { _ = p.Close() }()
	srv := httptest.NewServer(p)
	defer srv.Close()
	addr := srv.Listener.Addr().String()
	if a := ask(t, addr, "GET http://good.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"); a.status != 200 || a.body != "good.test" {
		t.Errorf("%s %q, want the host of the URL", a.line, a.body)
	}
	if a := ask(t, addr, "GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n"); a.status != 403 {
		t.Errorf("%s, want 403", a.line)
	}
}
