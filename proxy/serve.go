package proxy

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// Serve accepts and serves clients on l until Close, and closes l. Clients speak
// HTTP or SOCKS5; the first byte tells which. It returns nil after Close, and
// the error of l otherwise. It may be called for several listeners at the same
// time.
func (p *DomainProxy) Serve(l net.Listener) error {
	p.setPort(l)
	return p.accept(l, (*exchange).serveProxy)
}

// ServeTransparent is Serve for clients who do not know of the proxy: their
// connections were redirected to l by nftables. l must not be an MPTCP listener,
// whose connections do not know where they were going.
func (p *DomainProxy) ServeTransparent(l net.Listener) error {
	return p.accept(l, (*exchange).serveTransparent)
}

// ServeLocal is Serve for clients of a port of this machine's 127.0.0.1 that
// appears on theirs. The policy must have it among its LocalPorts.
func (p *DomainProxy) ServeLocal(l net.Listener, port uint16) error {
	return p.accept(l, func(x *exchange) { x.serveLocal(port) })
}

// Waits after an accept that failed for want of something.
const (
	acceptPause    = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

func (p *DomainProxy) accept(l net.Listener, serve func(*exchange)) error {
	defer func() { _ = l.Close() }()
	p.mu.Lock()
	closed := p.closed
	p.listeners[l] = struct{}{}
	p.mu.Unlock()
	if closed {
		return nil
	}
	defer func() {
		p.mu.Lock()
		delete(p.listeners, l)
		p.mu.Unlock()
	}()
	pause := acceptPause
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause = acceptPause
			p.serveConn(conn, serve)
		case p.ctx.Err() != nil:
			return nil
		case !passes(err):
			return err
		default:
			// The connection waits in the backlog until a descriptor is free.
			p.metrics.add("eggrun_accept_pauses_total", "", 1)
			select {
			case <-time.After(pause):
			case <-p.ctx.Done():
			}
			pause = min(2*pause, maxAcceptPause)
		}
	}
}

// passes reports whether accept4(2) may do better later.
func passes(err error) bool {
	for _, code := range []syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EPERM, syscall.EPROTO,
	} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// serveConn serves one connection in a goroutine of its own, once there is room
// for it: a client that asks for nothing has no place, but costs memory. What
// waits meanwhile waits in the kernel, for headTimeout at most.
func (p *DomainProxy) serveConn(conn net.Conn, serve func(*exchange)) {
	select {
	case p.conns <- struct{}{}:
	case <-p.ctx.Done():
		_ = conn.Close()
		return
	}
	if !p.begin() {
		<-p.conns
		_ = conn.Close()
		return
	}
	go func() {
		defer p.work.Done()
		defer func() { <-p.conns }()
		x := p.newExchange()
		defer x.end()
		x.attach(&inbox{Conn: conn})
		serve(x)
	}()
}

// serveProxy serves a client that knows that it talks to a proxy.
func (x *exchange) serveProxy() {
	x.user(x.in.LocalAddr())
	_ = x.in.SetReadDeadline(x.begun.Add(headTimeout))
	if err := x.in.more(maxHead); err != nil {
		return // nothing was asked
	}
	if x.in.buf[0] == socksVersion {
		x.serveSOCKS()
		return
	}
	x.serveHTTP()
}
