package proxy

import (
	"bytes"
	"io"
	"net"
	"net/http"
)

// established is written in one piece: several small ones meet Nagle's algorithm
// and the client's delayed acknowledgement, 35 ms a tunnel.
const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// connect serves a CONNECT whose target has been allowed. It returns at once, so
// that net/http lets go of its buffers: the tunnel is a goroutine of its own.
func (x *exchange) connect() {
	client, early, err := x.hijack()
	if err != nil {
		defer x.p.leave()
		x.logDecision(true, "allowed")
		x.refuseThrough(x.gateway(http.StatusInternalServerError, "no_hijack", "server cannot tunnel"))
		return
	}
	x.w, x.r = nil, nil
	go func() {
		defer x.p.leave()
		x.tunnel(client, early)
	}()
}

// hijack takes the connection from net/http, with the bytes that the client sent
// behind the head. The connection is tracked: see drop.
func (x *exchange) hijack() (client net.Conn, early []byte, err error) {
	conn, buffered, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, _ = buffered.Reader.Peek(buffered.Reader.Buffered())
	early = bytes.Clone(early)
	if wrapped, ok := conn.(*headConn); ok {
		conn = wrapped.Conn
	}
	x.p.track(conn)
	return conn, early, nil
}

// tunnel connects client to the target and relays until both sides have ended.
func (x *exchange) tunnel(client net.Conn, early []byte) {
	upstream, refused := x.reach(x.p.ctx)
	if refused != nil {
		x.refuseOn(client, refused)
		return
	}
	defer x.p.drop(client)
	defer x.p.drop(upstream)
	if _, err := io.WriteString(client, established); err != nil {
		x.logEnd(0, 0, endReason(err))
		return
	}
	if _, err := upstream.Write(early); err != nil {
		x.logEnd(0, 0, endReason(err))
		return
	}
	up, down, reason := relay(client, upstream)
	x.logEnd(int64(len(early))+up, down, reason)
}
