package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"eggrun/policy"
)

var (
	errFragment    = errors.New("target has a fragment; write the URL without '#'")
	errHostDiffers = errors.New("host of the Host header differs from that of the URL; send the same one")
)

const (
	maxStatusLine = 120
	// maxSubject is the most of a target that a status line shows, so that the
	// reason behind it stays visible.
	maxSubject = 64
	// denyHeader carries the code of a refusal for programs.
	denyHeader = "X-Eggrun-Deny"
)

// refusal is an answer that is not what the client asked for. Most clients show
// the reason phrase of the status line and nothing else, so it says it all;
// libcurl shows the number alone, and the header with -v.
type refusal struct {
	status int
	code   policy.Reason
	phrase string // of the status line
	body   string // one line
	header [2]string
	deny   bool // a verdict, not a mishap on the way
}

// subject is the target as the client may see it again, or the request target
// where that could not be parsed.
func (x *exchange) subject() string {
	if x.target.Port == 0 {
		return clean(x.uri, maxSubject)
	}
	return clean(x.target.String(), maxSubject)
}

// denied is the refusal for a decision of the policy.
func (x *exchange) denied(d policy.Decision) *refusal {
	cause, advice := "not on the allowlist", "add it to eggrun.domains"
	switch d.Reason {
	case policy.ReasonPortNotListed:
		cause = "port not on the allowlist"
	case policy.ReasonNotPublic:
		// Which address it is stays in the audit: it may tell how a network is
		// laid out that the container cannot see.
		cause, advice = "has no public address", "add the address that is meant to eggrun.domains"
	}
	return &refusal{
		status: http.StatusForbidden, code: d.Reason, deny: true,
		phrase: x.subject() + " " + cause,
		body:   fmt.Sprintf("%s %s: %s; %s", clean(x.method, maxSubject), x.target, cause, advice),
	}
}

// badRequest is the refusal for what cannot be parsed or is ambiguous.
func (x *exchange) badRequest(code policy.Reason, err error) *refusal {
	cause := err
	if inner := errors.Unwrap(err); inner != nil {
		cause = inner // without the target, which is hostile here
	}
	return &refusal{
		status: http.StatusBadRequest, code: code, deny: true,
		phrase: cause.Error(),
		body:   clean(x.method, maxSubject) + ": " + err.Error(),
	}
}

// notProxied is the refusal for a request that is not for a proxy.
func (x *exchange) notProxied() *refusal {
	return &refusal{
		status: http.StatusMethodNotAllowed, code: "not_proxied", deny: true,
		phrase: "this is a proxy; send CONNECT host:port or an http:// URL",
		body:   fmt.Sprintf("%s %s: not a request for a proxy; set HTTPS_PROXY and HTTP_PROXY to this address", clean(x.method, maxSubject), x.subject()),
		header: [2]string{"Allow", http.MethodConnect},
	}
}

// tooMany is the refusal at the cap.
func (x *exchange) tooMany() *refusal {
	return &refusal{
		status: http.StatusServiceUnavailable, code: "too_many_tunnels", deny: true,
		phrase: fmt.Sprintf("%d connections are open; close some", x.p.opts.MaxTunnels),
		body:   fmt.Sprintf("%s %s: %d connections are open; close some", clean(x.method, maxSubject), x.target, x.p.opts.MaxTunnels),
		header: [2]string{"Retry-After", "1"},
	}
}

// gateway is the answer when an allowed target cannot be reached.
func (x *exchange) gateway(status int, code policy.Reason, words string) *refusal {
	return &refusal{
		status: status, code: code,
		phrase: x.subject() + " " + words,
		body:   fmt.Sprintf("%s %s: %s", clean(x.method, maxSubject), x.target, words),
	}
}

// refuse answers the client and closes the connection.
func (x *exchange) refuse(f *refusal) {
	conn, _, err := x.hijack()
	if err != nil {
		x.refuseThrough(f)
		return
	}
	x.refuseOn(conn, f)
}

// refuseThrough answers by way of net/http, whose status lines say nothing.
func (x *exchange) refuseThrough(f *refusal) {
	x.logRefusal(f)
	h := x.w.Header()
	h.Set("Connection", "close")
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set(denyHeader, string(f.code))
	if f.header[0] != "" {
		h.Set(f.header[0], f.header[1])
	}
	x.w.WriteHeader(f.status)
	_, _ = io.WriteString(x.w, f.text())
}

// refuseOn answers on a connection that was taken from net/http.
func (x *exchange) refuseOn(conn net.Conn, f *refusal) {
	x.logRefusal(f)
	defer x.p.drop(conn)
	_ = conn.SetDeadline(time.Now().Add(lingerTimeout))
	if _, err := conn.Write(f.response(x.method != http.MethodHead)); err != nil {
		return
	}
	// Closing with unread bytes (a ClientHello sent along with the CONNECT) makes
	// the kernel send a reset, which can overtake the answer.
	if closeWrite(conn) == nil {
		_, _ = io.CopyN(io.Discard, conn, lingerBytes)
	}
}

const (
	lingerTimeout = 2 * time.Second
	lingerBytes   = 256 << 10
)

// logRefusal writes the line that f is due: a verdict is a decision of its own,
// a mishap ends a request whose decision has been written.
func (x *exchange) logRefusal(f *refusal) {
	if f.deny {
		x.logDecision(false, f.code)
		return
	}
	x.logEnd(0, 0, strings.TrimPrefix(f.phrase, x.subject()+" "))
}

func (f *refusal) text() string { return "eggrun: " + f.body + "\n" }

// response returns f as the bytes of an HTTP response.
func (f *refusal) response(withBody bool) []byte {
	var b bytes.Buffer
	status := fmt.Sprintf("HTTP/1.1 %d eggrun: ", f.status)
	text := f.text()
	fmt.Fprintf(&b, "%s%s\r\n", status, clean(f.phrase, maxStatusLine-len(status)))
	fmt.Fprintf(&b, "%s: %s\r\n", denyHeader, f.code)
	if f.header[0] != "" {
		fmt.Fprintf(&b, "%s: %s\r\n", f.header[0], f.header[1])
	}
	fmt.Fprintf(&b, "Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", len(text))
	if withBody {
		b.WriteString(text)
	}
	return b.Bytes()
}

// clean returns s as printable ASCII of at most most bytes. Of a long string it
// keeps the beginning and, since that is where a name says whose it is, the end.
func clean(s string, most int) string {
	if len(s) > most {
		const gap = "..."
		head := (most - len(gap)) / 3
		s = s[:head] + gap + s[len(s)-(most-len(gap)-head):]
	}
	b := []byte(s)
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '?'
		}
	}
	return string(b)
}
