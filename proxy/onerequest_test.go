package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// TestOneRequestAfterHints pipelines a second request behind one whose answer
// begins with an interim response. Nobody has decided the second one.
func TestOneRequestAfterHints(t *testing.T) {
	t.Parallel()
	const final = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for name, answer := range map[string]string{"control": final, "hints": "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + final} {
		var requests atomic.Int32
		to := origin(t, func(conn *net.TCPConn) {
			in := bufio.NewReader(conn)
			for {
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				requests.Add(1)
				_, _ = io.WriteString(conn, answer)
			}
		})
		lines := new(sink)
		_, addr := serve(t, Options{Policy: allow(t, "good.test"), Audit: lines}, toOrigin(to))
		c := dialProxy(t, addr)
		const request = "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n"
		c.send(t, request+strings.ReplaceAll(request, "good", "evil"))
		got, err := io.ReadAll(c.in)
		if err != nil {
			t.Fatalf("%s: %v (%q)", name, err, got)
		}
		if n := strings.Count(string(got), "HTTP/1.1 200 "); n != 1 || !strings.HasSuffix(string(got), "\r\n\r\nok") {
			t.Errorf("%s: answers %q, want one", name, got)
		}
		if n := requests.Load(); n != 1 {
			t.Errorf("%s: %d requests came to the origin", name, n)
		}
		lines.wait(t, 2)
	}
}
