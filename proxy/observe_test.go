package proxy

import (
	"net"
	"testing"

	"eggrun/policy"
)

// TestObserveInEveryFrontEnd: a public name passes and the log says that it would
// not; what is no name of the public passes nowhere.
func TestObserveInEveryFrontEnd(t *testing.T) {
	t.Parallel()
	to := origin(t, func(conn *net.TCPConn) { _, _ = conn.Read(make([]byte, 1)) })
	for _, tt := range []struct {
		host   string
		port   int
		passes bool
		reason string
	}{
		{"evil.example.com", tlsPort, true, "not_listed"},
		{"www.example.com", 8443, true, "port_not_listed"},
		{"evil.internal", tlsPort, false, "not_listed"},
		{"localhost", 8443, false, "not_listed"},
		{"8.8.8.8", tlsPort, false, "not_listed"},
	} {
		for _, front := range fronts {
			f := toOrigin(to, 8443)
			lines := new(sink)
			p := matching(t, policy.SNIMatch, "www.example.com")
			p.Observe = true
			_, at := enter(t, Options{Policy: p, Audit: lines}, f)
			if !front.ask(t, at, tt.host, tt.port) {
				continue
			}
			_, dialled := f.counts()
			l := lines.first(t)
			if would, _ := l["would_deny"].(bool); (dialled == 1) != tt.passes || would != tt.passes || l["reason"] != tt.reason || l["rule"] == nil && tt.reason == "port_not_listed" {
				t.Errorf("%s %s:%d: %d dialled, %v", front.name, tt.host, tt.port, dialled, l)
			}
		}
	}
}
