package proxy

import (
	"context"
	"io"
	"net"
	"time"

	"eggrun/policy"
)

// Ports whose protocol is known, so that more than the target is looked at.
const (
	httpPort = 80
	tlsPort  = 443
)

// stream serves a connection of which nothing but its target is known, and that
// target has been allowed.
func (x *exchange) stream() {
	switch {
	case x.verdict.Opaque:
		x.tunnel()
	case x.target.Port == httpPort:
		x.promise(func() { x.plain(false) })
	case x.target.Port == tlsPort && !x.target.Addr.IsValid() && x.policy.SNI != policy.SNIOff:
		x.promise(x.tunnelTLS)
	default:
		x.tunnel()
	}
}

// tunnel connects the client to the target and relays.
func (x *exchange) tunnel() {
	if refused := x.reach(); refused != nil {
		x.refuse(refused)
		return
	}
	if x.established() {
		x.relay()
	}
}

// promise tells the client to go on before the target is dialled, because what
// it sends decides whether it is. The name is resolved first: what goes wrong
// behind this point cannot be put into words any more.
func (x *exchange) promise(next func()) {
	if refused := x.find(); refused != nil {
		x.refuse(refused)
		return
	}
	if x.established() {
		x.voice = voiceRaw
		next()
	}
}

// tunnelTLS is tunnel for a target that sees the TLS greeting only when the name
// in it agrees.
func (x *exchange) tunnelTLS() {
	refused, err := x.checkHello()
	if err != nil {
		x.abandoned(err)
		return
	}
	if refused == nil {
		refused = x.dial()
	}
	if refused != nil {
		x.refuse(refused)
		return
	}
	x.relay()
}

// established tells the client to go on. It reports false, and x is at its end,
// when the client does not hear it.
func (x *exchange) established() bool {
	_ = x.in.SetDeadline(time.Time{})
	var err error
	// Each in one piece: several small ones meet Nagle's algorithm and the
	// client's delayed acknowledgement, 35 ms a tunnel.
	switch x.voice {
	case voiceHTTP:
		_, err = io.WriteString(x.in, "HTTP/1.1 200 Connection established\r\n\r\n")
	case voiceSOCKS:
		_, err = x.in.Write(socksReply(socksGranted))
	}
	if err != nil {
		x.logAllowed()
		x.logEnd(0, 0, endReason(err))
	}
	return err == nil
}

// abandoned is the end of a client that was allowed and sent nothing.
func (x *exchange) abandoned(err error) {
	x.logAllowed()
	reason := "eof"
	if isTimeout(err) {
		reason = "timeout"
	}
	x.logEnd(0, 0, reason)
}

// relay passes what each side has sent early, and then everything.
func (x *exchange) relay() {
	_ = x.in.SetDeadline(time.Time{})
	up, down, reason := relay(x.in.Conn, x.upstream, x.sendEarly, x.sendLate)
	x.logEnd(up, down, reason)
}

// sendEarly passes what the client has sent already, and of a TLS greeting all
// behind which another one could come. An idle tunnel keeps no buffer.
func (x *exchange) sendEarly() (sent int64, err error) {
	if x.heard != nil {
		sent, err = x.sendGreeting()
	}
	if err == nil && len(x.in.buf) > 0 {
		var n int
		n, err = x.upstream.Write(x.in.buf)
		sent += int64(n)
	}
	x.in.buf = nil
	return sent, err
}

func (x *exchange) sendLate() (int64, error) {
	if len(x.late) == 0 {
		return 0, nil
	}
	n, err := x.in.Write(x.late)
	x.late = nil
	return int64(n), err
}

// closeWithExchange closes conn when x ends, which may be now.
func (x *exchange) closeWithExchange(conn net.Conn) {
	context.AfterFunc(x.ctx, func() { _ = conn.Close() })
}
