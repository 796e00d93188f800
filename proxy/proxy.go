// Package proxy is the way out of a container that has an allowlist: an HTTP
// proxy that takes CONNECT and plain HTTP requests, decides each one, and only
// then resolves and dials.
//
// The order is the point. A target is parsed from the bytes of the request line,
// strictly. It is decided by name, so what is denied is asked of no resolver. An
// allowed name is resolved once, every answer is vetted, and an answer that was
// vetted is dialled as an address, so no second lookup can give another one.
// Every front end goes through the same decision.
package proxy

import (
	"context"
	"errors"
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
	maxHead       = 16 << 10
	lookupTimeout = 10 * time.Second
	dialTimeout   = 10 * time.Second
	// defaultTunnels is above what npm opens at once for a big install (about
	// 2000), so that a cap is met by runaways only.
	defaultTunnels = 4096
)

// Options says what a proxy allows and what it works with. The zero Options
// deny everything.
type Options struct {
	// Allowlist decides. nil denies everything.
	Allowlist *policy.Allowlist
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
	// MaxTunnels is how many requests are served at once; the next ones get a
	// 503. 0 means 4096. A tunnel holds two descriptors when it idles, six when
	// it has carried a megabyte in both directions: RLIMIT_NOFILE should fit.
	MaxTunnels int
}

// DomainProxy is an HTTP proxy that connects to nothing but what its allowlist
// names. It is an [http.Handler] as well as a server of its own.
type DomainProxy struct {
	opts   Options
	server *http.Server
	audit  *auditLog
	prefix string // of request ids
	serial atomic.Uint64
	port   atomic.Int32

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	open   int                   // requests being served, at most MaxTunnels
	conns  map[net.Conn]struct{} // taken from the server, and upstream
	work   sync.WaitGroup        // one for each open request

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
	p := New(Options{Allowlist: list})
	p.setPort(l)
	go func() { _ = p.Serve(l) }()
	return p, nil
}

// New returns a proxy that listens nowhere yet; see [DomainProxy.Serve]. Call
// Close when it is no longer needed.
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
	if opts.Dial == nil {
		opts.Dial = vettingDialer(opts.Allowlist).DialContext
	}
	p := &DomainProxy{
		opts:   opts,
		audit:  startAudit(opts.Audit),
		prefix: newPrefix(),
		conns:  make(map[net.Conn]struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.server = &http.Server{
		Handler:           p,
		ReadHeaderTimeout: headTimeout,
		MaxHeaderBytes:    maxHead - 4<<10, // net/http adds 4 KiB
		ErrorLog:          log.New(io.Discard, "", 0),
		BaseContext:       func(net.Listener) context.Context { return p.ctx },
		ConnContext:       withHead,
		Protocols:         new(http.Protocols),
		// "OPTIONS *" is for this server to refuse, not for net/http to answer.
		DisableGeneralOptionsHandler: true,
	}
	p.server.Protocols.SetHTTP1(true)
	return p
}

// Serve accepts and serves clients on l until Close, and closes l. It returns
// nil after Close, and the error of l otherwise. It may be called for several
// listeners at the same time.
func (p *DomainProxy) Serve(l net.Listener) error {
	p.setPort(l)
	if err := p.server.Serve(headListener{l}); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (p *DomainProxy) setPort(l net.Listener) {
	if addr, ok := l.Addr().(*net.TCPAddr); ok {
		p.port.CompareAndSwap(0, int32(addr.Port))
	}
}

// Port returns the TCP port of the first listener, 0 when there is none yet.
func (p *DomainProxy) Port() int { return int(p.port.Load()) }

// Close stops listening, closes every live tunnel, and waits until the requests
// being served have ended and the audit is written. Closing again does nothing
// and returns the same error.
func (p *DomainProxy) Close() error {
	p.closing.Do(func() {
		p.mu.Lock()
		p.closed = true
		for conn := range p.conns {
			_ = conn.Close()
		}
		p.mu.Unlock()
		p.cancel()
		p.closeErr = p.server.Close()
		p.work.Wait()
		p.audit.close()
	})
	return p.closeErr
}

// enter takes one of the places for requests. Each true needs one leave.
func (p *DomainProxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.open >= p.opts.MaxTunnels {
		return false
	}
	p.open++
	p.work.Add(1)
	return true
}

func (p *DomainProxy) leave() {
	p.mu.Lock()
	p.open--
	p.mu.Unlock()
	p.work.Done()
}

// track has Close close conn, which may be now. Each track needs one drop.
func (p *DomainProxy) track(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = conn.Close()
		return
	}
	p.conns[conn] = struct{}{}
}

// drop closes conn and forgets it.
func (p *DomainProxy) drop(conn net.Conn) {
	p.mu.Lock()
	delete(p.conns, conn)
	p.mu.Unlock()
	_ = conn.Close()
}
