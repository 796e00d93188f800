// Package resolver is the DNS server that a walled container asks, and the fake
// addresses with which it answers.
//
// A name that the policy allows gets an address of 198.18.0.0/15 that stands for
// it; the proxy, to which the namespace sends every connection to that range,
// asks the [Pool] for the name and dials that. So no answer of a real resolver
// ever reaches a container for an allowed name, and a name that is not allowed is
// asked of nobody: questions are a way out too. Only the names of peers, in a
// namespace with interfaces of its own, are passed to the engine's resolver,
// within bounds that leave no room for data.
package resolver

import (
	"context"
	"io"
	"net/netip"
	"strings"
	"sync"
	"time"

	"eggrun/policy"

	"golang.org/x/net/dns/dnsmessage"
)

// Options are what a [Server] needs.
type Options struct {
	// Policy says which names are allowed. Nil allows none.
	Policy *policy.Policy
	// Ledger has the fake addresses that were given out before, and gets those that
	// are. Nil: there is none, and no other server goes on with these.
	Ledger Ledger
	// Engine is what the container's engine brought. The zero Engine has no peers.
	Engine Engine
	// Denied is told of a name that is neither allowed nor a peer, once a minute
	// and at most for a hundred names a minute. Bytes that no host name has are
	// written \ddd. It is called while a client waits, so it may not block.
	Denied func(name string, qtype dnsmessage.Type)
	// Exhausted is told, once a minute a cause, of a name that is allowed but got
	// no fake address. It may not block.
	Exhausted func(name string, cause error)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Engine is what the container's engine brought with its network.
type Engine struct {
	// Search are the search domains of the resolv.conf that the engine wrote, as
	// [ParseConf] gives them: one label below them may be a peer.
	Search []string
	// IsPeer reports whether the container reaches an address directly. Nil: none.
	IsPeer func(netip.Addr) bool
	// Upstream asks the engine's resolver. Nil: there is none, and no peer has a
	// name.
	Upstream Upstream
}

// Server answers the questions of one network namespace.
type Server struct {
	pool      *Pool
	denied    func(string, dnsmessage.Type)
	exhausted func(string, error)
	// deniedOnce and exhaustedOnce keep a container from filling the audit.
	deniedOnce, exhaustedOnce *once
	peerNames                 *peerNames

	mu     sync.RWMutex
	policy *policy.Policy
	engine Engine

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	// asking and conns bound the questions to the engine's resolver and the TCP
	// connections at a time.
	asking, conns chan struct{}
	openMu        sync.Mutex
	open          map[io.Closer]struct{} // nil once closed
}

// New returns a server in whose pool every name that the policy names in full has
// an address.
func New(o Options) (*Server, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	pool, err := newPool(exactNames(o.Policy), o.Ledger, o.Now)
	if err != nil {
		return nil, err
	}
	s := &Server{
		pool:          pool,
		denied:        o.Denied,
		exhausted:     o.Exhausted,
		deniedOnce:    newOnce(o.Now),
		exhaustedOnce: newOnce(o.Now),
		peerNames:     newPeerNames(),
		policy:        o.Policy,
		engine:        o.Engine,
		asking:        make(chan struct{}, maxAsking),
		conns:         make(chan struct{}, maxConns),
		open:          make(map[io.Closer]struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

func exactNames(p *policy.Policy) []string {
	if p == nil {
		return nil
	}
	return p.Allowlist.ExactNames()
}

// Pool returns the server's fake addresses.
func (s *Server) Pool() *Pool { return s.pool }

// SetPolicy puts p in the place of the policy. Names that both know keep their
// addresses, and so do those that p has no longer.
func (s *Server) SetPolicy(p *policy.Policy) {
	// Where the ledger can't be written now, names are tried again when somebody
	// asks for them.
	_ = s.pool.addExact(exactNames(p))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policy = p
}

// SetEngine puts e in the place of what the engine brought: interfaces may come
// after the container was created. The caller closes the former Upstream.
func (s *Server) SetEngine(e Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine = e
}

// fakeTTL is how many seconds an answer with a fake address is good for. It could
// be for ever, but a reload may take the name away.
const fakeTTL = 60

// answer decides a question without asking anybody. A question that only the
// engine's resolver can answer comes back as ask, which may take seconds.
//
// Allowed names come first, so a peer that calls itself like one gets nothing.
func (s *Server) answer(q query) (r reply, ask func(context.Context) reply) {
	s.mu.RLock()
	rules, engine := s.policy, s.engine
	s.mu.RUnlock()
	if q.isHost {
		if r, ok := localhost(q); ok {
			return r, nil
		}
		if r, ok := s.fakePointer(q); ok {
			return r, nil
		}
		if rules.Names(q.name) {
			return s.allowed(q), nil
		}
		if ask := s.peerQuestion(q, rules, engine); ask != nil {
			return reply{}, ask
		}
	}
	return s.deny(q), nil
}

// localhost answers for the names that need no resolver, RFC 6761 section 6.3.
func localhost(q query) (reply, bool) {
	if q.name != "localhost" && !strings.HasSuffix(q.name, ".localhost") {
		return reply{}, false
	}
	for _, addr := range policy.LoopbackAddrs() {
		if a := address(addr, fakeTTL); a.kind == q.qtype {
			return reply{answers: []record{a}}, true
		}
	}
	return reply{}, true
}

// fakePointer answers for the reverse names of fake addresses that are in use.
func (s *Server) fakePointer(q query) (reply, bool) {
	addr, ok := reverse(q.name)
	if !ok {
		return reply{}, false
	}
	name, ok := s.pool.NameOf(addr)
	if !ok {
		return reply{}, false
	}
	if q.qtype != dnsmessage.TypePTR {
		return reply{}, true
	}
	return reply{answers: []record{pointer(name, fakeTTL)}}, true
}

// allowed answers for a name that is allowed: A is its fake address, and there is
// nothing else. AAAA would need a second range, which a host without IPv6 hasn't;
// HTTPS and SVCB would carry real addresses and keys for encrypted greetings.
func (s *Server) allowed(q query) reply {
	if q.qtype != dnsmessage.TypeA {
		return reply{}
	}
	addr, err := s.pool.AddrOf(q.name)
	if err != nil {
		if s.exhausted != nil && s.exhaustedOnce.first(err.Error()) {
			s.exhausted(q.name, err)
		}
		return reply{code: dnsmessage.RCodeServerFailure}
	}
	return reply{answers: []record{address(addr, fakeTTL)}}
}

// deny answers for a name that is neither allowed nor a peer. NXDOMAIN and not
// REFUSED, which musl reports as a broken resolver.
func (s *Server) deny(q query) reply {
	if s.denied != nil && s.deniedOnce.first(q.name) {
		s.denied(q.name, q.qtype)
	}
	return reply{code: dnsmessage.RCodeNameError, denied: true}
}

// once says which of many lines are written: each once a minute, and so many in
// all.
type once struct {
	now   func() time.Time
	mu    sync.Mutex
	since time.Time
	seen  map[string]struct{}
}

func newOnce(now func() time.Time) *once {
	return &once{now: now, since: now(), seen: make(map[string]struct{})}
}

func (o *once) first(line string) bool {
	const most = 100
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.now(); now.Sub(o.since) >= time.Minute {
		o.since = now
		clear(o.seen)
	}
	if _, ok := o.seen[line]; ok || len(o.seen) >= most {
		return false
	}
	o.seen[line] = struct{}{}
	return true
}
