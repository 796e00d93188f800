package proxy

import (
	"encoding/json"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

func TestAuditOfATunnel(t *testing.T) {
	t.Parallel()
	lines := new(sink)
	_, addr := serve(t, Options{Policy: allow(t, "*.good.test"), Audit: lines, Container: "web1"}, toOrigin(origin(t, func(conn *net.TCPConn) {
		got := make([]byte, 5)
		_, _ = io.ReadFull(conn, got)
		_, _ = io.WriteString(conn, "bye")
	})))
	c := dialProxy(t, addr)
	c.send(t, "CONNECT X.good.test:443 HTTP/1.1\r\n\r\nhello")
	c.read(t, "CONNECT")
	if rest, err := io.ReadAll(c.in); err != nil || string(rest) != "bye" {
		t.Fatalf("%q, %v", rest, err)
	}
	_ = c.Close()
	got := lines.wait(t, 2)
	for i, want := range []map[string]any{
		{"container": "web1", "event": "decision", "proto": "connect", "host": "x.good.test", "port": 443.0,
			"decision": "allow", "rule": "*.good.test", "reason": "allowed"},
		{"container": "web1", "event": "close", "proto": "connect", "host": "x.good.test", "port": 443.0,
			"dialed": "9.9.9.9:443", "bytes_up": 5.0, "bytes_down": 3.0, "close_reason": "eof"},
	} {
		for key, value := range want {
			if got[i][key] != value {
				t.Errorf("line %d: %s = %v, want %v", i, key, got[i][key], value)
			}
		}
		if when, err := time.Parse(time.RFC3339Nano, got[i]["time"].(string)); err != nil || time.Since(when) > time.Hour {
			t.Errorf("line %d: time %v", i, got[i]["time"])
		}
	}
	if addrs, _ := got[0]["addresses"].([]any); len(addrs) != 1 || addrs[0] != "9.9.9.9" {
		t.Errorf("addresses = %v", got[0]["addresses"])
	}
	if id := got[0]["id"]; id == "" || id != got[1]["id"] {
		t.Errorf("ids %v and %v do not join", id, got[1]["id"])
	}
	for _, key := range []string{"connect_ms", "duration_ms"} {
		if ms, ok := got[1][key].(float64); !ok || ms <= 0 {
			t.Errorf("%s = %v", key, got[1][key])
		}
	}
}

func TestAuditOfRefusals(t *testing.T) {
	t.Parallel()
	lines := new(sink)
	_, addr := serve(t, Options{Policy: allow(t, "good.test"), Audit: lines}, toOrigin(""))
	for i, tt := range []struct{ head, host, reason, rule string }{
		{"CONNECT evil.test:443 HTTP/1.1\r\n\r\n", "evil.test", "not_listed", ""},
		{"CONNECT good.test:22 HTTP/1.1\r\n\r\n", "good.test", "port_not_listed", "good.test"},
		{"CONNECT 127.1:80 HTTP/1.1\r\n\r\n", "127.1:80", "bad_target", ""},
		{"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n", "/", "not_proxied", ""},
	} {
		ask(t, addr, tt.head)
		l := lines.wait(t, i+1)[i]
		rule, _ := l["rule"].(string)
		if l["event"] != "decision" || l["decision"] != "deny" || l["host"] != tt.host || l["reason"] != tt.reason || rule != tt.rule {
			t.Errorf("%q: %v", tt.head, l)
		}
	}
}

func TestAuditCountsPlainHTTP(t *testing.T) {
	t.Parallel()
	lines := new(sink)
	to := origin(t, func(conn *net.TCPConn) {
		buf := make([]byte, 4096)
		_, _ = conn.Read(buf)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	_, addr := serve(t, Options{Policy: allow(t, "good.test"), Audit: lines}, toOrigin(to))
	ask(t, addr, "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n")
	got := lines.wait(t, 2)
	if got[0]["proto"] != "http" || got[1]["bytes_down"] != 40.0 || got[1]["bytes_up"].(float64) < 30 || got[1]["close_reason"] != "eof" {
		t.Errorf("%v", got)
	}
}

// stuckWriter blocks until it is released.
type stuckWriter struct {
	release chan struct{}
	mu      sync.Mutex
	lines   [][]byte
}

func (w *stuckWriter) Write(b []byte) (int, error) {
	<-w.release
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, b)
	return len(b), nil
}

// TestAuditDoesNotHoldTraffic fills the backlog of a log that nobody reads.
func TestAuditDoesNotHoldTraffic(t *testing.T) {
	t.Parallel()
	w := &stuckWriter{release: make(chan struct{})}
	f := toOrigin(origin(t, echo))
	p, addr := serve(t, Options{Policy: allow(t, "good.test"), Audit: w}, f)
	const extra = 100
	for range auditBacklog + extra {
		ask(t, addr, "CONNECT evil.test:443 HTTP/1.1\r\n\r\n")
	}
	connect(t, addr, "good.test:443").mustEcho(t, "traffic")
	close(w.release)
	eventually(t, "the backlog is written", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.lines) >= auditBacklog
	})
	ask(t, addr, "CONNECT evil.test:443 HTTP/1.1\r\n\r\n")
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var dropped, written int
	for _, b := range w.lines {
		var l struct{ Dropped int }
		if err := json.Unmarshal(b, &l); err != nil {
			t.Fatal(err)
		}
		dropped += l.Dropped
		written++
	}
	// The refusals, two lines of the tunnel, and the last refusal.
	if want := auditBacklog + extra + 3; dropped+written != want || dropped < extra-2 {
		t.Errorf("%d lines written and %d counted as lost, want %d in all", written, dropped, want)
	}
}

type failingWriter struct{ calls int }

func (w *failingWriter) Write([]byte) (int, error) {
	w.calls++
	return 0, io.ErrShortWrite
}

func TestAuditCountsWhatCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := new(failingWriter)
	a := startAudit(w)
	for range 3 {
		a.write(new(decided))
	}
	a.close()
	a.write(new(decided)) // after close: nothing happens
	if w.calls != 3 || a.dropped != 3 {
		t.Errorf("%d writes, %d lost, want 3 and 3", w.calls, a.dropped)
	}
	var none *auditLog
	none.write(new(ended))
	none.close()
}
