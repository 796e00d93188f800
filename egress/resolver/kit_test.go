package resolver

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"eggrun/policy"

	"golang.org/x/net/dns/dnsmessage"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// rules returns a policy that allows domains.
func rules(t testing.TB, domains ...string) *policy.Policy {
	t.Helper()
	list, err := policy.ParseAllowlist(domains)
	if err != nil {
		t.Fatal(err)
	}
	return &policy.Policy{Domains: domains, Allowlist: list}
}

// newServer returns a server that is closed when the test ends.
func newServer(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// question returns a query in wire format.
func question(t testing.TB, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	qname, err := dnsmessage.NewName(name + ".")
	if err != nil {
		t.Fatal(err)
	}
	message := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 4711, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: qname, Type: kind, Class: dnsmessage.ClassINET}},
	}
	return pack(t, message)
}

func pack(t testing.TB, message dnsmessage.Message) []byte {
	t.Helper()
	wire, err := message.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func unpack(t testing.TB, wire []byte) dnsmessage.Message {
	t.Helper()
	var message dnsmessage.Message
	if err := message.Unpack(wire); err != nil {
		t.Fatalf("unpack %x: %v", wire, err)
	}
	return message
}

// exchange gives msg to s and returns its answer, also when the engine's resolver
// has to be asked; nil when there is none.
func exchange(msg []byte, s *Server) []byte {
	q, r, ask, ok := s.handle(msg)
	if !ok {
		return nil
	}
	if ask != nil {
		r = ask(context.Background())
	}
	return q.pack(r, q.udpSize)
}

// outcome is an answer in the fewest words: the code and the data of its records.
func outcome(t testing.TB, wire []byte) string {
	t.Helper()
	message := unpack(t, wire)
	words := []string{strings.TrimPrefix(message.RCode.String(), "RCode")}
	for _, r := range message.Answers {
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			words = append(words, netip.AddrFrom4(body.A).String())
		case *dnsmessage.AAAAResource:
			words = append(words, netip.AddrFrom16(body.AAAA).String())
		case *dnsmessage.PTRResource:
			words = append(words, body.PTR.String())
		default:
			words = append(words, r.Header.Type.String())
		}
	}
	return strings.Join(words, " ")
}

// lookup asks s for a name and returns the outcome.
func lookup(t testing.TB, s *Server, name string, kind dnsmessage.Type) string {
	t.Helper()
	return outcome(t, exchange(question(t, name, kind), s))
}

// lines collects what a server tells of.
type lines struct {
	mu   sync.Mutex
	list []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, line)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

func (l *lines) denied(name string, kind dnsmessage.Type) {
	l.add(name + " " + strings.TrimPrefix(kind.String(), "Type"))
}

// clock is a clock that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1e9, 0)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// zone is an engine's resolver: its names, each with addresses or, for reverse
// names, a name. Names with an empty list exist without addresses.
type zone struct {
	records map[string][]string
	asked   lines
	// change, when set, has the last word on an answer.
	change func(*dnsmessage.Message)
}

var errSilent = errors.New("no answer")

func (z *zone) Exchange(_ context.Context, wire []byte) ([]byte, error) {
	answer := z.answer(wire)
	if answer == nil {
		return nil, errSilent
	}
	return answer, nil
}

func (z *zone) answer(wire []byte) []byte {
	var message dnsmessage.Message
	if message.Unpack(wire) != nil || len(message.Questions) != 1 || len(message.Additionals) != 0 {
		return nil
	}
	q := message.Questions[0]
	name := strings.TrimSuffix(q.Name.String(), ".")
	z.asked.denied(name, q.Type)
	message.Response = true
	list, ok := z.records[name]
	if !ok {
		message.RCode = dnsmessage.RCodeNameError
	}
	for _, text := range list {
		header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 600}
		var body dnsmessage.ResourceBody
		addr, err := netip.ParseAddr(text)
		switch {
		case err != nil:
			body = &dnsmessage.PTRResource{PTR: dnsmessage.MustNewName(text)}
			header.Type = dnsmessage.TypePTR
		case addr.Is4():
			body = &dnsmessage.AResource{A: addr.As4()}
			header.Type = dnsmessage.TypeA
		default:
			body = &dnsmessage.AAAAResource{AAAA: addr.As16()}
			header.Type = dnsmessage.TypeAAAA
		}
		if header.Type == q.Type {
			message.Answers = append(message.Answers, dnsmessage.Resource{Header: header, Body: body})
		}
	}
	if z.change != nil {
		z.change(&message)
	}
	answer, err := message.Pack()
	if err != nil {
		return nil
	}
	return answer
}

// inPeers is an [Engine.IsPeer] for 10.77.0.0/16 and fd77::/16.
func inPeers(addr netip.Addr) bool {
	return netip.MustParsePrefix("10.77.0.0/16").Contains(addr) || netip.MustParsePrefix("fd77::/16").Contains(addr)
}
