package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

const (
	maxHead = 16 << 10
	maxLine = 8 << 10
)

// head is the head of a request. net/http is lenient where a proxy must not be:
// it takes bare line feeds, folded lines and Transfer-Encoding over
// Content-Length, and it replaces the Host header by the host of the request
// line, so that a handler cannot see that they differ. So the bytes are judged
// here, and net/http sees only what has passed.
type head struct {
	method, uri string
	minor       byte   // of HTTP/1: '0' or '1'
	host        string // of the Host header
	hosts       int    // how many there were
	size        int    // bytes scanned, and of the head when it is complete

	lengths, encodings int
}

// slowError is an error that is a timeout.
type slowError string

func (e slowError) Error() string { return string(e) }

func (slowError) Timeout() bool { return true }

const errSlowHead = slowError("head took too long")

// readHead reads the head of a request from the client and leaves its bytes in
// the inbox. The error says what is wrong with it.
func (in *inbox) readHead() (*head, error) {
	h := new(head)
	for {
		done, err := h.scan(in.buf)
		if done || err != nil {
			return h, err
		}
		if err := in.more(maxHead); errors.Is(err, errFull) {
			return h, fmt.Errorf("head of more than %d bytes", maxHead)
		} else if isTimeout(err) {
			return h, errSlowHead
		} else if err != nil {
			return h, errors.New("head ends early")
		}
	}
}

// scan takes the lines of b that it has not seen yet, and reports whether the
// head is complete. It is called again with the same bytes and more.
//
// Every form that it refuses is one that RFC 9112 forbids or lets a proxy
// refuse, and all are ways to make two parsers disagree.
func (h *head) scan(b []byte) (done bool, err error) {
	if h.size == 0 && len(b) > 0 && !isToken(b[0]) {
		return false, errors.New("not a request for an HTTP or SOCKS5 proxy")
	}
	for {
		length := bytes.IndexByte(b[h.size:], '\n')
		if length > maxLine || length < 0 && len(b)-h.size > maxLine {
			return false, fmt.Errorf("line of more than %d bytes", maxLine)
		}
		if length < 0 {
			return false, nil
		}
		line, ok := strings.CutSuffix(string(b[h.size:h.size+length]), "\r")
		if !ok {
			return false, errors.New("head has lines that do not end in CR LF")
		}
		first := h.size == 0
		h.size += length + 1
		switch {
		case first:
			err = h.requestLine(line)
		case line == "":
			return true, h.whole()
		default:
			err = h.field(line)
		}
		if err != nil {
			return false, err
		}
	}
}

// requestLine takes the first line. The target in it is parsed by policy.
func (h *head) requestLine(line string) error {
	method, rest, _ := strings.Cut(line, " ")
	uri, version, ok := strings.Cut(rest, " ")
	if !ok || uri == "" || !isTokens(method) || hasControls(uri) || strings.Contains(uri, "\t") {
		return errors.New("not a request line; send METHOD target HTTP/1.1")
	}
	minor, ok := strings.CutPrefix(version, "HTTP/1.")
	if !ok || minor != "0" && minor != "1" {
		return errors.New("version of HTTP that is not spoken here; send HTTP/1.1")
	}
	h.method, h.uri, h.minor = method, uri, minor[0]
	return nil
}

func (h *head) field(line string) error {
	if line[0] == ' ' || line[0] == '\t' {
		return errors.New("folded header line")
	}
	name, value, ok := strings.Cut(line, ":")
	if !ok || !isTokens(name) {
		return errors.New("header line without a name")
	}
	if hasControls(value) {
		return errors.New("head has control bytes")
	}
	value = strings.Trim(value, " \t")
	switch strings.ToLower(name) {
	case "host":
		h.hosts++
		h.host = value
	case "content-length":
		h.lengths++
		if value == "" || len(value) > 18 || strings.Trim(value, "0123456789") != "" {
			return errors.New("length of the body that is no number")
		}
	case "transfer-encoding":
		h.encodings++
		if !strings.EqualFold(value, "chunked") {
			return errors.New("Transfer-Encoding that is not spoken here; send chunked")
		}
	}
	return nil
}

// whole judges what only the complete head can tell.
func (h *head) whole() error {
	switch {
	case h.hosts > 1:
		return errors.New("more than one Host header")
	case h.lengths > 1 || h.encodings > 1:
		return errors.New("length of the body given twice")
	case h.lengths > 0 && h.encodings > 0:
		return errors.New("both Content-Length and Transfer-Encoding")
	case h.encodings > 0 && h.minor == '0':
		return errors.New("Transfer-Encoding in HTTP/1.0")
	}
	return nil
}

// isToken reports whether c may stand in a method or the name of a header (RFC
// 9110 section 5.6.2).
func isToken(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func isTokens(s string) bool {
	for i := range len(s) {
		if !isToken(s[i]) {
			return false
		}
	}
	return s != ""
}

// hasControls reports whether s has control bytes other than tabs. Bytes beyond
// ASCII pass: clients put UTF-8 into paths, and hosts are checked elsewhere.
func hasControls(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return true
		}
	}
	return false
}
