package resolver

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"eggrun/policy"

	"golang.org/x/net/dns/dnsmessage"
)

// canned is an engine's resolver that always gives the same bytes, behind the id
// and the bit that make them an answer.
type canned []byte

func (c canned) Exchange(_ context.Context, query []byte) ([]byte, error) {
	answer := bytes.Clone(c)
	if len(answer) > 2 {
		copy(answer, query[:2])
		answer[2] |= bitResponse >> 8
	}
	return answer, nil
}

// FuzzDNSMessage gives the server any message of a client, and any answer of the
// engine's resolver.
func FuzzDNSMessage(f *testing.F) {
	z := newZone()
	for _, name := range []string{"good.test", "GOOD.test", "x.wild.test", "evil.test", "db", "dual", "2.0.18.198.in-addr.arpa", "5.0.77.10.in-addr.arpa", "localhost", ""} {
		for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypePTR, typeHTTPS} {
			msg := question(f, name, kind)
			f.Add(msg, z.answer(msg))
		}
	}
	withOPT := edited(f, func(m *dnsmessage.Message) { m.Additionals = []dnsmessage.Resource{opt(f, 4096, 0)} })
	f.Add(withOPT, withOPT)
	f.Fuzz(func(t *testing.T, msg, upstream []byte) {
		engine := Engine{Search: []string{"dns.podman"}, IsPeer: inPeers, Upstream: canned(upstream)}
		s := newServer(t, Options{Policy: rules(t, "good.test", "*.wild.test"), Engine: engine})
		wire := exchange(msg, s)
		if wire == nil {
			return
		}
		if len(wire) > ednsUDP {
			t.Fatalf("an answer of %d bytes", len(wire))
		}
		if len(msg) < headerLen || !bytes.Equal(wire[:2], msg[:2]) || wire[2]&0x80 == 0 {
			t.Fatalf("%x answers %x", wire, msg)
		}
		if binary.BigEndian.Uint16(wire[4:]) == 1 {
			q, _, _ := parseQuery(msg)
			if end := headerLen + len(q.question); !bytes.Equal(wire[headerLen:end], msg[headerLen:end]) {
				t.Fatalf("%x does not repeat the question of %x", wire, msg)
			}
		}
		checkAnswers(t, wire)
	})
}

// checkAnswers: an address is one of a name that is allowed, a peer's, or
// loopback.
func checkAnswers(t *testing.T, wire []byte) {
	t.Helper()
	var parser dnsmessage.Parser
	if _, err := parser.Start(wire); err != nil {
		t.Fatalf("%x: %v", wire, err)
	}
	if err := parser.SkipAllQuestions(); err != nil {
		t.Fatalf("%x: %v", wire, err)
	}
	answers, err := parser.AllAnswers()
	if err != nil {
		t.Fatalf("%x: %v", wire, err)
	}
	for _, r := range answers {
		name := canonical(r.Header.Name.String())
		var addr netip.Addr
		switch body := r.Body.(type) {
		case *dnsmessage.AResource:
			addr = netip.AddrFrom4(body.A)
		case *dnsmessage.AAAAResource:
			addr = netip.AddrFrom16(body.AAAA)
		default:
			continue
		}
		isAllowed := name == "good.test" || strings.HasSuffix(name, ".wild.test")
		if isAllowed != policy.FakeRange.Contains(addr) || !isAllowed && !inPeers(addr) && !addr.IsLoopback() {
			t.Fatalf("%s has the address %v", name, addr)
		}
	}
}
