package proxy

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
)

// net/http is lenient where a proxy must not be: it takes bare line feeds, folded
// lines and Transfer-Encoding over Content-Length, and it replaces the Host
// header by the host of the request line, so that a handler cannot see that they
// differ. Therefore the bytes of the head are kept beside it and checked again.

// headListener hands out connections that keep the head of their first request.
type headListener struct{ net.Listener }

func (l headListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &headConn{Conn: conn}, nil
}

// headConn keeps what is read from it until the end of the first head. There is
// no second one: every connection serves one request. It is unwrapped before a
// tunnel uses it, because a wrapped connection cannot splice.
type headConn struct {
	net.Conn
	mu   sync.Mutex
	head []byte
	done bool
}

func (c *headConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		c.head = append(c.head, b[:n]...)
		c.done = len(c.head) > maxHead || bytes.Contains(c.head, []byte(endOfHead))
	}
	return n, err
}

// CloseWrite lets net/http end its own refusals gently: without it the reset of
// a close with unread bytes takes the answer away.
func (c *headConn) CloseWrite() error { return closeWrite(c.Conn) }

// take returns what was kept and keeps nothing any more.
func (c *headConn) take() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	head := c.head
	c.head, c.done = nil, true
	return head
}

const endOfHead = "\r\n\r\n"

type headKey struct{}

// withHead is the ConnContext of the server.
func withHead(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, headKey{}, conn)
}

// checkHead checks the head of the request that ctx belongs to and returns its
// Host header. Under a server that is not ours there is nothing to check: then
// net/http's reading of the request is all there is, and found is false.
func checkHead(ctx context.Context) (host string, found bool, err error) {
	conn, ok := ctx.Value(headKey{}).(*headConn)
	if !ok {
		return "", false, nil
	}
	host, err = strictHead(conn.take())
	return host, true, err
}

// strictHead returns the Host header of the request head at the beginning of b.
// The error says which form that RFC 9112 forbids or lets a proxy refuse was
// found, all of them ways to make two parsers disagree.
func strictHead(b []byte) (host string, err error) {
	head, _, ok := bytes.Cut(b, []byte(endOfHead))
	if !ok {
		return "", errors.New("head has lines that do not end in CR LF")
	}
	lines := strings.Split(string(head), "\r\n")
	seen := make(map[string]int)
	for i, line := range lines {
		if strings.ContainsAny(line, "\r\n\x00") {
			return "", errors.New("head has control bytes")
		}
		if i == 0 {
			continue // the request line: the target is parsed by policy
		}
		if line[0] == ' ' || line[0] == '\t' {
			return "", errors.New("folded header line")
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return "", errors.New("header line without a name")
		}
		name = strings.ToLower(name)
		seen[name]++
		if name == "host" {
			host = strings.Trim(value, " \t")
		}
	}
	switch {
	case seen["host"] > 1:
		return "", errors.New("more than one Host header")
	case seen["content-length"] > 1 || seen["transfer-encoding"] > 1:
		return "", errors.New("length of the body given twice")
	case seen["content-length"] > 0 && seen["transfer-encoding"] > 0:
		return "", errors.New("both Content-Length and Transfer-Encoding")
	}
	return host, nil
}
