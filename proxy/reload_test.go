package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"eggrun/policy"
)

// TestSetPolicyClosesWhatIsRevoked has one tunnel of each kind that goes and one
// that stays.
func TestSetPolicyClosesWhatIsRevoked(t *testing.T) {
	t.Parallel()
	lines := new(sink)
	f := toOrigin(origin(t, echo))
	private := netip.MustParseAddr("10.1.2.3")
	f.routes["10.1.2.3:443"] = f.routes["9.9.9.9:443"]
	f.lookup = func(host string) ([]netip.Addr, error) {
		if host == "inside.test" {
			return []netip.Addr{private}, nil
		}
		return []netip.Addr{public}, nil
	}
	p, at := enter(t, Options{Policy: allow(t, "good.test", "gone.test", "inside.test", "10.1.2.3"), Audit: lines}, f)
	at.lead("gone.test", netip.AddrPortFrom(fake, tlsPort))
	socks := dialProxy(t, at.proxied)
	socksConnectTo(t, socks, "gone.test", tlsPort)
	stays := connect(t, at.proxied, "good.test:443")
	revoked := []*client{connect(t, at.proxied, "gone.test:443"), connect(t, at.proxied, "inside.test:443"), socks, dialProxy(t, at.redirected)}
	for _, c := range append(revoked, stays) {
		c.mustEcho(t, "before")
	}
	p.SetPolicy(allow(t, "good.test", "inside.test"))
	for _, c := range revoked {
		c.mustEnd(t)
	}
	stays.mustEcho(t, "after")
	for _, l := range lines.wait(t, 9)[5:] {
		if l["event"] != "close" || l["close_reason"] != "revoked" {
			t.Errorf("%v, want it revoked", l)
		}
	}
	if a := ask(t, at.proxied, "CONNECT gone.test:443 HTTP/1.1\r\n\r\n"); a.status != http.StatusForbidden {
		t.Errorf("gone.test afterwards: %s", a.line)
	}
	p.SetPolicy(nil)
	stays.mustEnd(t)
	if a := ask(t, at.proxied, "CONNECT good.test:443 HTTP/1.1\r\n\r\n"); a.status != http.StatusForbidden {
		t.Errorf("good.test without a policy: %s", a.line)
	}
}

func TestSetPolicyEndsPlainHTTP(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	to := httpOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		close(begun)
		<-r.Context().Done()
	})
	lines := new(sink)
	p, addr := serve(t, Options{Policy: allow(t, "good.test"), Audit: lines}, toOrigin(to))
	c := dialProxy(t, addr)
	c.send(t, "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n")
	<-begun
	p.SetPolicy(allow(t, "other.test"))
	if _, err := io.ReadAll(c.in); isTimeout(err) {
		t.Error("the connection is still open")
	}
	if l := lines.wait(t, 2)[1]; l["close_reason"] != "revoked" {
		t.Errorf("%v", l)
	}
}

// TestSetPolicyMeetsADial replaces the policy at each stage of a request: between
// the decision and the connection nothing may slip through.
func TestSetPolicyMeetsADial(t *testing.T) {
	t.Parallel()
	for _, stage := range []string{"lookup", "dial"} {
		to := origin(t, echo)
		f := toOrigin(to)
		lines := new(sink)
		var p *DomainProxy
		reached, on := make(chan struct{}), make(chan struct{})
		wait := func(at string) {
			if at == stage {
				close(reached)
				<-on
			}
		}
		p, addr := serve(t, Options{
			Policy: allow(t, "good.test"), Audit: lines,
			Lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
				wait("lookup")
				return f.Lookup(ctx, host)
			},
			Dial: func(_ context.Context, network, _ string) (net.Conn, error) {
				wait("dial")
				return net.Dial(network, to) // as if it had been too late to stop
			},
		}, nil)
		c := dialProxy(t, addr)
		c.send(t, "CONNECT good.test:443 HTTP/1.1\r\n\r\nsecret")
		<-reached
		p.SetPolicy(allow(t, "other.test"))
		close(on)
		got, err := io.ReadAll(c.in)
		if isTimeout(err) || len(got) > 0 && string(got[:len("HTTP/1.1 5")]) != "HTTP/1.1 5" {
			t.Errorf("%s: %q, %v", stage, got, err)
		}
		if l := lines.wait(t, 2)[1]; l["close_reason"] != "revoked" {
			t.Errorf("%s: %v", stage, l)
		}
	}
}

func TestPlaceAllowedBy(t *testing.T) {
	t.Parallel()
	inside := netip.MustParseAddr("10.1.2.3")
	host := allow(t, "good.test")
	host.HostAddresses = []netip.Prefix{netip.PrefixFrom(public, 32)}
	for _, tt := range []struct {
		name   string
		addr   netip.Addr
		policy *policy.Policy
		want   bool
	}{
		{"not dialled yet", netip.Addr{}, allow(t, "good.test"), true},
		{"public", public, allow(t, "good.test"), true},
		{"name is gone", public, allow(t, "other.test"), false},
		{"port is gone", public, allow(t, "good.test:80"), false},
		{"address rule is gone", inside, allow(t, "good.test"), false},
		{"address rule", inside, allow(t, "good.test", "10.0.0.0/8"), true},
		{"address of the host now", public, host, false},
		{"nothing", public, nil, false},
	} {
		if got := (place{target: policy.Target{Host: "good.test", Port: 443}, addr: tt.addr}).allowedBy(tt.policy); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
