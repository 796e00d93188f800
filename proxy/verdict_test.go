package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

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
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
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
				_, addr := serve(t, Options{Policy: allow(t, strings.Fields(tt.list)...), Audit: lines}, f)
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
	_, addr := serve(t, Options{Policy: allow(t, "good.test")}, f)
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
