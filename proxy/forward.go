package proxy

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync/atomic"
)

// forward serves a plain http request whose target has been allowed: one request
// on a new connection, written anew, so that nothing of the client's framing
// reaches the upstream.
func (x *exchange) forward() {
	upstream, refused := x.reach(x.r.Context())
	if refused != nil {
		x.refuse(refused)
		return
	}
	defer x.p.drop(upstream)
	counted := &countingConn{Conn: upstream}
	reason := "broken" // unless the response ends; a panic of ReverseProxy is one that does not
	defer func() { x.logEnd(counted.written.Load(), counted.read.Load(), reason) }()

	transport := onceTransport(counted)
	defer transport.CloseIdleConnections()
	// A connection serves one request, and one that changes protocol would go on
	// without being seen. WebSockets use CONNECT behind a proxy (RFC 6455 4.1).
	x.r.Header.Del("Upgrade")
	x.w.Header().Set("Connection", "close")
	failed := false
	(&httputil.ReverseProxy{
		Transport:     transport,
		Rewrite:       x.rewrite,
		FlushInterval: -1, // a stream is passed on as it comes
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			failed = true
			h := w.Header()
			h.Set(denyHeader, "response")
			h.Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(http.StatusBadGateway)
			f := x.gateway(http.StatusBadGateway, "response", "sent no valid response")
			_, _ = io.WriteString(w, f.text())
		},
	}).ServeHTTP(x.w, x.r)
	if !failed {
		reason = "eof"
	}
}

// rewrite makes the upstream's request from the client's. ReverseProxy has
// removed the hop-by-hop headers and those that Connection names.
func (x *exchange) rewrite(pr *httputil.ProxyRequest) {
	pr.Out.URL.Scheme = "http"
	pr.Out.URL.Host = x.target.String()
	pr.Out.URL.User = nil
	// ReverseProxy drops what it cannot parse; a forward proxy has no opinion.
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery
	pr.Out.Host = strings.TrimSuffix(x.target.String(), ":80")
	for name := range pr.Out.Header {
		if strings.HasPrefix(name, "Proxy-") {
			pr.Out.Header.Del(name)
		}
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := pr.In.Header[name]; ok {
			pr.Out.Header[name] = values
		}
	}
}

var errOneRequest = errors.New("connection already used")

// onceTransport sends one request over conn, and never dials.
func onceTransport(conn net.Conn) *http.Transport {
	var used atomic.Bool
	return &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errOneRequest
			}
			return conn, nil
		},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 256 << 10,
	}
}

// countingConn counts bytes. It hides splice, which a response that net/http
// writes anew has no use for.
type countingConn struct {
	net.Conn
	read, written atomic.Int64
}

func (c *countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

func (c *countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}
