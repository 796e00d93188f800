package resolver

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// record is one answer. Its owner is always the name that was asked for.
type record struct {
	kind dnsmessage.Type
	ttl  uint32 // seconds
	data []byte
}

// reply is what a question is answered with.
type reply struct {
	code    dnsmessage.RCode
	answers []record
	// denied says that the policy is the reason.
	denied bool
}

// deniedText tells the reader of dig's output what to do, RFC 8914.
const deniedText = "not on the allowlist; add it to eggrun.domains"

// pack returns r in wire format. If it is longer than limit it loses its answers
// and gets the bit that sends the client to TCP.
func (q *query) pack(r reply, limit int) []byte {
	flags := bitResponse | bitRA | q.flags&(opcodeMask|bitRD|bitCD) | uint16(r.code)&0xf
	body := slices.Clone(q.question)
	for _, a := range r.answers {
		body = appendRecord(body, ownerIsQuestion, a)
	}
	var counts [4]uint16 // questions, answers, authorities, additionals
	counts[1] = uint16(len(r.answers))
	if len(body) > limit-headerLen-optRoom {
		flags |= bitTruncated
		body, counts[1] = body[:len(q.question)], 0
	}
	if len(q.question) > 0 {
		counts[0] = 1
	}
	if len(r.answers) == 0 && (r.code == dnsmessage.RCodeSuccess || r.code == dnsmessage.RCodeNameError) {
		counts[2] = 1
		body = appendRecord(body, ownerIsRoot, negative())
	}
	if q.edns {
		counts[3] = 1
		body = appendOPT(body, r)
	}
	msg := make([]byte, 0, headerLen+len(body))
	msg = binary.BigEndian.AppendUint16(msg, q.id)
	msg = binary.BigEndian.AppendUint16(msg, flags)
	for _, count := range counts {
		msg = binary.BigEndian.AppendUint16(msg, count)
	}
	return append(msg, body...)
}

// The owners of records: a pointer to the question (RFC 1035 section 4.1.4), and
// the root.
const (
	ownerIsQuestion = "\xc0\x0c"
	ownerIsRoot     = "\x00"
)

func appendRecord(msg []byte, owner string, r record) []byte {
	msg = append(msg, owner...)
	msg = binary.BigEndian.AppendUint16(msg, uint16(r.kind))
	msg = binary.BigEndian.AppendUint16(msg, uint16(dnsmessage.ClassINET))
	msg = binary.BigEndian.AppendUint32(msg, r.ttl)
	msg = binary.BigEndian.AppendUint16(msg, uint16(len(r.data)))
	return append(msg, r.data...)
}

// negative returns the SOA record that says for how long "no" is true, RFC 2308: a
// second, because a reload may allow the name. Its zone is the root, which is
// above every name.
func negative() record {
	data := []byte{0, 0} // the root as primary server and as mailbox
	for _, seconds := range []uint32{1, 1, 1, 1, 1} {
		// serial, refresh, retry, expire, minimum
		data = binary.BigEndian.AppendUint32(data, seconds)
	}
	return record{dnsmessage.TypeSOA, 1, data}
}

// optRoom is more than an OPT record of ours takes.
const optRoom = 11 + 4 + 2 + len(deniedText)

// appendOPT appends the OPT record of an answer to a client that speaks EDNS. Its
// owner is the root, its class our size and its TTL the upper bits of the code.
func appendOPT(msg []byte, r reply) []byte {
	msg = append(msg, ownerIsRoot...)
	msg = binary.BigEndian.AppendUint16(msg, uint16(dnsmessage.TypeOPT))
	msg = binary.BigEndian.AppendUint16(msg, ednsUDP)
	msg = binary.BigEndian.AppendUint32(msg, uint32(r.code)>>4<<24)
	if !r.denied {
		return binary.BigEndian.AppendUint16(msg, 0)
	}
	const (
		extendedError = 15 // the option, RFC 8914
		blocked       = 15 // its code: by policy of the operator
	)
	for _, word := range []int{4 + 2 + len(deniedText), extendedError, 2 + len(deniedText), blocked} {
		msg = binary.BigEndian.AppendUint16(msg, uint16(word))
	}
	return append(msg, deniedText...)
}

// address returns the record of an address.
func address(addr netip.Addr, ttl uint32) record {
	kind := dnsmessage.TypeA
	if addr.Is6() {
		kind = dnsmessage.TypeAAAA
	}
	return record{kind, ttl, addr.AsSlice()}
}

// pointer returns the PTR record of a canonical name.
func pointer(name string, ttl uint32) record {
	var data []byte
	for label := range strings.SplitSeq(name, ".") {
		data = append(data, byte(len(label)))
		data = append(data, label...)
	}
	return record{dnsmessage.TypePTR, ttl, append(data, 0)}
}

// reverse returns the address that a canonical name below in-addr.arpa or
// ip6.arpa stands for.
func reverse(name string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		labels := strings.Split(rest, ".")
		slices.Reverse(labels)
		addr, err := netip.ParseAddr(strings.Join(labels, "."))
		return addr, err == nil && addr.Is4()
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa")
	const nibbles = 32
	if !ok || len(rest) != 2*nibbles-1 {
		return netip.Addr{}, false
	}
	var ip [16]byte
	for i := range nibbles {
		digit := strings.IndexByte("0123456789abcdef", rest[2*i])
		if digit < 0 || i > 0 && rest[2*i-1] != '.' {
			return netip.Addr{}, false
		}
		// The first label is the lowest nibble.
		ip[15-i/2] |= byte(digit) << (i % 2 * 4)
	}
	// What has IPv4 inside has one name too, of the other tree.
	addr := netip.AddrFrom16(ip)
	return addr, !addr.Is4In6()
}
