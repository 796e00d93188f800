package proxy

import (
	"errors"

	"golang.org/x/crypto/cryptobyte"
)

// TLS, RFC 8446.
const (
	recordChangeCipherSpec = 20
	recordAlert            = 21
	recordHandshake        = 22
	recordData             = 23

	recordHeader    = 5
	maxRecord       = 1 << 14 // of plain text
	maxExpansion    = 2048    // by encryption, RFC 5246
	typeClientHello = 1
	helloHeader     = 4

	// maxHello is the most that is read of a greeting. A post-quantum key share
	// makes 2 KiB of it, and a long list of them more.
	maxHello = 64 << 10

	extensionServerName = 0
	extensionEarlyData  = 42
	extensionECH        = 0xfe0d
)

var (
	errNotTLS   = errors.New("not TLS")
	errBadHello = errors.New("not a TLS greeting that can be understood")
)

// hello is what matters of a ClientHello.
type hello struct {
	serverName string // empty: none
	ech        bool   // an encrypted ClientHello is inside, or grease in its form
	earlyData  bool   // encrypted records may follow at once
	size       int    // bytes of its records
}

// helloReader puts a ClientHello together from its records: clients split it in
// the middle of the name to get past middleboxes.
type helloReader struct {
	next    int    // where in the bytes the next record begins
	message []byte // handshake bytes of the records before
}

// scan takes the records of b that it has not seen yet and reports whether the
// greeting is complete. It is called again with the same bytes and more. Bytes
// that cannot begin a greeting are errNotTLS as soon as that shows.
func (r *helloReader) scan(b []byte) (done bool, err error) {
	for {
		record := b[r.next:]
		if err := r.plausible(record); err != nil {
			return false, err
		}
		if len(record) < recordHeader {
			return false, nil
		}
		end := recordHeader + int(record[3])<<8 + int(record[4])
		if len(record) < end {
			return false, nil
		}
		r.message = append(r.message, record[recordHeader:end]...)
		r.next += end
		if len(r.message) < helloHeader {
			continue
		}
		switch length := helloHeader + int(r.message[1])<<16 + int(r.message[2])<<8 + int(r.message[3]); {
		case length > maxHello || len(r.message) > length:
			return false, errBadHello
		case len(r.message) == length:
			return true, nil
		}
	}
}

// plausible checks as much of a record as is there.
func (r *helloReader) plausible(record []byte) error {
	wrong := errNotTLS
	if len(r.message) > 0 {
		wrong = errBadHello
	}
	for i, c := range record[:min(len(record), recordHeader+1)] {
		ok := true
		switch i {
		case 0:
			ok = c == recordHandshake
		case 1:
			ok = c == 3
		case 2:
			ok = c <= 4
		case 3:
			ok = c <= maxRecord>>8
		case 4:
			length := int(record[3])<<8 + int(c)
			ok = 0 < length && length <= maxRecord
		case recordHeader:
			ok = len(r.message) > 0 || c == typeClientHello
		}
		if !ok {
			return wrong
		}
	}
	return nil
}

// parseHello parses a complete ClientHello message.
func parseHello(message []byte) (hello, error) {
	var h hello
	var body, random, session, suites, methods, extensions cryptobyte.String
	var kind uint8
	var version uint16
	s := cryptobyte.String(message)
	if !s.ReadUint8(&kind) || kind != typeClientHello || !s.ReadUint24LengthPrefixed(&body) || !s.Empty() ||
		!body.ReadUint16(&version) || !body.ReadBytes((*[]byte)(&random), 32) ||
		!body.ReadUint8LengthPrefixed(&session) || len(session) > 32 ||
		!body.ReadUint16LengthPrefixed(&suites) || len(suites) == 0 || len(suites)%2 != 0 ||
		!body.ReadUint8LengthPrefixed(&methods) || len(methods) == 0 {
		return h, errBadHello
	}
	if body.Empty() {
		return h, nil // TLS before extensions
	}
	if !body.ReadUint16LengthPrefixed(&extensions) || !body.Empty() {
		return h, errBadHello
	}
	seen := make(map[uint16]bool)
	for !extensions.Empty() {
		var id uint16
		var data cryptobyte.String
		// A second one of a kind would let two readers see two names.
		if !extensions.ReadUint16(&id) || !extensions.ReadUint16LengthPrefixed(&data) || seen[id] {
			return h, errBadHello
		}
		seen[id] = true
		switch id {
		case extensionECH:
			h.ech = true
		case extensionEarlyData:
			h.earlyData = true
		case extensionServerName:
			if !h.readServerName(data) {
				return h, errBadHello
			}
		}
	}
	return h, nil
}

// readServerName takes a server name list (RFC 6066 section 3) of one host name:
// nothing else was ever defined.
func (h *hello) readServerName(data cryptobyte.String) bool {
	var list, name cryptobyte.String
	var kind uint8
	ok := data.ReadUint16LengthPrefixed(&list) && data.Empty() &&
		list.ReadUint8(&kind) && kind == 0 && list.ReadUint16LengthPrefixed(&name) && list.Empty() && len(name) > 0
	h.serverName = string(name)
	return ok
}

// accessDenied is a fatal alert, the one answer that a TLS client shows.
func accessDenied() []byte {
	const fatal, accessDenied = 2, 49
	return []byte{recordAlert, 3, 3, 0, 2, fatal, accessDenied}
}
