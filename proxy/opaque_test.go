package proxy

import (
	"net/netip"
	"strings"
	"testing"

	"eggrun/policy"
)

// TestOpaque is a rule that expects no TLS and no HTTP: bytes pass unseen, also
// where they would be looked at otherwise, and servers may speak first.
func TestOpaque(t *testing.T) {
	t.Parallel()
	for _, port := range []uint16{tlsPort, httpPort} {
		for _, tt := range []struct {
			rules  string
			opaque bool
		}{
			{"good.test:443!tcp good.test:80!tcp", true},
			{"good.test", false}, // the control
		} {
			f := toOrigin(origin(t, echo))
			lines := new(sink)
			_, at := enter(t, Options{Policy: matching(t, policy.SNIMatch, strings.Fields(tt.rules)...), Audit: lines}, f)
			at.lead("good.test", netip.AddrPortFrom(fake, port))
			socks := dialProxy(t, at.proxied)
			socksConnectTo(t, socks, "good.test", port)
			for _, c := range []*client{connect(t, at.proxied, netJoin("good.test", port)), socks, dialProxy(t, at.redirected)} {
				if tt.opaque {
					c.mustEcho(t, "SSH-2.0-x\r\n")
					c.mustEcho(t, "\x16\x03\x01")
				} else {
					c.send(t, "SSH-2.0-x\r\n")
				}
			}
			if tt.opaque {
				continue
			}
			for _, l := range lines.wait(t, 3) {
				if l["decision"] != "deny" {
					t.Errorf("%v", l)
				}
			}
			if _, dialled := f.counts(); dialled != 0 {
				t.Errorf("%d dials", dialled)
			}
		}
	}
}
