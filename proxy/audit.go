package proxy

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"sync"
	"time"

	"eggrun/policy"
)

// event is what both lines of a request have in common. They are joined by ID.
type event struct {
	Time      string `json:"time"` // RFC 3339 with nanoseconds
	Container string `json:"container,omitempty"`
	ID        string `json:"id"`
	Event     string `json:"event"`
	Proto     string `json:"proto"`
	Host      string `json:"host"`
	Port      uint16 `json:"port,omitempty"`
	UID       *int   `json:"uid,omitempty"`     // of the client, inside the container
	Dropped   uint64 `json:"dropped,omitempty"` // lines lost before this one
}

func (e *event) base() *event { return e }

// decided is the line at the decision, after the addresses have been vetted.
type decided struct {
	event
	Decision  string        `json:"decision"`
	Rule      string        `json:"rule,omitempty"`
	Reason    policy.Reason `json:"reason"`
	WouldDeny bool          `json:"would_deny,omitempty"` // it passed only because the policy observes
	Addresses []string      `json:"addresses,omitempty"`
	Refused   []string      `json:"refused,omitempty"` // addresses not dialled, and why
	DNSMillis float64       `json:"dns_ms,omitempty"`
	SNI       string        `json:"sni,omitempty"`
	ECH       bool          `json:"ech,omitempty"` // the greeting has an encrypted name beside SNI
}

// ended is the line at the end of a request that was allowed.
type ended struct {
	event
	Dialed         string  `json:"dialed,omitempty"`
	Via            string  `json:"via,omitempty"` // the upstream proxy
	ConnectMillis  float64 `json:"connect_ms,omitempty"`
	BytesUp        int64   `json:"bytes_up"`
	BytesDown      int64   `json:"bytes_down"`
	DurationMillis float64 `json:"duration_ms"`
	CloseReason    string  `json:"close_reason"`
}

// line is a decided or an ended.
type line interface{ base() *event }

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// newPrefix returns what makes request ids differ between proxies that append to
// one file.
func newPrefix() string { return rand.Text()[:8] }

const (
	auditBacklog  = 1024
	auditPatience = 2 * time.Second
)

// auditLog writes lines in the background. A nil auditLog writes nothing.
type auditLog struct {
	mu      sync.Mutex
	lines   chan line // nil once closed
	dropped uint64    // since the last line
	total   uint64    // that were lost
	done    chan struct{}
}

func startAudit(w io.Writer) *auditLog {
	if w == nil {
		return nil
	}
	lines := make(chan line, auditBacklog)
	a := &auditLog{lines: lines, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		for l := range lines {
			b, err := json.Marshal(l)
			if err == nil {
				_, err = w.Write(append(b, '\n'))
			}
			if err != nil {
				a.mu.Lock()
				a.dropped += 1 + l.base().Dropped
				a.total++
				a.mu.Unlock()
			}
		}
	}()
	return a
}

// write hands l over. It never waits: a line that finds no place is lost, and
// the next one that does says how many were.
func (a *auditLog) write(l line) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lines == nil {
		return
	}
	l.base().Dropped = a.dropped
	select {
	case a.lines <- l:
		a.dropped = 0
	default:
		a.dropped++
		a.total++
	}
}

// lost returns how many lines were lost in all.
func (a *auditLog) lost() uint64 {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.total
}

// close waits until the lines so far are written, but not for ever: a reader
// that has stopped reading must not hold the proxy.
func (a *auditLog) close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	close(a.lines)
	a.lines = nil
	a.mu.Unlock()
	select {
	case <-a.done:
	case <-time.After(auditPatience):
	}
}
