package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"eggrun/policy"
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

// fake is an address of the resolver's range, and elsewhere one of the world.
var (
	fake      = netip.MustParseAddr("198.18.0.7")
	elsewhere = netip.MustParseAddr("1.2.3.4")
)

// front is a way in. ask goes it until the client has seen a verdict or the
// origin a connection; it reports false when the way cannot express the target.
type front struct {
	name string
	ask  func(t *testing.T, at *entrance, host string, port int) bool
}

// entrance is a proxy with both of its listeners.
type entrance struct {
	proxied, redirected string

	mu   sync.Mutex
	name string         // that fake stands for
	to   netip.AddrPort // where redirected clients want to go
}

// lead has redirected clients want to go to an address, and fake be name.
func (at *entrance) lead(name string, to netip.AddrPort) {
	at.mu.Lock()
	defer at.mu.Unlock()
	at.name, at.to = name, to
}

func (at *entrance) nameOf(addr netip.Addr) (string, bool) {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.name, addr == fake
}

func (at *entrance) originalDst(net.Conn) (netip.AddrPort, error) {
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.to, nil
}

// greet sends what a client of that port sends first and waits for an answer, or
// its absence.
func greet(t *testing.T, c *client, host string, port int) {
	t.Helper()
	if port == httpPort {
		c.send(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
	} else {
		_, _ = c.Write(clientHello(t, strings.TrimSuffix(host, ".")))
	}
	_, _ = io.ReadAll(c.in)
}

func askConnect(version string) func(*testing.T, *entrance, string, int) bool {
	return func(t *testing.T, at *entrance, host string, port int) bool {
		c := dialProxy(t, at.proxied)
		c.send(t, fmt.Sprintf("CONNECT %s:%d HTTP/%s\r\nHost: good.test\r\n\r\n", host, port, version))
		if c.read(t, "CONNECT").status == http.StatusOK {
			greet(t, c, host, port)
		}
		return true
	}
}

func askAbsolute(t *testing.T, at *entrance, host string, port int) bool {
	c := dialProxy(t, at.proxied)
	c.send(t, fmt.Sprintf("GET http://%s:%d/ HTTP/1.1\r\nHost: %[1]s:%[2]d\r\n\r\n", host, port))
	_, _ = io.ReadAll(c.in)
	return true
}

func askSOCKS(t *testing.T, at *entrance, host string, port int) bool {
	if port > 65535 {
		return false
	}
	c := dialProxy(t, at.proxied)
	if socksConnectTo(t, c, host, uint16(port)) == socksGranted {
		greet(t, c, host, port)
	}
	return true
}

func askRedirected(t *testing.T, at *entrance, host string, port int) bool {
	target, err := policy.ParseTarget(fmt.Sprintf("%s:%d", host, port))
	switch {
	case err != nil:
		return false
	case target.Addr.IsLoopback():
		return false // that is never redirected
	case target.Addr.IsValid():
		at.lead("", netip.AddrPortFrom(target.Addr, target.Port))
	default:
		at.lead(target.Host, netip.AddrPortFrom(fake, target.Port))
	}
	greet(t, dialProxy(t, at.redirected), host, port)
	return true
}

func askByServerName(t *testing.T, at *entrance, host string, port int) bool {
	target, err := policy.ParseTarget(fmt.Sprintf("%s:%d", host, port))
	if err != nil || target.Addr.IsValid() {
		return false
	}
	at.lead("", netip.AddrPortFrom(elsewhere, target.Port))
	greet(t, dialProxy(t, at.redirected), host, port)
	return true
}

var fronts = []front{
	{"connect", askConnect("1.1")},
	{"connect of HTTP/1.0", askConnect("1.0")},
	{"http", askAbsolute},
	{"socks5", askSOCKS},
	{"transparent", askRedirected},
	{"transparent by the name that the client sends", askByServerName},
}

// enter makes a proxy with both listeners.
func enter(t testing.TB, opts Options, f *fakeNet) (*DomainProxy, *entrance) {
	t.Helper()
	at := new(entrance)
	opts.NameOf, opts.OriginalDst = at.nameOf, at.originalDst
	p, addr := serve(t, opts, f)
	at.proxied, at.redirected = addr, redirected(t, p)
	return p, at
}

// TestVerdictIsTheSameInEveryFrontEnd asks for each target in every way that can
// express it. The audit has to agree in all but what says which way it was.
func TestVerdictIsTheSameInEveryFrontEnd(t *testing.T) {
	t.Parallel()
	to := origin(t, func(conn *net.TCPConn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	for _, sni := range []policy.SNI{policy.SNIMatch, policy.SNIOff} {
		for _, tt := range verdicts {
			t.Run(fmt.Sprintf("%s/%s", sni, tt.name), func(t *testing.T) {
				t.Parallel()
				for _, front := range fronts {
					f := toOrigin(to, 8443)
					lines := new(sink)
					pol := allow(t, strings.Fields(tt.list)...)
					pol.SNI = sni
					_, at := enter(t, Options{Policy: pol, Audit: lines, UIDOf: func(_, _ netip.AddrPort) (int, bool) { return 7, true }}, f)
					if !front.ask(t, at, tt.host, tt.port) {
						continue
					}
					asked, dialled := f.counts()
					want := map[string]any{
						"event": "decision", "proto": strings.Fields(front.name)[0], "uid": 7.0,
						"decision": "deny", "reason": tt.want,
					}
					allowed := tt.want == "allowed"
					if allowed {
						want["decision"] = "allow"
					}
					if target, err := policy.ParseTarget(fmt.Sprintf("%s:%d", tt.host, tt.port)); err == nil {
						want["host"], want["port"] = target.Host, float64(target.Port)
						if rule := pol.Decide(target).Rule; rule != "" && tt.want != "not_public" {
							want["rule"] = rule
						}
					}
					if allowed != (dialled == 1) || !allowed && asked != 0 {
						t.Errorf("%s: %d asked, %d dialled, want it %s", front.name, asked, dialled, tt.want)
					}
					line := lines.first(t)
					for key, value := range want {
						if line[key] != value {
							t.Errorf("%s: %s = %v, want %v", front.name, key, line[key], value)
						}
					}
				}
			})
		}
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
