// Package proxy is the way out of a container that has a policy: it takes
// CONNECT, plain HTTP requests, SOCKS5 and connections that were redirected to
// it, decides each one, and only then resolves and dials.
//
// The order is the point. A target is parsed from the client's bytes, strictly.
// It is decided by name, so what is denied is asked of no resolver. On port 443
// the name in the TLS greeting is held to it, on port 80 the Host header of the
// one request that a connection may carry. An allowed name is resolved once,
// every answer is vetted, and an answer that was vetted is dialled as an address,
// so no second lookup can give another one. Every front end goes through the
// same decision.
package proxy

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"eggrun/policy"
)

const (
	headTimeout   = 10 * time.Second
	lookupTimeout = 10 * time.Second
	dialTimeout   = 10 * time.Second
	quietAfter    = 3 * time.Second
	// defaultTunnels is above what npm opens at once for a big install (about
	// 2000), so that a cap is met by runaways only.
	defaultTunnels = 4096
)

// Options says what a proxy allows and what it works with. The zero Options
// deny everything.
type Options struct {
	// Policy decides, until SetPolicy gives another one. nil denies everything.
	Policy *policy.Policy
	// Audit receives one JSON line for each decision and one for the end of each
	// allowed request; nil means none. A line is one Write. Lines are written by
	// a goroutine of their own and dropped, and counted, when it falls behind.
	Audit io.Writer
	// Container is the container id in the audit.
	Container string
	// Lookup resolves a name that is allowed, once for each request. It must
	// honour ctx. nil is Go's own resolver, which appends search domains to single
	// labels only.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Dial connects to an address that has been vetted: network is "tcp", address
	// an IP address and port. It must honour ctx. nil is a net.Dialer that vets
	// the address a second time before it connects.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// OwnAddrs lists the addresses of the machine that dials. They are refused
	// unless a rule names them exactly. It is asked at each dial, because
	// addresses come and go; its error refuses the request. nil asks the kernel.
	OwnAddrs func() ([]netip.Addr, error)
	// NameOf returns the name that an address of 198.18.0.0/15 stands for. nil
	// knows none.
	NameOf func(netip.Addr) (name string, ok bool)
	// OriginalDst returns where the client of ServeTransparent wanted to go. nil
	// asks the kernel.
	OriginalDst func(net.Conn) (netip.AddrPort, error)
	// UIDOf returns the user of the socket with this local and remote address in
	// the clients' network namespace; remote is where the client wanted to go,
	// not the listener. It is asked once a connection, for the audit. nil knows
	// none.
	UIDOf func(local, remote netip.AddrPort) (uid int, ok bool)
	// MaxTunnels is how many requests are served at once; the next ones get a
	// 503. 0 means 4096. A tunnel holds two descriptors when it idles, six when
	// it has carried a megabyte in both directions: RLIMIT_NOFILE should fit.
	// As many again may be about to ask, or be told no; more wait to be accepted.
	MaxTunnels int
	// Quiet is called when for some seconds no request has begun or ended, in a
	// goroutine of its own: the moment to give memory back, of tunnels that idle
	// too. nil does nothing.
	Quiet func()
}

// DomainProxy is a proxy that connects to nothing but what its policy names. It
// is an [http.Handler] as well as a server of its own.
type DomainProxy struct {
	opts    Options
	policy  atomic.Pointer[policy.Policy]
	server  *http.Server // for plain HTTP behind its head
	audit   *auditLog
	metrics metrics
	prefix  string // of request ids
	serial  atomic.Uint64
	port    atomic.Int32

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	conns chan struct{} // one in it for each connection to Serve and the like

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
	live      map[*exchange]place // those that hold a place, at most MaxTunnels
	quiet     *time.Timer         // until opts.Quiet, nil before the first request
	work      sync.WaitGroup      // one for each exchange

	closing  sync.Once
	closeErr error
}

// StartProxy starts a proxy for domains on a free port of 127.0.0.1; see
// [policy.ParseAllowlist] for their syntax. An empty list allows nothing. The
// error is that of the list or of listening.
//
// Whoever can connect to the port can use the proxy: it asks for no password.
func StartProxy(domains []string) (*DomainProxy, error) {
	list, err := policy.ParseAllowlist(domains)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	// MPTCP sockets do not know SO_ORIGINAL_DST and are slower to splice.
	lc.SetMultipathTCP(false)
	// The literal address: "localhost" may be ::1, or whatever /etc/hosts says.
	l, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("domain proxy: %w", err)
	}
	p := New(Options{Policy: &policy.Policy{Domains: domains, Allowlist: list, SNI: policy.SNIMatch}})
	p.setPort(l)
	go func() { _ = p.Serve(l) }()
	return p, nil
}

// New returns a proxy that listens nowhere yet; see [DomainProxy.Serve],
// [DomainProxy.ServeTransparent] and [DomainProxy.ServeLocal]. Call Close when it is no longer needed.
func New(opts Options) *DomainProxy {
	if opts.MaxTunnels <= 0 {
		opts.MaxTunnels = defaultTunnels
	}
	if opts.Lookup == nil {
		opts.Lookup = lookup
	}
	if opts.OwnAddrs == nil {
		opts.OwnAddrs = interfaceAddrs
	}
	if opts.OriginalDst == nil {
		opts.OriginalDst = originalDst
	}
	p := &DomainProxy{
		opts:      opts,
		audit:     startAudit(opts.Audit),
		conns:     make(chan struct{}, 2*opts.MaxTunnels),
		prefix:    newPrefix(),
		listeners: make(map[net.Listener]struct{}),
		live:      make(map[*exchange]place),
	}
	p.policy.Store(opts.Policy)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.server = &http.Server{
		Handler:     p,
		ErrorLog:    log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return p.ctx },
		ConnContext: withHandover,
		Protocols:   new(http.Protocols),
		// "OPTIONS *" is for this server to refuse, not for net/http to answer.
		DisableGeneralOptionsHandler: true,
	}
	p.server.Protocols.SetHTTP1(true)
	// One request a connection, whatever becomes of its headers: ReverseProxy
	// clears them behind an interim response.
	p.server.SetKeepAlivesEnabled(false)
	return p
}

func (p *DomainProxy) setPort(l net.Listener) {
	if addr, ok := l.Addr().(*net.TCPAddr); ok {
		p.port.CompareAndSwap(0, int32(addr.Port))
	}
}

// Port returns the TCP port of the first listener of Serve, 0 when there is none
// yet.
func (p *DomainProxy) Port() int { return int(p.port.Load()) }

// Close stops listening, closes every live tunnel, and waits until the requests
// being served have ended and the audit is written. Closing again does nothing
// and returns the same error.
func (p *DomainProxy) Close() error {
	p.closing.Do(func() {
		p.cancel() // before the listeners, so that Serve knows why they end
		p.mu.Lock()
		p.closed = true
		if p.quiet != nil {
			p.quiet.Stop()
		}
		for l := range p.listeners {
			_ = l.Close()
		}
		p.mu.Unlock()
		p.closeErr = p.server.Close()
		p.work.Wait()
		p.audit.close()
	})
	return p.closeErr
}

// begin counts x among what Close waits for. Each true needs one work.Done.
func (p *DomainProxy) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.work.Add(1)
	return true
}

// enter takes one of the places for requests. From then on, SetPolicy revokes x
// when its target is no longer allowed. x may enter again with another target.
func (p *DomainProxy) enter(x *exchange) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, again := p.live[x]; !again && (p.closed || len(p.live) >= p.opts.MaxTunnels) {
		return false
	}
	p.live[x] = place{target: x.target, local: x.proto == protoLocal}
	p.stir()
	return true
}

func (p *DomainProxy) leave(x *exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, x)
	p.stir()
}

// stir has opts.Quiet called when nothing begins or ends for a while. p.mu is held.
func (p *DomainProxy) stir() {
	switch {
	case p.opts.Quiet == nil || p.closed:
	case p.quiet == nil:
		p.quiet = time.AfterFunc(quietAfter, p.opts.Quiet)
	default:
		p.quiet.Reset(quietAfter)
	}
}
