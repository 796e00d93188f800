package proxy

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"eggrun/policy"
)

// exchange is one client request on its way through the proxy.
type exchange struct {
	p       *DomainProxy
	w       http.ResponseWriter // nil, as r is, once a tunnel has begun
	r       *http.Request
	method  string
	uri     string // the request target as it was sent
	begun   time.Time
	id      string
	proto   string // connect or http
	target  policy.Target
	decided decided
	ended   ended
}

// ServeHTTP serves one request: a CONNECT, or a request for a plain http URL in
// absolute form. Every other request is answered by 405. The connection is
// closed after each request, so the next one is decided anew.
//
// The target comes from the request line as the client sent it, not from what
// net/http makes of it: that takes user information, ports beyond 65535 and a
// Host header instead of a target.
func (p *DomainProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{
		p: p, w: w, r: r,
		method: r.Method,
		uri:    r.RequestURI,
		begun:  time.Now(),
		id:     p.prefix + "-" + strconv.FormatUint(p.serial.Add(1), 10),
		proto:  "http",
	}
	if x.method == http.MethodConnect {
		x.proto = "connect"
	}
	if refused := x.admit(); refused != nil {
		x.refuse(refused)
		return
	}
	if !p.enter() {
		x.refuse(x.tooMany())
		return
	}
	if x.proto == "connect" {
		x.connect()
		return
	}
	defer p.leave()
	x.forward()
}

// admit parses the request and decides it. It asks nobody anything.
func (x *exchange) admit() *refusal {
	host, found, err := checkHead(x.r.Context())
	if err != nil {
		return x.badRequest("bad_head", err)
	}
	authority := x.uri
	if x.proto == "http" {
		rest, ok := cutScheme(authority)
		if !ok {
			return x.notProxied()
		}
		authority = httpAuthority(rest)
	}
	if x.target, err = policy.ParseTarget(authority); err != nil {
		return x.badRequest("bad_target", err)
	}
	if x.proto == "http" {
		if strings.Contains(x.uri, "#") {
			return x.badRequest("bad_target", errFragment)
		}
		if found && !x.sameHost(host) {
			return x.badRequest("host_differs", errHostDiffers)
		}
	}
	d := x.p.opts.Allowlist.Decide(x.target)
	x.decided.Rule = d.Rule
	if !d.Allow {
		return x.denied(d)
	}
	return nil
}

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

// sameHost reports whether the Host header names the target. HTTP/1.0 needs
// none.
func (x *exchange) sameHost(host string) bool {
	if host == "" {
		return !x.r.ProtoAtLeast(1, 1)
	}
	t, err := policy.ParseTarget(httpAuthority(host))
	return err == nil && t == x.target
}

// reach resolves, vets and dials the target, which has been allowed, and writes
// the decision to the audit. On success it has been tracked: see drop.
func (x *exchange) reach(ctx context.Context) (net.Conn, *refusal) {
	asked := time.Now()
	addrs, err := x.p.resolve(ctx, x.target)
	x.decided.DNSMillis = millis(time.Since(asked))
	if err != nil {
		x.logDecision(true, policy.ReasonAllowed)
		status, words := lookupFault(err)
		return nil, x.gateway(status, "lookup", words)
	}
	good, refused := x.vet(addrs)
	if refused != nil {
		return nil, refused
	}
	x.logDecision(true, policy.ReasonAllowed)
	dialed := time.Now()
	conn, to, err := x.p.race(ctx, good, x.target.Port)
	x.ended.ConnectMillis = millis(time.Since(dialed))
	if err != nil {
		status, words := dialFault(err)
		return nil, x.gateway(status, "connect", words)
	}
	x.ended.Dialed = to.String()
	x.p.track(conn)
	return conn, nil
}

// vet drops the addresses that may not be dialled. It refuses when none is left:
// one public address beside a private one is a name that is set up badly, but
// nothing can be reached through it that is not allowed.
func (x *exchange) vet(addrs []netip.Addr) ([]netip.Addr, *refusal) {
	own, err := x.p.opts.OwnAddrs()
	if err != nil {
		x.logDecision(true, policy.ReasonAllowed)
		return nil, x.gateway(502, "own_addresses", "proxy does not know its own addresses")
	}
	var good []netip.Addr
	var last policy.Decision
	for _, addr := range addrs {
		addr = addr.Unmap()
		x.decided.Addresses = append(x.decided.Addresses, addr.String())
		d := policy.VetAddr(x.p.opts.Allowlist, addr, x.target.Port, own...)
		if d.Allow {
			good = append(good, addr)
			continue
		}
		x.decided.Refused = append(x.decided.Refused, addr.String()+" "+d.Rule)
		last = d
	}
	if len(good) == 0 {
		x.decided.Rule = last.Rule
		return nil, x.denied(last)
	}
	return good, nil
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
	}
}

// logDecision writes the first line of the request. It is called once.
func (x *exchange) logDecision(allow bool, reason policy.Reason) {
	d := x.decided
	d.event = x.event("decision")
	if d.Host == "" {
		d.Host = clean(x.uri, maxSubject)
	}
	d.Reason, d.Decision = reason, "deny"
	if allow {
		d.Decision = "allow"
	}
	x.p.audit.write(&d)
}

// logEnd writes the last line of a request that was allowed.
func (x *exchange) logEnd(up, down int64, reason string) {
	e := x.ended
	e.event = x.event("close")
	e.BytesUp, e.BytesDown, e.CloseReason = up, down, reason
	e.DurationMillis = millis(time.Since(x.begun))
	x.p.audit.write(&e)
}
