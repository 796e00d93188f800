package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"eggrun/policy"
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
	socks  byte // reply of SOCKS5
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

// request is what the client asked for: "CONNECT good.test:443".
func (x *exchange) request() string {
	return strings.TrimSpace(clean(x.method, maxSubject) + " " + x.subject())
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
	return x.unfit(d.Reason, cause, advice)
}

// unfit is the refusal for a target, or for what the client does with it.
func (x *exchange) unfit(code policy.Reason, cause, advice string) *refusal {
	return &refusal{
		status: http.StatusForbidden, socks: socksNotAllowed, code: code, deny: true,
		phrase: x.subject() + " " + cause,
		body:   fmt.Sprintf("%s: %s; %s", x.request(), cause, advice),
	}
}

// badRequest is the refusal for what cannot be parsed or is ambiguous.
func (x *exchange) badRequest(code policy.Reason, err error) *refusal {
	cause := err
	if inner := errors.Unwrap(err); inner != nil {
		cause = inner // without the target, which is hostile here
	}
	return &refusal{
		status: http.StatusBadRequest, socks: socksFailed, code: code, deny: true,
		phrase: cause.Error(),
		body:   strings.TrimPrefix(clean(x.method, maxSubject)+": "+err.Error(), ": "),
	}
}

// notProxied is the refusal for a request that is not for a proxy.
func (x *exchange) notProxied() *refusal {
	return &refusal{
		status: http.StatusMethodNotAllowed, code: "not_proxied", deny: true,
		phrase: errNotProxied.Error(),
		body:   x.request() + ": not a request for a proxy; set HTTPS_PROXY and HTTP_PROXY to this address",
		header: [2]string{"Allow", http.MethodConnect},
	}
}

// tooMany is the refusal at the cap.
func (x *exchange) tooMany() *refusal {
	phrase := fmt.Sprintf("%d connections are open; close some", x.p.opts.MaxTunnels)
	return &refusal{
		status: http.StatusServiceUnavailable, socks: socksFailed, code: "too_many_tunnels", deny: true,
		phrase: phrase,
		body:   x.request() + ": " + phrase,
		header: [2]string{"Retry-After", "1"},
	}
}

// gateway is the answer when an allowed target cannot be reached.
func (x *exchange) gateway(f fault, code policy.Reason) *refusal {
	return &refusal{
		status: f.status, socks: f.socks, code: code,
		phrase: x.subject() + " " + f.words,
		body:   x.request() + ": " + f.words,
	}
}

// logRefusal writes the line that f is due: a verdict is a decision of its own,
// a mishap ends a request that was allowed.
func (x *exchange) logRefusal(f *refusal) {
	if f.deny {
		x.logDecision(false, f.code)
		return
	}
	x.logAllowed()
	x.logEnd(0, 0, strings.TrimPrefix(f.phrase, x.subject()+" "))
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
