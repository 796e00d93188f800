package proxy

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"eggrun/policy"
)

const (
	// silence is how long a client may think before the first byte of TLS. Who
	// waits longer waits for the server to speak first.
	silence = 5 * time.Second
	// helloTimeout is for the whole greeting.
	helloTimeout = 10 * time.Second
)

var (
	errSilent = errors.New("client sends nothing")
	errGone   = errors.New("client is gone")
)

// readHello reads a TLS greeting and leaves its bytes in the inbox.
func (in *inbox) readHello() (hello, error) {
	begun := time.Now()
	defer func() { _ = in.SetReadDeadline(time.Time{}) }()
	var r helloReader
	for {
		done, err := r.scan(in.buf)
		if err != nil {
			return hello{}, err
		}
		if done {
			h, err := parseHello(r.message)
			h.size = r.next
			return h, err
		}
		deadline := begun.Add(helloTimeout)
		if len(in.buf) == 0 {
			deadline = begun.Add(silence)
		}
		_ = in.SetReadDeadline(deadline)
		switch err := in.more(maxHello); {
		case err == nil:
		case len(in.buf) > 0:
			return hello{}, errBadHello
		case isTimeout(err):
			return hello{}, errSilent
		default:
			return hello{}, errGone
		}
	}
}

// hear reads the greeting and notes for the audit what it says.
func (x *exchange) hear() (hello, error) {
	h, err := x.in.readHello()
	if errors.Is(err, errSilent) {
		x.voice = voiceReset
	}
	x.decided.SNI, x.decided.ECH = clean(h.serverName, maxServerName), h.ech
	if err == nil && !x.policy.Observe {
		x.heard = &h
	}
	return h, err
}

const maxServerName = 255

// checkHello holds the TLS greeting of the client to the target. Where the
// policy observes, what would be refused is noted and passes. errGone is for the
// caller.
func (x *exchange) checkHello() (*refusal, error) {
	h, err := x.hear()
	if errors.Is(err, errGone) {
		return nil, err
	}
	refused := x.helloFault(h, err)
	if refused != nil && x.policy.Observe {
		x.verdict.WouldDeny, x.verdict.Reason = true, refused.code
		return nil, nil
	}
	return refused, nil
}

func (x *exchange) helloFault(h hello, err error) *refusal {
	opaque := fmt.Sprintf("if that is meant, write %s!tcp", x.target)
	switch {
	case errors.Is(err, errBadHello):
		return x.unfit("bad_hello", "TLS greeting is malformed", "use another client")
	case err != nil:
		return x.unfit("not_tls", "not TLS", opaque)
	case h.serverName == "":
		return x.unfit("no_sni", "TLS without a server name", opaque)
	}
	named, err := policy.ParseTarget(h.serverName + ":" + strconv.Itoa(int(x.target.Port)))
	switch {
	case err != nil || named.Addr.IsValid():
		return x.unfit("bad_hello", "TLS server name is malformed", "use another client")
	case named == x.target:
	case x.policy.SNI != policy.SNIAllowlisted || !x.policy.Decide(named).Allow:
		return x.unfit("sni_differs", "TLS server name is another one", "ask the proxy for the name that TLS uses")
	}
	return nil
}
