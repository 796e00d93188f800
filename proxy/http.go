package proxy

import (
	"errors"
	"net/http"
	"time"

	"eggrun/policy"
)

// serveHTTP serves a client that speaks HTTP to a proxy: a CONNECT, or a request
// in absolute form.
func (x *exchange) serveHTTP() {
	x.voice = voiceHTTP
	if x.in.buf[0] == recordHandshake {
		x.voice = voiceRaw // TLS to the proxy: a status line would not be read
	}
	h, err := x.in.readHead()
	if err != nil {
		x.method = h.method
		x.refuse(x.badRequest("bad_head", err))
		return
	}
	if refused := x.aimAndAdmit(h, true); refused != nil {
		x.refuse(refused)
		return
	}
	if h.method != http.MethodConnect {
		x.forwardHead()
		return
	}
	x.in.take(h.size)
	x.stream()
}

// ServeHTTP serves one request of a server that is not the proxy's own: a
// CONNECT, or a request for a plain http URL in absolute form. Every other
// request is answered by 405. The connection is closed after each request, so
// the next one is decided anew.
//
// The target comes from the request line as the client sent it, not from what
// net/http makes of it: that takes user information, ports beyond 65535 and a
// Host header instead of a target. What net/http does not show, such as a Host
// header that differs, is judged by [DomainProxy.Serve] only.
func (p *DomainProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if held, ok := r.Context().Value(handoverKey{}).(*handover); ok {
		held.served.Store(true)
		held.x.forward(w, r)
		return
	}
	if !p.begin() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	x := p.newExchange()
	done := func() {
		x.end()
		p.work.Done()
	}
	refused := x.aimAndAdmit(&head{method: r.Method, uri: r.RequestURI}, false)
	if refused == nil && x.proto == protoConnect {
		if err := x.hijack(w); err == nil {
			// In a goroutine of its own, so that net/http lets go of its buffers.
			go func() {
				defer done()
				x.stream()
			}()
			return
		}
		refused = x.gateway(fault{http.StatusInternalServerError, socksFailed, "server cannot tunnel"}, "no_hijack")
	}
	defer done()
	if refused == nil {
		x.plainHTTP = true
		refused = x.reach()
	}
	if refused == nil {
		x.forward(w, r)
		return
	}
	if err := x.hijack(w); err != nil {
		x.refuseThrough(w, refused)
		return
	}
	x.refuse(refused)
}

// hijack takes the connection from the server, with the bytes that the client
// sent behind the head.
func (x *exchange) hijack(w http.ResponseWriter) error {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	in := &inbox{Conn: conn}
	if n := buffered.Reader.Buffered(); n > 0 {
		in.buf = make([]byte, n)
		_, _ = buffered.Reader.Read(in.buf)
	}
	x.voice = voiceHTTP
	x.attach(in)
	return nil
}

// aimAndAdmit finds the target of a request to a proxy and decides it.
func (x *exchange) aimAndAdmit(h *head, hostKnown bool) *refusal {
	err := x.aim(h)
	switch {
	case errors.Is(err, errNotProxied):
		return x.notProxied()
	case err != nil:
		return x.badRequest("bad_target", err)
	case hostKnown && x.proto == protoHTTP && !x.sameHost(h):
		return x.badRequest("host_differs", errHostDiffers)
	}
	return x.admit()
}

var errHostDiffers = errors.New("host of the Host header differs from that of the target; send the same one")

// plain serves the one request of a connection to port 80 that came by CONNECT,
// SOCKS5 or a redirect. It is decided like one in absolute form, so that no
// allowed name is a tunnel to every host that the same server has. anyHost says
// that the client's address does not bind it to a name.
func (x *exchange) plain(anyHost bool) {
	x.voice = voiceHTTP
	_ = x.in.SetReadDeadline(time.Now().Add(headTimeout))
	h, err := x.in.readHead()
	if len(x.in.buf) == 0 {
		x.voice = voiceRaw
		if refused := x.decide(); refused != nil {
			x.refuse(refused)
			return
		}
		x.abandoned(err)
		return
	}
	x.method = h.method
	if err != nil {
		x.refuse(x.badRequest("bad_head", err))
		return
	}
	if refused := x.admitPlain(h, anyHost); refused != nil {
		x.refuse(refused)
		return
	}
	x.forwardHead()
}

func (x *exchange) admitPlain(h *head, anyHost bool) *refusal {
	if h.method == http.MethodConnect {
		return x.badRequest("bad_head", errors.New("CONNECT inside of a connection to port 80; ask the proxy itself"))
	}
	if anyHost && h.hosts == 1 {
		t, err := policy.ParseTarget(httpAuthority(h.host))
		if err != nil {
			return x.badRequest("bad_target", err)
		}
		if t.Port == x.target.Port {
			x.target = t
		}
	}
	if !x.sameHost(h) {
		return x.badRequest("host_differs", errHostDiffers)
	}
	if h.uri[0] != '/' {
		rest, ok := cutScheme(h.uri)
		if t, err := policy.ParseTarget(httpAuthority(rest)); !ok || err != nil || x.p.named(t) != x.p.named(x.target) {
			return x.badRequest("host_differs", errHostDiffers)
		}
	}
	return x.admit()
}
