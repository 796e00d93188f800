package proxy

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"eggrun/policy"
)

// TestSecondGreeting has a client send another TLS greeting behind the first, with
// another name, whether or not the server asked for it.
func TestSecondGreeting(t *testing.T) {
	t.Parallel()
	good, evil := makeHello(addServerName(0, "good.test")), makeHello(addServerName(0, "evil.test"))
	early := makeHello(all(addServerName(0, "good.test"), addExtension(extensionEarlyData, 0)))
	ccs := []byte{20, 3, 3, 0, 1, 1}
	data := append([]byte{recordData, 3, 3, 1, 0}, make([]byte, 256)...)
	key := []byte{recordHandshake, 3, 3, 0, 5, 16, 0, 0, 1, 0}
	empty := []byte{recordHandshake, 3, 3, 0, 0}
	alert := []byte{recordAlert, 3, 3, 0, 2, 1, 90}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for _, tt := range []struct {
		name  string
		sni   policy.SNI
		sends []byte
		want  []byte // what comes to the server; all of it where the tunnel stands
	}{
		{"control: not looked at", policy.SNIOff, join(good, ccs, evil), join(good, ccs, evil)},
		{"at once", policy.SNIMatch, join(good, evil), good},
		{"allowlisted", policy.SNIAllowlisted, join(good, evil), good},
		{"as TLS 1.3 does", policy.SNIMatch, join(good, ccs, evil), join(good, ccs)},
		{"behind an alert and nothing", policy.SNIMatch, join(good, alert, empty, ccs, evil), join(good, alert, empty, ccs)},
		{"in pieces", policy.SNIMatch, join(good, ccs, resplit(evil, 10)), join(good, ccs)},
		{"behind early data", policy.SNIMatch, join(early, ccs, data, data, evil), join(early, ccs, data, data)},
		{"no name", policy.SNIMatch, join(good, makeHello(nil)), good},
		{"malformed", policy.SNIMatch, join(good, makeHello(addServerName(0, "good.test", "evil.test"))), good},
		{"the same name", policy.SNIMatch, join(good, ccs, good, data), join(good, ccs, good, data)},
		{"the same name in pieces", policy.SNIMatch, join(good, ccs, resplit(good, 10), data), join(good, ccs, resplit(good, 10), data)},
		{"an older TLS", policy.SNIMatch, join(good, key, ccs, data), join(good, key, ccs, data)},
		{"a half-close", policy.SNIMatch, join(good, []byte{20, 3}), join(good, []byte{20, 3})},
		{"early data", policy.SNIMatch, join(early, ccs, bytes.Repeat(data, 5000)), join(early, ccs, bytes.Repeat(data, 5000))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := make(chan []byte, 2)
			to := origin(t, func(conn *net.TCPConn) {
				b, _ := io.ReadAll(conn)
				got <- b
			})
			lines := new(sink)
			_, at := enter(t, Options{Policy: matching(t, tt.sni, "good.test"), Audit: lines}, toOrigin(to))
			at.lead("good.test", netip.AddrPortFrom(fake, tlsPort))
			for n, open := range []func() *client{
				func() *client { return connect(t, at.proxied, "good.test:443") },
				func() *client { return dialProxy(t, at.redirected) },
			} {
				c := open()
				if _, err := c.Write(tt.sends); err != nil {
					t.Fatal(err)
				}
				passes := len(tt.want) == len(tt.sends)
				if passes {
					if err := c.CloseWrite(); err != nil {
						t.Fatal(err)
					}
				}
				if b := <-got; !bytes.Equal(b, tt.want) {
					t.Errorf("the server got %d bytes, want %d", len(b), len(tt.want))
				}
				_ = c.Close()
				if end := lines.wait(t, 2*n+2)[2*n+1]; !passes && end["close_reason"] != "sni_differs" {
					t.Errorf("audit: %v", end)
				}
			}
		})
	}
}

// TestSecondGreetingOfClient is what an honest client does when the server asks
// for another key.
func TestSecondGreetingOfClient(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.TLS = &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP384}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	_, addr := serve(t, Options{Policy: matching(t, policy.SNIMatch, "good.test")}, toOrigin(srv.Listener.Addr().String()))
	c := tls.Client(connect(t, addr, "good.test:443"), &tls.Config{ServerName: "good.test", InsecureSkipVerify: true})
	if err := c.Handshake(); err != nil || !c.ConnectionState().HelloRetryRequest {
		t.Errorf("%v; asked for another key: %v", err, c.ConnectionState().HelloRetryRequest)
	}
}
