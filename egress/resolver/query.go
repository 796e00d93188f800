package resolver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// Limits of the protocol, in bytes.
const (
	headerLen = 12  // RFC 1035 section 4.1.1
	maxName   = 253 // a name in text, without the dot at its end
	maxLabel  = 63
	maxQuery  = 4096 // longer than any honest question
	plainUDP  = 512  // an answer to who says nothing about it
	ednsUDP   = 1232 // what passes every link without fragments
	maxTCP    = 1<<16 - 1
)

// Bits of the second header word.
const (
	bitResponse  = 1 << 15
	opcodeMask   = 0xf << 11
	bitTruncated = 1 << 9
	bitRD        = 1 << 8
	bitRA        = 1 << 7
	bitCD        = 1 << 4
)

// badVersion is the extended response code for an EDNS version that we don't
// know, RFC 6891 section 6.1.3.
const badVersion dnsmessage.RCode = 16

// query is a parsed question.
type query struct {
	id, flags uint16
	// question is name, type and class as they came, for they go back byte for
	// byte: clients hide random bits in the case of letters.
	question []byte
	// name is canonical. Bytes that no host name has are written \ddd; then
	// isHost is false and the name can't be one that is allowed.
	name   string
	isHost bool
	qtype  dnsmessage.Type
	// edns says that the client speaks EDNS; udpSize is what it can take by UDP.
	edns    bool
	udpSize int
}

// parseQuery parses a message. What deserves no answer (too short, or itself an
// answer, which two resolvers would send each other for ever) is not ok. A code
// other than RCodeSuccess is the answer.
func parseQuery(msg []byte) (q query, code dnsmessage.RCode, ok bool) {
	q = query{udpSize: plainUDP}
	if len(msg) < headerLen {
		return q, 0, false
	}
	q.id, q.flags = binary.BigEndian.Uint16(msg), binary.BigEndian.Uint16(msg[2:])
	if q.flags&bitResponse != 0 {
		return q, 0, false
	}
	if q.flags&opcodeMask != 0 {
		return q, dnsmessage.RCodeNotImplemented, true
	}
	if binary.BigEndian.Uint16(msg[4:]) != 1 || !q.readQuestion(msg[headerLen:]) {
		return q, dnsmessage.RCodeFormatError, true
	}
	if code := q.readEDNS(msg); code != dnsmessage.RCodeSuccess {
		return q, code, true
	}
	if class := binary.BigEndian.Uint16(q.question[len(q.question)-2:]); class != uint16(dnsmessage.ClassINET) {
		return q, dnsmessage.RCodeNotImplemented, true
	}
	return q, dnsmessage.RCodeSuccess, true
}

// readQuestion reads the question at the beginning of data. A compressed name is
// refused: nothing stands before the question that it could refer to.
func (q *query) readQuestion(data []byte) bool {
	var name strings.Builder
	isHost := true
	at := 0
	for at < len(data) && data[at] != 0 {
		size := int(data[at])
		at++
		if size > maxLabel || at+size > len(data) || at+size > maxName+1 {
			return false
		}
		if name.Len() > 0 {
			name.WriteByte('.')
		}
		for _, b := range data[at : at+size] {
			if 'A' <= b && b <= 'Z' {
				b += 'a' - 'A'
			}
			if notHostRune(rune(b)) {
				isHost = false
				fmt.Fprintf(&name, "\\%03d", b)
				continue
			}
			name.WriteByte(b)
		}
		at += size
	}
	const typeAndClass = 4
	end := at + 1 + typeAndClass
	if end > len(data) {
		return false
	}
	// The caller reuses its buffer.
	q.question = bytes.Clone(data[:end])
	q.name, q.isHost = name.String(), isHost && name.Len() > 0
	q.qtype = dnsmessage.Type(binary.BigEndian.Uint16(data[at+1:]))
	return true
}

// readEDNS looks for the OPT record behind the question, RFC 6891.
func (q *query) readEDNS(msg []byte) dnsmessage.RCode {
	var parser dnsmessage.Parser
	if _, err := parser.Start(msg); err != nil {
		return dnsmessage.RCodeFormatError
	}
	for _, skip := range []func() error{parser.SkipAllQuestions, parser.SkipAllAnswers, parser.SkipAllAuthorities} {
		if err := skip(); err != nil {
			return dnsmessage.RCodeFormatError
		}
	}
	for {
		header, err := parser.AdditionalHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return dnsmessage.RCodeSuccess
		}
		if err != nil || parser.SkipAdditional() != nil {
			return dnsmessage.RCodeFormatError
		}
		if header.Type != dnsmessage.TypeOPT {
			continue
		}
		if q.edns {
			return dnsmessage.RCodeFormatError
		}
		q.edns = true
		q.udpSize = min(max(int(header.Class), plainUDP), ednsUDP)
		if version := header.TTL >> 16 & 0xff; version != 0 {
			return badVersion
		}
	}
}
