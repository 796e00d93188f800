package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"eggrun/policy"
)

// Front ends, as the audit names them.
const (
	protoConnect     = "connect"
	protoHTTP        = "http"
	protoSOCKS       = "socks5"
	protoTransparent = "transparent"
	protoLocal       = "local"
)

// exchange is one client request on its way through the proxy.
type exchange struct {
	p      *DomainProxy
	ctx    context.Context // ends with the exchange, its revocation, or the proxy
	cancel context.CancelCauseFunc
	policy *policy.Policy // the one in force when the target was decided
	in     *inbox         // nil under a server that is not ours
	voice  voice
	begun  time.Time
	id     string

	proto   string
	method  string // what the client asked for, for refusals
	uri     string // the target as it was sent
	uid     *int
	target  policy.Target
	verdict policy.Decision

	plainHTTP bool // it is forwarded, not tunnelled
	route     route
	upstream  net.Conn
	late      []byte // bytes of upstream that came with the answer of a proxy
	heard     *hello // the greeting to which a second one is held

	logged  bool // the decision is in the audit
	decided decided
	ended   ended
}

func (p *DomainProxy) newExchange() *exchange {
	x := &exchange{
		p:     p,
		begun: time.Now(),
		id:    p.prefix + "-" + strconv.FormatUint(p.serial.Add(1), 10),
		proto: protoHTTP,
	}
	x.ctx, x.cancel = context.WithCancelCause(p.ctx)
	return x
}

// attach gives x the client's connection, which end closes.
func (x *exchange) attach(in *inbox) {
	x.in = in
	x.closeWithExchange(in.Conn)
}

// end closes what x holds. The connections are closed here too, so that they are
// when end returns.
func (x *exchange) end() {
	x.cancel(nil)
	x.p.leave(x)
	if x.in != nil {
		_ = x.in.Close()
	}
	if x.upstream != nil {
		_ = x.upstream.Close()
	}
}

// user asks whose connection this is, while it is open.
func (x *exchange) user(remote net.Addr) {
	if x.p.opts.UIDOf == nil {
		return
	}
	from, to := addrPort(x.in.RemoteAddr()), addrPort(remote)
	if uid, ok := x.p.opts.UIDOf(from, to); ok {
		x.uid = &uid
	}
}

// addrPort returns the unmapped address of a TCP connection.
func addrPort(addr net.Addr) netip.AddrPort {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// decide asks the policy about the target. It asks nobody else anything.
func (x *exchange) decide() *refusal {
	x.policy = x.p.policy.Load()
	x.target = x.p.named(x.target)
	if x.proto == protoLocal {
		x.verdict = decideLocal(x.policy, x.target.Port)
	} else {
		x.verdict = x.policy.Decide(x.target)
	}
	if !x.verdict.Allow {
		return x.denied(x.verdict)
	}
	return nil
}

// named returns t with the name that its address stands for, whatever way the
// address came in. The address itself leads nowhere.
func (p *DomainProxy) named(t policy.Target) policy.Target {
	if p.opts.NameOf == nil || !t.Addr.IsValid() || !policy.FakeRange.Contains(t.Addr) {
		return t
	}
	if name, ok := p.opts.NameOf(t.Addr); ok {
		return policy.Target{Host: name, Port: t.Port}
	}
	return t
}

// admit decides the target and takes a place. A refusal needs no place.
func (x *exchange) admit() *refusal {
	if refused := x.decide(); refused != nil {
		return refused
	}
	return x.enter()
}

// enter takes a place. A policy that came in the meantime decides again: from
// now on SetPolicy finds x by itself.
func (x *exchange) enter() *refusal {
	if !x.p.enter(x) {
		return x.tooMany()
	}
	if x.p.policy.Load() != x.policy {
		return x.decide()
	}
	return nil
}

// aim reads the target from the request target of h.
func (x *exchange) aim(h *head) (err error) {
	x.method, x.uri = h.method, h.uri
	if h.method == http.MethodConnect {
		x.proto = protoConnect
		x.target, err = policy.ParseTarget(h.uri)
		return err
	}
	rest, ok := cutScheme(h.uri)
	if !ok {
		return errNotProxied
	}
	if x.target, err = policy.ParseTarget(httpAuthority(rest)); err != nil {
		return err
	}
	if strings.Contains(h.uri, "#") {
		return errFragment
	}
	return nil
}

var (
	errFragment   = errors.New("target has a fragment; write the URL without '#'")
	errNotProxied = errors.New("this is a proxy; send CONNECT host:port or an http:// URL")
)

// cutScheme cuts "http://" from the target of a request in absolute form.
func cutScheme(uri string) (rest string, ok bool) {
	const scheme = "http://"
	if len(uri) < len(scheme) || !strings.EqualFold(uri[:len(scheme)], scheme) {
		return "", false
	}
	return uri[len(scheme):], true
}

// httpAuthority returns the authority at the beginning of rest, with the port of
// http when it has none.
func httpAuthority(rest string) string {
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	if strings.LastIndexByte(rest, ':') <= strings.LastIndexByte(rest, ']') {
		rest += ":80"
	}
	return rest
}

// sameHost reports whether the Host header of h names the target. HTTP/1.0 needs
// none.
func (x *exchange) sameHost(h *head) bool {
	if h.hosts == 0 {
		return h.minor == '0'
	}
	t, err := policy.ParseTarget(httpAuthority(h.host))
	return err == nil && x.p.named(t) == x.p.named(x.target)
}

// logDecision writes the first line of the request, once.
func (x *exchange) logDecision(allow bool, reason policy.Reason) {
	if x.logged {
		return
	}
	x.logged = true
	d := x.decided
	d.event = x.event("decision")
	if d.Host == "" {
		d.Host = clean(x.uri, maxSubject)
	}
	d.Reason, d.Decision, d.WouldDeny = reason, "deny", x.verdict.WouldDeny
	if d.Rule == "" {
		d.Rule = x.verdict.Rule
	}
	if allow {
		d.Decision = "allow"
	}
	x.p.metrics.decision(x.proto, d.Decision, reason, d.WouldDeny)
	x.p.audit.write(&d)
}

// logAllowed is logDecision for a target that may be dialled.
func (x *exchange) logAllowed() { x.logDecision(true, x.verdict.Reason) }

// logEnd writes the last line of a request that was allowed.
func (x *exchange) logEnd(up, down int64, reason string) {
	if errors.Is(context.Cause(x.ctx), errRevoked) {
		reason = "revoked"
	}
	e := x.ended
	e.event = x.event("close")
	e.BytesUp, e.BytesDown, e.CloseReason = up, down, reason
	e.DurationMillis = millis(time.Since(x.begun))
	x.p.metrics.closed(x.proto, up, down, reason)
	x.p.audit.write(&e)
}

func (x *exchange) event(name string) event {
	return event{
		Time:      time.Now().Format(time.RFC3339Nano),
		Container: x.p.opts.Container,
		ID:        x.id,
		Event:     name,
		Proto:     x.proto,
		Host:      x.target.Host,
		Port:      x.target.Port,
		UID:       x.uid,
	}
}
