package proxy

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// forwardHead serves a plain http request whose head has been judged and whose
// target has been allowed. net/http parses it once more, reads its body and
// writes it anew, so that nothing of the client's framing reaches the upstream.
func (x *exchange) forwardHead() {
	x.plainHTTP = true
	if refused := x.reach(); refused != nil {
		x.refuse(refused)
		return
	}
	_ = x.in.SetDeadline(time.Time{})
	h := &handover{Conn: x.in.Conn, buf: x.in.buf, x: x, done: make(chan struct{})}
	// One connection, then io.EOF. What the server begins ends with Close.
	if err := x.p.server.Serve(&oneConn{conn: h}); errors.Is(err, http.ErrServerClosed) {
		_ = h.Close()
	}
	<-h.done
	if !h.served.Load() {
		x.logEnd(0, 0, "broken") // net/http takes less than we do
	}
}

// forward serves r on the upstream connection that is there.
func (x *exchange) forward(w http.ResponseWriter, r *http.Request) {
	counted := &countingConn{Conn: x.upstream}
	reason := "broken" // unless the response ends; a panic of ReverseProxy is one that does not
	defer func() { x.logEnd(counted.written.Load(), counted.read.Load(), reason) }()

	if x.in != nil {
		// To net/http a client that has shut down its side is gone; to us only one
		// whose connection breaks.
		stop := context.AfterFunc(r.Context(), func() {
			if awaitReset(x.in.Conn) != nil {
				x.cancel(nil)
			}
		})
		defer stop()
		// The key makes ReverseProxy break the connection when an answer does.
		r = r.WithContext(context.WithValue(x.ctx, http.ServerContextKey, x.p.server))
	}
	transport := x.onceTransport(counted)
	defer transport.CloseIdleConnections()
	upgrades := x.route.via == nil && asksForWebSocket(r)
	if !upgrades {
		r.Header.Del("Upgrade")
	}
	failed := false
	(&httputil.ReverseProxy{
		Transport:     transport,
		Rewrite:       x.rewrite,
		FlushInterval: -1, // a stream is passed on as it comes
		ErrorLog:      log.New(io.Discard, "", 0),
		ModifyResponse: func(resp *http.Response) error {
			isSwitch := resp.StatusCode == http.StatusSwitchingProtocols
			if !isSwitch {
				w.Header().Set("Connection", "close") // a connection serves one request
			}
			switch {
			case x.route.via != nil && resp.StatusCode == http.StatusProxyAuthRequired:
				return &upstreamError{"upstream proxy wants a password"}
			case isSwitch && !upgrades:
				return errSwitches
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			failed = true
			f := fault{http.StatusBadGateway, socksFailed, "sent no valid response"}
			if proxied := (*upstreamError)(nil); errors.As(err, &proxied) {
				f.words = proxied.words
			}
			h := w.Header()
			h.Set("Connection", "close")
			h.Set(denyHeader, "response")
			h.Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(f.status)
			_, _ = io.WriteString(w, x.gateway(f, "response").text())
		},
	}).ServeHTTP(w, r)
	if !failed {
		reason = "eof"
	}
}

// asksForWebSocket tells whether a request would turn its connection into a
// WebSocket (RFC 6455 section 4.1), which is a tunnel to the target like any other.
// Other protocols are not asked for: in one of them, h2c, more requests would
// follow that nobody decides.
func asksForWebSocket(r *http.Request) bool {
	upgrade := r.Header["Upgrade"]
	return r.Method == http.MethodGet && r.ProtoAtLeast(1, 1) && r.ContentLength == 0 &&
		len(upgrade) == 1 && strings.EqualFold(upgrade[0], "websocket") && r.Header.Get("Sec-Websocket-Key") != ""
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

var (
	errOneRequest = errors.New("connection already used")
	errSwitches   = errors.New("response switches protocols, which nobody asked for")
)

// onceTransport sends one request over conn, and never dials. An upstream proxy
// gets the request in absolute form, because many take CONNECT for 443 alone.
func (x *exchange) onceTransport(conn net.Conn) *http.Transport {
	var used atomic.Bool
	t := &http.Transport{
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
	if x.route.via != nil {
		t.Proxy = func(*http.Request) (*url.URL, error) { return x.route.via.url, nil }
	}
	return t
}

// handover is a connection on its way to net/http, which reads the bytes that
// are there already first.
type handover struct {
	net.Conn
	buf    []byte
	x      *exchange
	served atomic.Bool
	once   sync.Once
	done   chan struct{} // closed with the connection
}

func (h *handover) Read(b []byte) (int, error) {
	if len(h.buf) > 0 {
		n := copy(b, h.buf)
		h.buf = h.buf[n:]
		return n, nil
	}
	return h.Conn.Read(b)
}

func (h *handover) Close() error {
	h.once.Do(func() { close(h.done) })
	return h.Conn.Close()
}

// CloseWrite lets net/http end its answers gently: without it the reset of a
// close with unread bytes takes the answer away.
func (h *handover) CloseWrite() error { return closeWrite(h.Conn) }

type handoverKey struct{}

// withHandover is the ConnContext of the server.
func withHandover(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, handoverKey{}, conn)
}

// oneConn is a listener of one connection.
type oneConn struct{ conn *handover }

func (l *oneConn) Accept() (net.Conn, error) {
	conn := l.conn
	l.conn = nil
	if conn == nil {
		return nil, io.EOF
	}
	return conn, nil
}

func (l *oneConn) Close() error { return nil }

func (l *oneConn) Addr() net.Addr { return new(net.TCPAddr) }

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
