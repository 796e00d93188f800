package proxy

import (
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
)

func TestWriteMetrics(t *testing.T) {
	t.Parallel()
	lines := new(sink)
	p, at := enter(t, Options{Policy: allow(t, "good.test"), Audit: lines}, toOrigin(origin(t, echo)))
	at.lead("evil.test", netip.AddrPortFrom(fake, tlsPort))
	ask(t, at.proxied, "CONNECT evil.test:443 HTTP/1.1\r\n\r\n")
	ask(t, at.proxied, "CONNECT \"odd\\:443 HTTP/1.1\r\n\r\n")
	c := dialProxy(t, at.redirected)
	_, _ = c.Write(clientHello(t, "evil.test"))
	_, _ = io.ReadAll(c.in)
	c = connect(t, at.proxied, "good.test:443")
	c.mustEcho(t, "hello")
	_ = c.Close()
	lines.wait(t, 5)
	open := connect(t, at.proxied, "good.test:443")
	open.mustEcho(t, "open")
	var b strings.Builder
	if err := p.WriteMetrics(&b); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	for _, want := range []string{
		"# TYPE eggrun_open gauge\neggrun_open 1\n",
		"# TYPE eggrun_decisions_total counter\n",
		`eggrun_decisions_total{proto="connect",decision="allow",reason="allowed"} 2` + "\n",
		`eggrun_decisions_total{proto="connect",decision="deny",reason="bad_target"} 1` + "\n",
		`eggrun_decisions_total{proto="connect",decision="deny",reason="not_listed"} 1` + "\n",
		`eggrun_decisions_total{proto="transparent",decision="deny",reason="not_listed"} 1` + "\n",
		`eggrun_closed_total{proto="connect",reason="eof"} 1` + "\n",
		`eggrun_bytes_total{direction="down"} 5` + "\n",
		`eggrun_bytes_total{direction="up"} 5` + "\n",
		"eggrun_alerts_total 1\n",
		"eggrun_audit_dropped_total 0\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "odd") {
		t.Errorf("a client chose a label:\n%s", got)
	}
	if err := p.WriteMetrics(new(failingWriter)); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("error %v", err)
	}
}
