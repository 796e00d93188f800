package resolver

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"eggrun/policy"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// askTime is how long a client waits for the engine's resolver. It asks us
	// again after five seconds (resolv.conf(5)).
	askTime = 4 * time.Second
	// maxUnknown is how many names that turn out to be nobody's a container may
	// have asked. Each is a label of data that may get out.
	maxUnknown = 50
	// maxKnown bounds the memory for names that are somebody's.
	maxKnown = 4096
	// maxAnswers is how many records of an answer are passed on.
	maxAnswers = 100
)

// Upstream asks the engine's resolver.
type Upstream interface {
	// Exchange sends a message in wire format and returns the answer, which the
	// caller checks: it may be to another question, or garbage.
	Exchange(ctx context.Context, query []byte) ([]byte, error)
}

// peerQuestion returns the way to ask the engine's resolver whether q.name is a
// peer's, or nil where the question may not be passed on.
func (s *Server) peerQuestion(q query, rules *policy.Policy, engine Engine) func(context.Context) reply {
	if engine.Upstream == nil || engine.IsPeer == nil {
		return nil
	}
	if addr, ok := reverse(q.name); ok {
		if !engine.IsPeer(addr) || !s.peerNames.admit(q.name) {
			return nil
		}
		return func(ctx context.Context) reply { return s.askPointer(ctx, engine, q) }
	}
	if !isPeerForm(q.name, rules, engine.Search) || !s.peerNames.admit(q.name) {
		return nil
	}
	return func(ctx context.Context) reply { return s.askAddresses(ctx, engine, q) }
}

// isPeerForm reports whether name could be a peer's: one label, one label below a
// search domain, or a name that the policy calls one. More labels, or a zone of
// the container's choice, would let it say anything to anybody.
func isPeerForm(name string, rules *policy.Policy, search []string) bool {
	label, domain, more := strings.Cut(name, ".")
	if len(label) <= maxLabel && (!more || slices.Contains(search, domain)) {
		return true
	}
	return rules != nil && slices.ContainsFunc(rules.PeerNames, func(peer string) bool { return canonical(peer) == name })
}

// askAddresses answers for a name that may be a peer's. It is one if it has
// addresses, of either kind: musl takes NXDOMAIN for AAAA as one for A.
func (s *Server) askAddresses(ctx context.Context, engine Engine, q query) reply {
	kinds := []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA}
	if q.qtype == dnsmessage.TypeAAAA {
		slices.Reverse(kinds)
	}
	for _, kind := range kinds {
		answers, err := ask(ctx, engine, q.name, kind)
		if err != nil {
			return reply{code: dnsmessage.RCodeServerFailure}
		}
		if len(answers) == 0 {
			continue
		}
		s.peerNames.found(q.name)
		if kind != q.qtype {
			answers = nil
		}
		return reply{answers: answers}
	}
	return reply{code: dnsmessage.RCodeNameError}
}

// askPointer answers for the reverse name of a peer's address.
func (s *Server) askPointer(ctx context.Context, engine Engine, q query) reply {
	answers, err := ask(ctx, engine, q.name, dnsmessage.TypePTR)
	if err != nil {
		return reply{code: dnsmessage.RCodeServerFailure}
	}
	if len(answers) == 0 {
		return reply{code: dnsmessage.RCodeNameError}
	}
	s.peerNames.found(q.name)
	if q.qtype != dnsmessage.TypePTR {
		answers = nil
	}
	return reply{answers: answers}
}

// ask asks the engine's resolver and returns what counts of its answer. Nothing
// of the client's message is sent but the name, in lower case: its id, its flags
// and the case of its letters could carry data.
func ask(ctx context.Context, engine Engine, name string, kind dnsmessage.Type) ([]record, error) {
	qname, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return nil, err
	}
	question := dnsmessage.Question{Name: qname, Type: kind, Class: dnsmessage.ClassINET}
	message := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: uint16(rand.Uint32()), RecursionDesired: true},
		Questions: []dnsmessage.Question{question},
	}
	wire, err := message.Pack()
	if err != nil {
		return nil, err
	}
	response, err := engine.Upstream.Exchange(ctx, wire)
	if err != nil {
		return nil, err
	}
	return readAnswer(response, message.Header.ID, question, engine.IsPeer)
}

var errUpstream = errors.New("the engine's resolver gave no usable answer")

// readAnswer returns the addresses or names of an answer, or none when one of its
// addresses is no peer's: then the engine's resolver has asked the world.
func readAnswer(msg []byte, id uint16, asked dnsmessage.Question, isPeer func(netip.Addr) bool) ([]record, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(msg)
	if err != nil || !isAnswer(msg, id) {
		return nil, errUpstream
	}
	question, err := parser.Question()
	if err != nil || question.Type != asked.Type || canonical(question.Name.String()) != canonical(asked.Name.String()) {
		return nil, errUpstream
	}
	switch header.RCode {
	case dnsmessage.RCodeSuccess:
	case dnsmessage.RCodeNameError, dnsmessage.RCodeRefused:
		return nil, nil
	default:
		return nil, errUpstream
	}
	if parser.SkipAllQuestions() != nil {
		return nil, errUpstream
	}
	var found []record
	for {
		r, err := parser.Answer()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return found, nil
		}
		if err != nil {
			return nil, errUpstream
		}
		a, ok := peerRecord(r, isPeer)
		if !ok {
			return nil, nil
		}
		if a.kind == asked.Type && len(found) < maxAnswers {
			found = append(found, a)
		}
	}
}

// peerRecord returns what is passed on of one record, a record of no kind for one
// that doesn't matter, and false for an address that is no peer's.
func peerRecord(r dnsmessage.Resource, isPeer func(netip.Addr) bool) (record, bool) {
	ttl := min(r.Header.TTL, fakeTTL)
	switch body := r.Body.(type) {
	case *dnsmessage.AResource:
		addr := netip.AddrFrom4(body.A)
		return address(addr, ttl), isPeer(addr)
	case *dnsmessage.AAAAResource:
		// A mapped address is one of IPv4 in disguise, and no answer has it.
		addr := netip.AddrFrom16(body.AAAA)
		return address(addr, ttl), !addr.Is4In6() && isPeer(addr)
	case *dnsmessage.PTRResource:
		if name := canonical(body.PTR.String()); isHostName(name) {
			return pointer(name, ttl), true
		}
	}
	return record{}, true
}

// peerNames remembers which names the engine's resolver was asked for.
type peerNames struct {
	mu             sync.Mutex
	known, unknown map[string]struct{}
}

func newPeerNames() *peerNames {
	return &peerNames{known: make(map[string]struct{}), unknown: make(map[string]struct{})}
}

// admit reports whether name may be asked for. A new one counts as unknown from
// before it is asked, so that a thousand at once are no more than one by one.
func (p *peerNames) admit(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.known[name]
	_, unknown := p.unknown[name]
	if known || unknown {
		return true
	}
	if len(p.unknown) >= maxUnknown {
		return false
	}
	p.unknown[name] = struct{}{}
	return true
}

// found says that name is a peer's.
func (p *peerNames) found(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) < maxKnown {
		p.known[name] = struct{}{}
		delete(p.unknown, name)
	}
}
