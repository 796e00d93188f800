package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"eggrun/policy"
)

// matching is a policy that looks at TLS greetings.
func matching(t testing.TB, sni policy.SNI, domains ...string) *policy.Policy {
	t.Helper()
	p := allow(t, domains...)
	p.SNI = sni
	return p
}

// tlsOrigin answers every request and returns its address.
func tlsOrigin(t *testing.T) (*httptest.Server, string) {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello "+r.TLS.ServerName)
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv, srv.Listener.Addr().String()
}

// handshake does TLS over c and returns what its error is.
func (c *client) handshake(serverName string) error {
	return tls.Client(c.TCPConn, &tls.Config{ServerName: serverName, InsecureSkipVerify: true}).Handshake()
}

// denies reports whether err is the alert that says so.
func denies(err error) bool {
	var alert tls.AlertError
	return errors.As(err, &alert) && uint8(alert) == 49 || err != nil && err.Error() == "remote error: tls: access denied"
}

func TestServerName(t *testing.T) {
	t.Parallel()
	_, to := tlsOrigin(t)
	for _, tt := range []struct {
		name   string
		sni    policy.SNI
		sends  string
		reason string
	}{
		{"the same", policy.SNIMatch, "good.test", "allowed"},
		{"the same by default", "", "good.test", "allowed"},
		{"another case", policy.SNIMatch, "GOOD.test", "allowed"},
		{"another one", policy.SNIMatch, "evil.test", "sni_differs"},
		{"another one by default", "", "evil.test", "sni_differs"},
		{"another one that is allowed", policy.SNIMatch, "other.test", "sni_differs"},
		{"none", policy.SNIMatch, "", "no_sni"},
		{"another one, allowlisted", policy.SNIAllowlisted, "other.test", "allowed"},
		{"one not allowed, allowlisted", policy.SNIAllowlisted, "evil.test", "sni_differs"},
		{"none, allowlisted", policy.SNIAllowlisted, "", "no_sni"},
		{"control: another one, off", policy.SNIOff, "evil.test", "allowed"},
		{"control: none, off", policy.SNIOff, "", "allowed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			lines := new(sink)
			f := toOrigin(to)
			_, at := enter(t, Options{Policy: matching(t, tt.sni, "good.test", "other.test"), Audit: lines}, f)
			at.lead("good.test", netip.AddrPortFrom(fake, tlsPort))
			socks := dialProxy(t, at.proxied)
			if got := socksConnectTo(t, socks, "good.test", tlsPort); got != socksGranted {
				t.Fatalf("SOCKS5 reply %d", got)
			}
			for _, c := range []*client{connect(t, at.proxied, "good.test:443"), socks, dialProxy(t, at.redirected)} {
				_, before := f.counts()
				err := c.handshake(tt.sends)
				_, dialled := f.counts()
				_ = c.Close()
				if tt.reason == "allowed" {
					if err != nil {
						t.Error(err)
					}
					continue
				}
				if !denies(err) || dialled != before {
					t.Errorf("%v, %d dialled, want the alert and none", err, dialled-before)
				}
			}
			lines.mu.Lock()
			defer lines.mu.Unlock()
			for _, l := range lines.lines {
				name, _ := l["sni"].(string)
				if l["event"] == "decision" && (l["reason"] != tt.reason || tt.sni != policy.SNIOff && name != tt.sends) {
					t.Errorf("audit: %v, want %s and the name %q", l, tt.reason, tt.sends)
				}
			}
		})
	}
}

// TestServerNameInPieces has the upstream see what the client sent, byte for
// byte.
func TestServerNameInPieces(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 100, 511, 1 << 14} {
		hello := resplit(clientHello(t, "good.test"), size)
		got := make(chan []byte, 1)
		to := origin(t, func(conn *net.TCPConn) {
			b, _ := io.ReadAll(conn)
			got <- b
		})
		_, addr := serve(t, Options{Policy: matching(t, policy.SNIMatch, "good.test")}, toOrigin(to))
		c := connect(t, addr, "good.test:443")
		sent := append(bytes.Clone(hello), "and more"...)
		for _, piece := range [][]byte{sent[:3], sent[3:50], sent[50:]} {
			if _, err := c.Write(piece); err != nil {
				t.Fatal(err)
			}
		}
		_ = c.CloseWrite()
		if seen := <-got; !bytes.Equal(seen, sent) {
			t.Errorf("records of %d: upstream got %d bytes, want %d", size, len(seen), len(sent))
		}
	}
}

// TestEarlyGreeting has the greeting come in one write with what asks for the
// tunnel.
func TestEarlyGreeting(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, Options{Policy: matching(t, policy.SNIMatch, "good.test")}, toOrigin(origin(t, echo)))
	for _, tt := range []struct{ asks, answer string }{
		{"CONNECT good.test:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 Connection established\r\n\r\n"},
		{"\x05\x01\x00\x05\x01\x00\x03\x09good.test\x01\xbb", "\x05\x00" + string(socksReply(socksGranted))},
	} {
		for name, want := range map[string]string{"good.test": tt.answer, "evil.test": tt.answer + string(accessDenied())} {
			hello := string(clientHello(t, name))
			if name == "good.test" {
				want += hello
			}
			c := dialProxy(t, addr)
			c.send(t, tt.asks+hello)
			_ = c.CloseWrite()
			if got, err := io.ReadAll(c.in); err != nil || string(got) != want {
				t.Errorf("%q and %s: %q, %v, want %q", tt.asks, name, got, err, want)
			}
		}
	}
}

func TestNotTLS(t *testing.T) {
	t.Parallel()
	f := toOrigin(origin(t, echo))
	lines := new(sink)
	_, addr := serve(t, Options{Policy: matching(t, policy.SNIMatch, "good.test", "9.9.9.9"), Audit: lines}, f)
	for i, tt := range []struct {
		sends, reason string
		answer        string // its beginning; empty is a reset
	}{
		{"SSH-2.0-x\r\n", "not_tls", ""},
		{"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n", "not_tls", "HTTP/1.1 403 eggrun: good.test:443 not TLS\r\n"},
		{string(makeHello(addServerName(0, "good.test", "evil.test"))), "bad_hello", string(accessDenied())},
		{string(makeHello(addServerName(0, "good\x00.test"))), "bad_hello", string(accessDenied())},
		{string(makeHello(addServerName(0, "9.9.9.9"))), "bad_hello", string(accessDenied())},
	} {
		c := connect(t, addr, "good.test:443")
		c.send(t, tt.sends)
		got, err := io.ReadAll(c.in)
		if tt.answer == "" && (len(got) > 0 || !isReset(err)) || tt.answer != "" && (!bytes.HasPrefix(got, []byte(tt.answer)) || err != nil) {
			t.Errorf("%q: answer %q, %v, want %q", tt.sends, got, err, tt.answer)
		}
		if l := lines.wait(t, i+1)[i]; l["reason"] != tt.reason {
			t.Errorf("%q: %v, want %s", tt.sends, l, tt.reason)
		}
	}
	if _, dialled := f.counts(); dialled != 0 {
		t.Errorf("%d dials for refused greetings", dialled)
	}
	// A rule that names the address is no rule for a name.
	connect(t, addr, "9.9.9.9:443").mustEcho(t, "SSH-2.0-x\r\n")
}

// TestTLSToTheProxyItself is a client that takes it for an https:// proxy.
func TestTLSToTheProxyItself(t *testing.T) {
	t.Parallel()
	lines := new(sink)
	_, addr := serve(t, Options{Policy: allow(t, "good.test"), Audit: lines}, nil)
	if err := dialProxy(t, addr).handshake("good.test"); !denies(err) {
		t.Errorf("%v, want the alert", err)
	}
	if got := lines.wait(t, 1)[0]["reason"]; got != "bad_head" {
		t.Errorf("reason %v", got)
	}
}

// TestObservedServerName lets pass what would be refused, and says so.
func TestObservedServerName(t *testing.T) {
	t.Parallel()
	p := matching(t, policy.SNIMatch, "good.test")
	p.Observe = true
	lines := new(sink)
	_, addr := serve(t, Options{Policy: p, Audit: lines}, toOrigin(origin(t, echo)))
	c := connect(t, addr, "good.test:443")
	c.mustEcho(t, "SSH-2.0-x\r\n")
	_ = c.Close()
	if l := lines.wait(t, 2)[0]; l["decision"] != "allow" || l["would_deny"] != true || l["reason"] != "not_tls" {
		t.Errorf("%v", l)
	}
}

func TestClientLeavesBeforeItsGreeting(t *testing.T) {
	t.Parallel()
	f := toOrigin(origin(t, echo))
	lines := new(sink)
	_, addr := serve(t, Options{Policy: matching(t, policy.SNIMatch, "good.test"), Audit: lines}, f)
	for i, target := range []string{"good.test:443", "good.test:80"} {
		_ = connect(t, addr, target).Close()
		got := lines.wait(t, 2*i+2)
		if got[2*i]["decision"] != "allow" || got[2*i+1]["close_reason"] != "eof" {
			t.Errorf("%s: %v", target, got)
		}
	}
	if _, dialled := f.counts(); dialled != 0 {
		t.Errorf("%d dials for clients that sent nothing", dialled)
	}
}
