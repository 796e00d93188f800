package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"eggrun/policy"
)

// isReset reports whether a read ended because the other side has reset.
func isReset(err error) bool { return errors.Is(err, syscall.ECONNRESET) }

func TestNoDestination(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		to   func(net.Conn) (netip.AddrPort, error)
	}{
		{"error", func(net.Conn) (netip.AddrPort, error) {
			return netip.MustParseAddrPort("9.9.9.9:443"), syscall.EOPNOTSUPP
		}},
		{"loopback", func(net.Conn) (netip.AddrPort, error) { return netip.MustParseAddrPort("127.0.0.1:443"), nil }},
		{"mapped loopback", func(net.Conn) (netip.AddrPort, error) { return netip.MustParseAddrPort("[::ffff:127.0.0.1]:443"), nil }},
		{"IPv6 loopback", func(net.Conn) (netip.AddrPort, error) { return netip.MustParseAddrPort("[::1]:443"), nil }},
		{"the listener", func(conn net.Conn) (netip.AddrPort, error) { return addrPort(conn.LocalAddr()), nil }},
		{"unspecified", func(net.Conn) (netip.AddrPort, error) { return netip.MustParseAddrPort("0.0.0.0:443"), nil }},
		{"no port", func(net.Conn) (netip.AddrPort, error) { return netip.MustParseAddrPort("9.9.9.9:0"), nil }},
		{"nothing", func(net.Conn) (netip.AddrPort, error) { return netip.AddrPort{}, nil }},
	} {
		f := toOrigin(origin(t, echo))
		lines := new(sink)
		p := New(Options{
			Policy: allow(t, "9.9.9.9:*", "127.0.0.0/8:*", "localhost:*"), Lookup: f.Lookup, Dial: f.Dial, Audit: lines,
			OriginalDst: tt.to,
		})
		c := dialProxy(t, redirected(t, p))
		_, _ = c.Write(clientHello(t, "good.test"))
		if got, err := io.ReadAll(c.in); err != nil || !bytes.Equal(got, accessDenied()) {
			t.Errorf("%s: % x, %v, want the alert", tt.name, got, err)
		}
		if l := lines.wait(t, 1)[0]; l["reason"] != "no_destination" || l["decision"] != "deny" {
			t.Errorf("%s: %v", tt.name, l)
		}
		if _, dialled := f.counts(); dialled != 0 {
			t.Errorf("%s: dialled", tt.name)
		}
	}
}

// TestKernelsDestination asks the kernel about a connection that nothing has
// redirected.
func TestKernelsDestination(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", network)
		if err != nil {
			t.Fatal(err)
		}
		p := New(Options{Policy: allow(t, "127.0.0.1:*", "[::1]:*")})
		served := make(chan error, 1)
		go func() { served <- p.ServeTransparent(l) }()
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "SSH-2.0-x\r\n")
		if got, err := io.ReadAll(conn); len(got) > 0 || !isReset(err) {
			t.Errorf("%s: %q, %v, want a reset", network, got, err)
		}
		_ = conn.Close()
		_ = p.Close()
		<-served
	}
}

// TestRedirected is what a client sees who does not know of the proxy.
func TestRedirected(t *testing.T) {
	t.Parallel()
	_, tlsTo := tlsOrigin(t)
	plain := httpOrigin(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host+r.URL.Path) })
	raw := origin(t, echo)
	hello := func(name string) string { return string(clientHello(t, name)) }
	get := func(host string) string { return "GET /x HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
	for _, tt := range []struct {
		name, to, sends string
		reason          string
		dials           string
		answer          string // part of it, or reset
	}{
		{"fake, TLS", "198.18.0.7:443", hello("good.test"), "allowed", "9.9.9.9:443", "\x16\x03\x03"},
		{"fake, other name in TLS", "198.18.0.7:443", hello("evil.test"), "sni_differs", "", string(accessDenied())},
		{"fake, not TLS", "198.18.0.7:443", "SSH-2.0-x\r\n", "not_tls", "", "reset"},
		{"fake, port not listed, TLS", "198.18.0.7:8443", hello("good.test"), "port_not_listed", "", string(accessDenied())},
		{"fake, port not listed, HTTP", "198.18.0.7:8080", get("good.test"), "port_not_listed", "", "HTTP/1.1 403 eggrun: good.test:8080 port not on the allowlist\r\nX-Eggrun-Deny: port_not_listed"},
		{"fake, port not listed, else", "198.18.0.7:22", "SSH-2.0-x\r\n", "port_not_listed", "", "reset"},
		{"fake, other port", "198.18.0.7:5432", "ping", "allowed", "9.9.9.9:5432", "ping"},
		{"fake, HTTP", "198.18.0.7:80", get("good.test"), "allowed", "9.9.9.9:80", "good.test/x"},
		{"fake, HTTP to its address", "198.18.0.7:80", get("198.18.0.7"), "allowed", "9.9.9.9:80", "good.test/x"},
		{"fake, HTTP in absolute form", "198.18.0.7:80", "GET http://good.test/x HTTP/1.1\r\nHost: good.test\r\n\r\n", "allowed", "9.9.9.9:80", "good.test/x"},
		{"fake, other host", "198.18.0.7:80", get("evil.test"), "host_differs", "", "HTTP/1.1 400"},
		{"fake, other host in absolute form", "198.18.0.7:80", "GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", "host_differs", "", "HTTP/1.1 400"},
		{"fake, other allowed host", "198.18.0.7:80", get("*.wild.test"), "host_differs", "", "HTTP/1.1 400"},
		{"fake, other port in Host", "198.18.0.7:80", get("good.test:8080"), "host_differs", "", "HTTP/1.1 400"},
		{"fake, no Host", "198.18.0.7:80", "GET / HTTP/1.1\r\n\r\n", "host_differs", "", "HTTP/1.1 400"},
		{"fake, CONNECT", "198.18.0.7:80", "CONNECT good.test:443 HTTP/1.1\r\n\r\n", "bad_head", "", "HTTP/1.1 400"},
		{"fake, not HTTP", "198.18.0.7:80", "\x00\x01", "bad_head", "", "HTTP/1.1 400"},
		{"fake, two hosts", "198.18.0.7:80", "GET / HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n", "bad_head", "", "HTTP/1.1 400"},
		{"fake that nobody has", "198.18.0.9:443", hello("nobody.test"), "not_listed", "", string(accessDenied())},
		{"real, TLS", "1.2.3.4:443", hello("good.test"), "allowed", "9.9.9.9:443", "\x16\x03\x03"},
		{"real, wildcard", "1.2.3.4:443", hello("a.wild.test"), "allowed", "9.9.9.9:443", "\x16\x03\x03"},
		{"real, name not allowed", "9.9.9.9:443", hello("evil.test"), "not_listed", "", string(accessDenied())},
		{"real, no name", "9.9.9.9:443", hello(""), "not_listed", "", string(accessDenied())},
		{"real, not TLS", "9.9.9.9:22", "SSH-2.0-x\r\n", "not_listed", "", "reset"},
		{"real, HTTP", "1.2.3.4:80", get("good.test"), "allowed", "9.9.9.9:80", "good.test/x"},
		{"real, HTTP not allowed", "9.9.9.9:80", get("evil.test"), "not_listed", "", "HTTP/1.1 403 eggrun: evil.test:80 not on the allowlist"},
		{"real, HTTP to the address", "9.9.9.9:80", get("9.9.9.9"), "not_listed", "", "HTTP/1.1 403 eggrun: 9.9.9.9:80 not on the allowlist"},
		{"real, HTTP to another address", "9.9.9.9:80", get("8.8.8.8"), "allowed", "8.8.8.8:80", "8.8.8.8/x"},
		{"real, metadata with a good name", "169.254.169.254:80", get("good.test"), "allowed", "9.9.9.9:80", "good.test/x"},
		{"real, address rule", "8.8.8.8:443", "anything", "allowed", "8.8.8.8:443", "anything"},
		{"real, address rule on 80", "8.8.8.8:80", get("8.8.8.8"), "allowed", "8.8.8.8:80", "8.8.8.8/x"},
		{"real, address rule on 80, other host", "8.8.8.8:80", get("evil.test"), "not_listed", "", "HTTP/1.1 403"},
		{"private address rule", "10.0.0.5:5432", "ping", "allowed", "10.0.0.5:5432", "ping"},
		{"private, no rule", "10.0.0.6:5432", "ping", "not_listed", "", "reset"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := toOrigin(raw, 5432)
			f.routes["9.9.9.9:443"], f.routes["9.9.9.9:80"], f.routes["8.8.8.8:80"] = tlsTo, plain, plain
			f.routes["8.8.8.8:443"], f.routes["10.0.0.5:5432"] = raw, raw
			lines := new(sink)
			rules := []string{"good.test", "good.test:5432", "*.wild.test", "8.8.8.8", "10.0.0.5:5432"}
			_, at := enter(t, Options{Policy: matching(t, policy.SNIMatch, rules...), Audit: lines}, f)
			at.lead("good.test", netip.MustParseAddrPort(tt.to))
			c := dialProxy(t, at.redirected)
			c.send(t, tt.sends)
			_ = c.CloseWrite()
			got, err := io.ReadAll(c.in)
			if ok := tt.answer == "reset" && len(got) == 0 && isReset(err) || err == nil && bytes.Contains(got, []byte(tt.answer)); !ok {
				t.Errorf("answer %q, %v, want %q", got, err, tt.answer)
			}
			if l := lines.first(t); l["reason"] != tt.reason || l["proto"] != "transparent" {
				t.Errorf("%v, want %s", l, tt.reason)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if dials := strings.Join(f.dialled, " "); dials != tt.dials {
				t.Errorf("dialled %q, want %q", dials, tt.dials)
			}
		})
	}
}

// TestPlainHTTPServesOneRequest is TestForwardServesOneRequest for the other
// ways to port 80: nothing that follows may reach another host.
func TestPlainHTTPServesOneRequest(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 8)
	to := httpOrigin(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Host })
	f := toOrigin(to)
	_, at := enter(t, Options{Policy: allow(t, "good.test")}, f)
	at.lead("good.test", netip.AddrPortFrom(fake, httpPort))
	socks := dialProxy(t, at.proxied)
	socksConnectTo(t, socks, "good.test", httpPort)
	for _, c := range []*client{connect(t, at.proxied, "good.test:80"), socks, dialProxy(t, at.redirected)} {
		c.send(t, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
		resp, err := http.ReadResponse(c.in, nil)
		if err != nil || resp.StatusCode != http.StatusOK || !resp.Close {
			t.Fatalf("%+v, %v", resp, err)
		}
		c.mustEnd(t)
		if got := <-seen; got != "good.test" || len(seen) > 0 {
			t.Errorf("origin saw %q and %d more", got, len(seen))
		}
	}
}

// TestFakeAddressInEveryFrontEnd: clients resolve by themselves and then ask the
// proxy for what they got.
func TestFakeAddressInEveryFrontEnd(t *testing.T) {
	t.Parallel()
	to := origin(t, func(conn *net.TCPConn) {
		if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"+r.Host)
		}
	})
	f := toOrigin(to)
	_, at := enter(t, Options{Policy: allow(t, "good.test")}, f)
	at.lead("good.test", netip.AddrPort{})
	a := ask(t, at.proxied, "GET http://198.18.0.7/ HTTP/1.1\r\nHost: 198.18.0.7\r\n\r\n")
	if a.status != http.StatusOK || a.body != "good.test" {
		t.Errorf("%s %q", a.line, a.body)
	}
	if a := ask(t, at.proxied, "CONNECT 198.18.0.7:443 HTTP/1.1\r\n\r\n"); a.status != http.StatusOK {
		t.Errorf("%s", a.line)
	}
	c := dialProxy(t, at.proxied)
	c.send(t, "\x05\x01\x00")
	if got := c.socksReply(t, []byte("\x05\x01\x00\x01\xc6\x12\x00\x07\x01\xbb")); got != socksGranted {
		t.Errorf("SOCKS5 reply %d", got)
	}
	if a := ask(t, at.proxied, "CONNECT 198.18.0.8:443 HTTP/1.1\r\n\r\n"); a.status != http.StatusForbidden {
		t.Errorf("an address that stands for nothing: %s", a.line)
	}
	if asked, _ := f.counts(); asked != 3 {
		t.Errorf("%d lookups: %q", asked, f.asked)
	}
	for _, name := range f.asked {
		if name != "good.test" {
			t.Errorf("looked up %q", name)
		}
	}
}
