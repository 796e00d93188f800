package proxy

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"eggrun/policy"
)

// metrics counts what happened. Labels hold codes of this package and of policy,
// nothing that a client can choose, so their number is bounded.
type metrics struct {
	mu     sync.Mutex
	counts map[series]uint64
}

// series is the name of a counter and its labels as they are written.
type series struct{ name, labels string }

// counter is a name and what it counts.
type counter struct{ name, help string }

// counters are in the order in which they are written.
func counters() []counter {
	return []counter{
		{"eggrun_decisions_total", "Requests by front end, decision and reason."},
		{"eggrun_would_deny_total", "Requests that passed only because the policy observes."},
		{"eggrun_closed_total", "Ends of requests that were allowed, by front end and reason."},
		{"eggrun_bytes_total", "Bytes of requests that have ended, by direction."},
		{"eggrun_alerts_total", "Refusals told by a TLS alert."},
		{"eggrun_accept_pauses_total", "Times that accepting waited for descriptors or memory."},
	}
}

func (m *metrics) add(name, labels string, n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts == nil {
		m.counts = make(map[series]uint64)
	}
	m.counts[series{name, labels}] += n
}

func (m *metrics) decision(proto, decision string, reason policy.Reason, wouldDeny bool) {
	m.add("eggrun_decisions_total", fmt.Sprintf(`{proto=%q,decision=%q,reason=%q}`, proto, decision, reason), 1)
	if wouldDeny {
		m.add("eggrun_would_deny_total", "", 1)
	}
}

func (m *metrics) closed(proto string, up, down int64, reason string) {
	m.add("eggrun_closed_total", fmt.Sprintf(`{proto=%q,reason=%q}`, proto, reason), 1)
	m.add("eggrun_bytes_total", `{direction="up"}`, uint64(up))
	m.add("eggrun_bytes_total", `{direction="down"}`, uint64(down))
}

// WriteMetrics writes the counters of the proxy in the text format of Prometheus
// (version 0.0.4). The error is that of w.
func (p *DomainProxy) WriteMetrics(w io.Writer) error {
	p.mu.Lock()
	open := len(p.live)
	p.mu.Unlock()
	p.metrics.mu.Lock()
	counts := maps.Clone(p.metrics.counts)
	p.metrics.mu.Unlock()

	text := fmt.Appendf(nil, "# HELP eggrun_open Requests being served.\n# TYPE eggrun_open gauge\neggrun_open %d\n", open)
	for _, c := range counters() {
		text = fmt.Appendf(text, "# HELP %s %s\n# TYPE %[1]s counter\n", c.name, c.help)
		var labels []string
		for s := range counts {
			if s.name == c.name {
				labels = append(labels, s.labels)
			}
		}
		slices.Sort(labels)
		for _, l := range labels {
			text = fmt.Appendf(text, "%s%s %d\n", c.name, l, counts[series{c.name, l}])
		}
	}
	text = fmt.Appendf(text, "# HELP eggrun_audit_dropped_total Audit lines that were lost.\n# TYPE eggrun_audit_dropped_total counter\neggrun_audit_dropped_total %d\n", p.audit.lost())
	_, err := w.Write(text)
	return err
}
