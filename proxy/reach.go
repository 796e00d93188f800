package proxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"eggrun/policy"
)

// route is how a target is reached: by one of its addresses, or by the name
// through an upstream proxy.
type route struct {
	found bool
	addrs []netip.Addr   // vetted
	own   []netip.Addr   // of the machine that dials
	via   *upstreamProxy // nil: directly
}

// reach finds and dials the target, which has been allowed.
func (x *exchange) reach() *refusal {
	if !x.route.found {
		if refused := x.find(); refused != nil {
			return refused
		}
	}
	return x.dial()
}

// find resolves the target and vets its addresses. Behind an upstream proxy a
// name is for that one to resolve, and the guard against names that lead inside
// is its affair: machines behind such a proxy often cannot resolve at all.
func (x *exchange) find() *refusal {
	local := x.target.Host == "localhost" || x.target.Addr.IsLoopback()
	if url := x.policy.UpstreamProxy; url != "" && !local {
		via, err := parseUpstream(url)
		if err != nil {
			return x.gateway(fault{502, socksFailed, "upstream proxy is not set up well"}, "upstream_proxy")
		}
		x.route.via = via
		if !x.target.Addr.IsValid() {
			x.route.found = true
			return nil
		}
	}
	asked := time.Now()
	addrs, err := x.p.resolve(x.ctx, x.target)
	x.decided.DNSMillis = millis(time.Since(asked))
	if err != nil {
		return x.gateway(lookupFault(err), "lookup")
	}
	return x.vet(addrs)
}

// vet drops the addresses that may not be dialled. It refuses when none is left:
// one public address beside a private one is a name that is set up badly, but
// nothing can be reached through it that is not allowed.
func (x *exchange) vet(addrs []netip.Addr) *refusal {
	var err error
	if x.route.own, err = x.p.opts.OwnAddrs(); err != nil {
		return x.gateway(fault{502, socksFailed, "proxy does not know its own addresses"}, "own_addresses")
	}
	var last policy.Decision
	for _, addr := range addrs {
		addr = addr.Unmap()
		x.decided.Addresses = append(x.decided.Addresses, addr.String())
		d := x.policy.VetAddr(x.target, addr, x.route.own...)
		if d.Allow {
			x.route.addrs = append(x.route.addrs, addr)
			continue
		}
		x.decided.Refused = append(x.decided.Refused, addr.String()+" "+d.Rule)
		last = d
	}
	if len(x.route.addrs) == 0 {
		x.decided.Rule = last.Rule
		return x.denied(last)
	}
	x.route.found = true
	return nil
}

// dial connects to the target that find has found, and writes the decision to
// the audit.
func (x *exchange) dial() *refusal {
	x.logAllowed()
	begun := time.Now()
	conn, to, err := x.connect()
	x.ended.ConnectMillis = millis(time.Since(begun))
	if err != nil {
		return x.gateway(dialFault(err), "connect")
	}
	x.ended.Dialed = to.String()
	x.upstream = conn
	x.closeWithExchange(conn)
	if x.route.via != nil {
		x.settle(netip.Addr{})
	} else {
		x.settle(to.Addr())
	}
	return nil
}

func (x *exchange) connect() (net.Conn, netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(x.ctx, dialTimeout)
	defer cancel()
	if x.route.via != nil {
		x.ended.Via = x.route.via.address
		return x.connectVia(ctx)
	}
	return race(ctx, x.dialer(), x.route.addrs, x.target.Port)
}

// dialFunc is what [net.Dialer.DialContext] is.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialer returns what connects to vetted addresses. It vets them again in the
// callback between socket(2) and connect(2), where the address is final.
func (x *exchange) dialer() dialFunc {
	if x.p.opts.Dial != nil {
		return x.p.opts.Dial
	}
	if x.proto == protoLocal {
		return new(net.Dialer).DialContext // a rule of its own allowed 127.0.0.1
	}
	return (&net.Dialer{
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			if d := x.policy.VetAddr(x.target, to.Addr(), x.route.own...); !d.Allow {
				return fmt.Errorf("connect %q: %s", address, d.Rule)
			}
			return nil
		},
	}).DialContext
}
