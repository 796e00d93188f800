package resolver

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// edited returns a question for good.test with one thing changed.
func edited(t testing.TB, change func(*dnsmessage.Message)) []byte {
	t.Helper()
	message := unpack(t, question(t, "good.test", dnsmessage.TypeA))
	change(&message)
	return pack(t, message)
}

// opt returns the OPT record of a client that takes size bytes by UDP.
func opt(t testing.TB, size int, version uint32) dnsmessage.Resource {
	t.Helper()
	var header dnsmessage.ResourceHeader
	if err := header.SetEDNS0(size, dnsmessage.RCodeSuccess, false); err != nil {
		t.Fatal(err)
	}
	header.TTL |= version << 16
	return dnsmessage.Resource{Header: header, Body: &dnsmessage.OPTResource{}}
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{Policy: rules(t, "good.test")})
	good := question(t, "good.test", dnsmessage.TypeA)
	set := func(at int, b ...byte) []byte {
		msg := bytes.Clone(good)
		copy(msg[at:], b)
		return msg
	}
	additional := func(records ...dnsmessage.Resource) []byte {
		return edited(t, func(m *dnsmessage.Message) { m.Additionals = records })
	}
	for _, tt := range []struct {
		name string
		msg  []byte
		want string // "" for no answer
	}{
		{"good", good, "Success 198.18.0.2"},
		{"empty", nil, ""},
		{"half a header", good[:11], ""},
		{"an answer", set(2, 0x81), ""},
		{"no question", set(4, 0, 0), "FormatError"},
		{"two questions", set(4, 0, 2), "FormatError"},
		{"65535 questions", set(4, 0xff, 0xff), "FormatError"},
		{"header alone", good[:12], "FormatError"},
		{"cut in the name", good[:15], "FormatError"},
		{"cut before the class", good[:len(good)-2], "FormatError"},
		{"label of 64", set(12, 64), "FormatError"},
		{"compressed name", set(12, 0xc0, 0x0c), "FormatError"},
		{"class CHAOS", set(len(good)-1, 3), "NotImplemented"},
		{"class ANY", set(len(good)-1, 255), "NotImplemented"},
		{"opcode NOTIFY", set(2, 4<<3), "NotImplemented"},
		{"opcode UPDATE", set(2, 5<<3), "NotImplemented"},
		{"missing additional", set(10, 0, 1), "FormatError"},
		{"missing answer", set(6, 0, 1), "FormatError"},
		{"EDNS", additional(opt(t, 4096, 0)), "Success 198.18.0.2"},
		{"EDNS twice", additional(opt(t, 4096, 0), opt(t, 4096, 0)), "FormatError"},
		{"EDNS version 1", additional(opt(t, 4096, 1)), "Success"},
		{"an additional that is something else", additional(dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("x."), Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.AResource{},
		}), "Success 198.18.0.2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			wire := exchange(tt.msg, s)
			if tt.want == "" {
				if wire != nil {
					t.Errorf("answered with %x, want nothing", wire)
				}
				return
			}
			if got := outcome(t, wire); got != tt.want {
				t.Errorf("answered with %s, want %s", got, tt.want)
			}
			if !bytes.Equal(wire[:2], tt.msg[:2]) {
				t.Errorf("id %x, want %x", wire[:2], tt.msg[:2])
			}
		})
	}
}

func TestNameLength(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("a", 63)
	longest := label + "." + label + "." + label + "." + strings.Repeat("a", 61)
	msg := question(t, longest, dnsmessage.TypeA)
	if q, code, ok := parseQuery(msg); !ok || code != dnsmessage.RCodeSuccess || q.name != longest {
		t.Errorf("a name of 253 bytes: %v, %v, %q", ok, code, q.name)
	}
	// One byte more in the last label. Package dnsmessage won't write that.
	last := len(msg) - 4 - 1 - 62
	long := slices.Concat(msg[:last], []byte{62}, msg[last+1:len(msg)-5], []byte("a"), msg[len(msg)-5:])
	if _, code, ok := parseQuery(long); !ok || code != dnsmessage.RCodeFormatError {
		t.Errorf("a name of 254 bytes: %v, %v, want FORMERR", ok, code)
	}
}

// TestEcho: the question comes back byte for byte, for the case of its letters
// has random bits by which a client knows its answer; also of a name whose bytes
// no host name has.
func TestEcho(t *testing.T) {
	t.Parallel()
	var denied lines
	s := newServer(t, Options{Policy: rules(t, "good.test"), Denied: denied.denied})
	wire := exchange(question(t, "gOOd.TeSt", dnsmessage.TypeA), s)
	if got := unpack(t, wire).Questions[0].Name.String(); got != "gOOd.TeSt." {
		t.Errorf("the question came back as %s", got)
	}
	if got := outcome(t, wire); got != "Success 198.18.0.2" {
		t.Errorf("answered with %s", got)
	}
	msg := question(t, "good.test", dnsmessage.TypeA)
	for _, b := range []byte{'.', 0, ' ', '*', '\\', 0xff} {
		msg[15] = b // the third letter
		wire := exchange(msg, s)
		if code := dnsmessage.RCode(wire[3] & 0xf); code != dnsmessage.RCodeNameError || !bytes.Equal(wire[12:len(msg)], msg[12:]) {
			t.Errorf("byte %q in a name: %v, %x; want NXDOMAIN and the question", b, code, wire)
		}
	}
	// "go.d" as one label is not the host go.d.test.
	if want := `go\046d.test A`; denied.all()[0] != want {
		t.Errorf("denied %q, want %q", denied.all()[0], want)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{Policy: rules(t, "good.test")})
	for in, want := range map[uint16]uint16{
		0x0000: 0x8080, // RA is set, nothing else
		0x0100: 0x8180, // RD comes back
		0x0110: 0x8190, // CD too
		0x0620: 0x8080, // AA, TC and AD don't
	} {
		msg := question(t, "good.test", dnsmessage.TypeA)
		binary.BigEndian.PutUint16(msg[2:], in)
		if got := binary.BigEndian.Uint16(exchange(msg, s)[2:]); got != want {
			t.Errorf("flags %#x for %#x, want %#x", got, in, want)
		}
	}
}

// TestEDNS: who speaks EDNS is answered in it, and told why a name is denied.
func TestEDNS(t *testing.T) {
	t.Parallel()
	s := newServer(t, Options{Policy: rules(t, "good.test")})
	for name, why := range map[string]string{"good.test": "", "evil.test": "\x00\x0f" + deniedText} {
		msg := unpack(t, question(t, name, dnsmessage.TypeA))
		msg.Additionals = []dnsmessage.Resource{opt(t, 4096, 0)}
		answer := unpack(t, exchange(pack(t, msg), s))
		if len(answer.Additionals) != 1 || answer.Additionals[0].Header.Class != ednsUDP {
			t.Fatalf("%s: additionals %v, want an OPT record", name, answer.Additionals)
		}
		body := answer.Additionals[0].Body.(*dnsmessage.OPTResource)
		var got string
		for _, option := range body.Options {
			got += string(option.Data)
		}
		if got != why {
			t.Errorf("%s: options %q, want %q", name, got, why)
		}
	}
	if answer := unpack(t, exchange(question(t, "evil.test", dnsmessage.TypeA), s)); len(answer.Additionals) != 0 {
		t.Errorf("without EDNS: additionals %v", answer.Additionals)
	}
	version := exchange(edited(t, func(m *dnsmessage.Message) { m.Additionals = []dnsmessage.Resource{opt(t, 512, 1)} }), s)
	header := unpack(t, version).Additionals[0].Header
	if code := header.ExtendedRCode(dnsmessage.RCodeSuccess); code != badVersion {
		t.Errorf("EDNS version 1: code %v, want BADVERS", code)
	}
}

// TestTruncation: an answer that is too long for UDP sends the client to TCP.
func TestTruncation(t *testing.T) {
	t.Parallel()
	records := map[string][]string{}
	for i := range 60 {
		records["db"] = append(records["db"], fmt.Sprintf("10.77.0.%d", i+1))
	}
	s := newServer(t, Options{Engine: Engine{IsPeer: inPeers, Upstream: &zone{records: records}}})
	for _, tt := range []struct{ size, want, limit int }{{0, 0, 512}, {100, 0, 512}, {4096, 60, 1232}} {
		msg := unpack(t, question(t, "db", dnsmessage.TypeA))
		if tt.size > 0 {
			msg.Additionals = []dnsmessage.Resource{opt(t, tt.size, 0)}
		}
		wire := exchange(pack(t, msg), s)
		answer := unpack(t, wire)
		if len(answer.Answers) != tt.want || answer.Truncated != (tt.want == 0) || len(wire) > tt.limit {
			t.Errorf("EDNS size %d: %d answers in %d bytes, truncated %v; want %d", tt.size, len(answer.Answers), len(wire), answer.Truncated, tt.want)
		}
	}
}

func TestReverse(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"7.0.18.198.in-addr.arpa":                                          "198.18.0.7",
		"1.0.0.127.in-addr.arpa":                                           "127.0.0.1",
		"07.0.18.198.in-addr.arpa":                                         "",
		"256.0.18.198.in-addr.arpa":                                        "",
		"0.18.198.in-addr.arpa":                                            "",
		"1.7.0.18.198.in-addr.arpa":                                        "",
		"x.7.0.18.198.in-addr.arpa":                                        "",
		"in-addr.arpa":                                                     "",
		".in-addr.arpa":                                                    "",
		"7.0.18.198":                                                       "",
		"5." + strings.Repeat("0.", 27) + "7.7.d.f.ip6.arpa":               "fd77::5",
		"5." + strings.Repeat("0.", 26) + "7.7.d.f.ip6.arpa":               "",
		"g." + strings.Repeat("0.", 27) + "7.7.d.f.ip6.arpa":               "",
		strings.Repeat("0", 63) + ".ip6.arpa":                              "",
		"7.0.0.0.2.1.6.c.f.f.f.f." + strings.Repeat("0.", 20) + "ip6.arpa": "",
	} {
		addr, ok := reverse(name)
		if got := addr.String(); ok != (want != "") || ok && got != want {
			t.Errorf("reverse(%s) = %v, %v, want %q", name, addr, ok, want)
		}
	}
}
