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
)

// webSocketOrigin answers as one that speaks WebSocket, or whatever else is asked
// for, and then echoes.
func webSocketOrigin(t *testing.T) string {
	return origin(t, func(conn *net.TCPConn) {
		in := bufio.NewReader(conn)
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		upgrade := r.Header.Get("Upgrade")
		if upgrade == "" {
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 426 Upgrade Required\r\nContent-Length: %d\r\n\r\n%s", len(r.Host), r.Host)
			return
		}
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", upgrade)
		_, _ = io.Copy(struct{ io.Writer }{conn}, in)
	})
}

const webSocketHead = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// webSocketFronts send the head of a WebSocket to port 80 of a host by each way
// in, and return what came back.
var webSocketFronts = map[string]func(t *testing.T, at *entrance, host string) *client{
	"http": func(t *testing.T, at *entrance, host string) *client {
		c := dialProxy(t, at.proxied)
		c.send(t, "GET http://"+host+"/ HTTP/1.1\r\nHost: "+host+"\r\n"+webSocketHead)
		return c
	},
	"connect": func(t *testing.T, at *entrance, host string) *client {
		c := dialProxy(t, at.proxied)
		c.send(t, "CONNECT "+host+":80 HTTP/1.1\r\n\r\n")
		if c.read(t, "CONNECT").status == http.StatusOK {
			c.send(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\n"+webSocketHead)
		}
		return c
	},
	"socks5": func(t *testing.T, at *entrance, host string) *client {
		c := dialProxy(t, at.proxied)
		if socksConnectTo(t, c, host, 80) == socksGranted {
			c.send(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\n"+webSocketHead)
		}
		return c
	},
	"transparent": func(t *testing.T, at *entrance, host string) *client {
		at.lead(host, netip.AddrPortFrom(fake, 80))
		c := dialProxy(t, at.redirected)
		c.send(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\n"+webSocketHead)
		return c
	},
}

// TestWebSocket goes to port 80 by every way: for a name of the list it is a tunnel
// until it is revoked, for another one what every request is.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	for name, ask := range webSocketFronts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, lines := toOrigin(webSocketOrigin(t)), new(sink)
			p, at := enter(t, Options{Policy: allow(t, "good.test"), Audit: lines}, f)
			c := ask(t, at, "good.test")
			a, err := http.ReadResponse(c.in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if a.StatusCode != http.StatusSwitchingProtocols || a.Header.Get("Upgrade") != "websocket" || strings.Join(a.Header["Connection"], ",") != "Upgrade" {
				t.Fatalf("%s %v", a.Status, a.Header)
			}
			c.mustEcho(t, "first frame")
			c.mustEcho(t, "second frame")
			p.SetPolicy(allow(t, "other.test"))
			if _, err := io.ReadAll(c.in); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Error("still open after its name was taken away")
			}
			end := lines.wait(t, 2)[1]
			if end["close_reason"] != "revoked" || end["bytes_up"].(float64) < 23 {
				t.Errorf("end %v", end)
			}

			refused := new(sink)
			_, at = enter(t, Options{Policy: allow(t, "good.test"), Audit: refused}, f)
			_, before := f.counts()
			_, _ = io.ReadAll(ask(t, at, "evil.test").in)
			if _, after := f.counts(); after != before {
				t.Error("evil.test was dialled")
			}
			if got := refused.first(t)["reason"]; got != "not_listed" {
				t.Errorf("evil.test: %v, want not_listed", got)
			}
		})
	}
}

// TestWebSocketOnly: nothing but a WebSocket is upgraded to.
func TestWebSocketOnly(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, Options{Policy: allow(t, "good.test")}, toOrigin(webSocketOrigin(t)))
	for name, head := range map[string]string{
		"another protocol": "GET / HTTP/1.1\nConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\nSec-WebSocket-Key: x\n\n",
		"two":              "GET / HTTP/1.1\nConnection: Upgrade\nUpgrade: websocket\nUpgrade: h2c\nSec-WebSocket-Key: x\n\n",
		"two in one":       "GET / HTTP/1.1\nConnection: Upgrade\nUpgrade: websocket, h2c\nSec-WebSocket-Key: x\n\n",
		"without a key":    "GET / HTTP/1.1\nConnection: Upgrade\nUpgrade: websocket\n\n",
		"not hop by hop":   "GET / HTTP/1.1\nUpgrade: websocket\nSec-WebSocket-Key: x\n\n",
		"with a body":      "GET / HTTP/1.1\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Key: x\nContent-Length: 4\n\nbody",
		"chunked":          "GET / HTTP/1.1\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Key: x\nTransfer-Encoding: chunked\n\n0\n\n",
		"another method":   "POST / HTTP/1.1\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Key: x\nContent-Length: 0\n\n",
		"HTTP/1.0":         "GET / HTTP/1.0\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Key: x\n\n",
	} {
		head = strings.Replace(head, " / ", " http://good.test/ ", 1)
		head = strings.Replace(head, "\n", "\nHost: good.test\n", 1)
		c := dialProxy(t, addr)
		c.send(t, strings.ReplaceAll(head, "\n", "\r\n"))
		if a := c.read(t, "GET"); a.status != http.StatusUpgradeRequired {
			t.Errorf("%s: %s, want 426, as without Upgrade", name, a.line)
		}
		c.mustEnd(t)
	}
	a := ask(t, addr, "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n"+webSocketHead)
	if a.status != http.StatusSwitchingProtocols {
		t.Errorf("control: %s", a.line)
	}
}
