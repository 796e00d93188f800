package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"eggrun/policy"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// public is an address that vetting lets through. Nothing in these tests dials
// it: a fakeNet leads it to a listener on loopback.
var public = netip.MustParseAddr("9.9.9.9")

// fakeNet stands in for DNS and for the network.
type fakeNet struct {
	mu      sync.Mutex
	names   map[string][]netip.Addr
	routes  map[string]string // address and port to those of a listener
	asked   []string
	dialled []string
	lookup  func(host string) ([]netip.Addr, error)                                          // instead of names
	dial    func(ctx context.Context, address string) (conn net.Conn, handled bool, _ error) // before routes
}

func (f *fakeNet) Lookup(_ context.Context, host string) ([]netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, host)
	if f.lookup != nil {
		return f.lookup(host)
	}
	addrs, ok := f.names[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, Server: "10.9.8.7:53", IsNotFound: true}
	}
	return addrs, nil
}

func (f *fakeNet) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	f.mu.Lock()
	f.dialled = append(f.dialled, address)
	to, ok := f.routes[address]
	hook := f.dial
	f.mu.Unlock()
	if hook != nil {
		if conn, handled, err := hook(ctx, address); handled {
			return conn, err
		}
	}
	if !ok {
		return nil, fmt.Errorf("dial %s: no route in this test", address)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, to)
}

func (f *fakeNet) counts() (asked, dialled int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked), len(f.dialled)
}

// toOrigin returns a fakeNet that leads good.test and everything below it, on
// every port of ports, to origin.
func toOrigin(origin string, ports ...int) *fakeNet {
	f := &fakeNet{routes: make(map[string]string), lookup: func(string) ([]netip.Addr, error) { return []netip.Addr{public}, nil }}
	for _, port := range append(ports, 80, 443) {
		f.routes[netip.AddrPortFrom(public, uint16(port)).String()] = origin
	}
	return f
}

// list parses entries that a test needs to be good.
func list(t testing.TB, domains ...string) *policy.Allowlist {
	t.Helper()
	a, err := policy.ParseAllowlist(domains)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// allow is a policy of entries that looks at no TLS greeting.
func allow(t testing.TB, domains ...string) *policy.Policy {
	t.Helper()
	return &policy.Policy{Domains: domains, Allowlist: list(t, domains...), SNI: policy.SNIOff}
}

// serve starts a proxy on loopback and returns its address.
func serve(t testing.TB, opts Options, f *fakeNet) (*DomainProxy, string) {
	t.Helper()
	if f != nil {
		opts.Lookup, opts.Dial = f.Lookup, f.Dial
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := New(opts)
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return p, l.Addr().String()
}

// redirected has p serve clients that do not know of it, on a second listener.
func redirected(t testing.TB, p *DomainProxy) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- p.ServeTransparent(l) }()
	t.Cleanup(func() {
		_ = p.Close()
		if err := <-served; err != nil {
			t.Errorf("ServeTransparent: %v", err)
		}
	})
	return l.Addr().String()
}

// clientHello returns the greeting of Go's TLS client, in one record.
func clientHello(t testing.TB, serverName string) []byte {
	t.Helper()
	here, there := net.Pipe()
	go func() {
		_ = tls.Client(here, &tls.Config{ServerName: serverName, InsecureSkipVerify: true}).Handshake()
		_ = here.Close()
	}()
	defer func() { _ = there.Close() }()
	record := make([]byte, recordHeader)
	if _, err := io.ReadFull(there, record); err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, int(record[3])<<8+int(record[4]))
	if _, err := io.ReadFull(there, rest); err != nil {
		t.Fatal(err)
	}
	return append(record, rest...)
}

// socksConnectTo asks for a tunnel to a name and returns the reply.
func socksConnectTo(t testing.TB, c *client, host string, port uint16) byte {
	t.Helper()
	c.send(t, "\x05\x01\x00")
	request := append([]byte{socksVersion, socksConnect, 0, socksName, byte(len(host))}, host...)
	return c.socksReply(t, binary.BigEndian.AppendUint16(request, port))
}

// socksReply sends a request behind the greeting and returns the reply.
func (c *client) socksReply(t testing.TB, request []byte) byte {
	t.Helper()
	if _, err := c.Write(request); err != nil {
		t.Fatal(err)
	}
	var reply [2 + 10]byte
	if _, err := io.ReadFull(c.in, reply[:]); err != nil || reply[0] != socksVersion || reply[1] != socksNoAuth || reply[2] != socksVersion {
		t.Fatalf("SOCKS5 reply % x, %v", reply, err)
	}
	return reply[3]
}

// origin runs handle for each connection to a new listener on loopback.
func origin(t testing.TB, handle func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				handle(conn.(*net.TCPConn))
			}()
		}
	}()
	return l.Addr().String()
}

// echo sends back what it reads. It hides the types from io.Copy, which would
// hold the two descriptors of a pipe.
func echo(conn *net.TCPConn) {
	_, _ = io.Copy(struct{ io.Writer }{conn}, struct{ io.Reader }{conn})
}

// client is a raw connection to a proxy.
type client struct {
	*net.TCPConn
	in *bufio.Reader
}

func dialProxy(t testing.TB, addr string) *client {
	t.Helper()
	conn, err := net.Dial("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &client{conn.(*net.TCPConn), bufio.NewReader(conn)}
}

func (c *client) send(t testing.TB, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

// answer is what a proxy said, in full.
type answer struct {
	line   string // status line
	status int
	header http.Header
	body   string
}

// read reads one response; that to a CONNECT has a body only when it refuses.
func (c *client) read(t testing.TB, method string) answer {
	t.Helper()
	line, err := c.in.Peek(min(c.in.Size(), 13))
	if err != nil {
		t.Fatalf("no response: %v (%q)", err, line)
	}
	resp, err := http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	a := answer{line: resp.Proto + " " + resp.Status, status: resp.StatusCode, header: resp.Header}
	if method != http.MethodConnect || resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		a.body = string(body)
	}
	return a
}

// ask sends one raw head and returns the answer.
func ask(t testing.TB, addr, head string) answer {
	t.Helper()
	c := dialProxy(t, addr)
	c.send(t, head)
	method, _, _ := strings.Cut(head, " ")
	return c.read(t, method)
}

// connect asks for a tunnel and needs it.
func connect(t testing.TB, addr, target string) *client {
	t.Helper()
	c := dialProxy(t, addr)
	c.send(t, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
	if a := c.read(t, http.MethodConnect); a.status != http.StatusOK {
		t.Fatalf("CONNECT %s: %s", target, a.line)
	}
	return c
}

// mustEcho needs the tunnel to carry bytes both ways.
func (c *client) mustEcho(t testing.TB, s string) {
	t.Helper()
	c.send(t, s)
	got := make([]byte, len(s))
	if _, err := io.ReadFull(c.in, got); err != nil || string(got) != s {
		t.Fatalf("echo of %q = %q, %v", s, got, err)
	}
}

// mustEnd needs the other side to close without sending more.
func (c *client) mustEnd(t testing.TB) {
	t.Helper()
	rest, err := io.ReadAll(c.in)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("connection is still open")
	}
	if len(rest) > 0 {
		t.Fatalf("unexpected bytes %q", rest)
	}
}

// eventually polls until ok, and fails the test when that never happens.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// sink collects audit lines.
type sink struct {
	mu    sync.Mutex
	lines []map[string]any
	bad   []string
}

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil || b[len(b)-1] != '\n' || strings.Count(string(b), "\n") != 1 {
		s.bad = append(s.bad, string(b))
	}
	s.lines = append(s.lines, m)
	return len(b), nil
}

// first returns the first line once there is one.
func (s *sink) first(t testing.TB) map[string]any {
	t.Helper()
	var line map[string]any
	eventually(t, "an audit line", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.lines) > 0 {
			line = s.lines[0]
		}
		return line != nil
	})
	return line
}

// wait returns the lines once there are n.
func (s *sink) wait(t testing.TB, n int) []map[string]any {
	t.Helper()
	var lines []map[string]any
	eventually(t, fmt.Sprintf("%d audit lines", n), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		lines = append([]map[string]any(nil), s.lines...)
		return len(lines) >= n
	})
	if len(lines) != n || len(s.bad) > 0 {
		t.Fatalf("audit has %d lines, want %d: %v; not JSON: %q", len(lines), n, lines, s.bad)
	}
	return lines
}
