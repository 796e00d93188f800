package proxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"eggrun/policy"
)

// stagger is how long one address has before the next is tried beside it (RFC
// 8305 section 5).
const stagger = 250 * time.Millisecond

const (
	// maxAddrs bounds the connections that one request can start.
	maxAddrs = 16
	// maxAnswers bounds what is made of an answer. One of thousands, from a server
	// that is the container's friend, would soon be all that the audit has.
	maxAnswers = 64
)

// lookup is Go's own resolver: cgo's takes 127.1 and 0x7f000001 for addresses.
//
// A dot at the end keeps the machine's search domains away, which would resolve
// another name than the one that was decided. A single label has no other
// meaning than in those domains or in /etc/hosts, so it goes without.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if strings.Contains(host, ".") {
		host += "."
	}
	return (&net.Resolver{PreferGo: true}).LookupNetIP(ctx, "ip", host)
}

// interfaceAddrs lists the addresses of this network namespace.
func interfaceAddrs() ([]netip.Addr, error) {
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.Addr, 0, len(nets))
	for _, n := range nets {
		if ipnet, ok := n.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(ipnet.IP); ok {
				addrs = append(addrs, addr.Unmap())
			}
		}
	}
	return addrs, nil
}

// resolve returns the addresses of t. localhost is not asked of anybody.
func (p *DomainProxy) resolve(ctx context.Context, t policy.Target) ([]netip.Addr, error) {
	if t.Addr.IsValid() {
		return []netip.Addr{t.Addr}, nil
	}
	if t.Host == "localhost" {
		return policy.LoopbackAddrs(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addrs, err := p.opts.Lookup(ctx, t.Host)
	if err == nil && len(addrs) == 0 {
		err = &net.DNSError{Err: "no addresses", Name: t.Host, IsNotFound: true}
	}
	return addrs[:min(len(addrs), maxAnswers)], err
}

// race connects to the first of addrs that answers. They are tried in turns of
// the two families, each one beside those before it when they take their time,
// at once when they are refused.
func race(ctx context.Context, dial dialFunc, addrs []netip.Addr, port uint16) (net.Conn, netip.AddrPort, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		to   netip.AddrPort
		err  error
	}
	addrs = interleave(addrs)
	results := make(chan result, len(addrs))
	running := 0
	start := func() {
		to := netip.AddrPortFrom(addrs[0], port)
		addrs = addrs[1:]
		running++
		go func() {
			conn, err := dial(ctx, "tcp", to.String())
			results <- result{conn, to, err}
		}()
	}
	// Connections that come too late are closed by whoever finds them.
	defer func() {
		if running == 0 {
			return
		}
		go func() {
			for range running {
				if r := <-results; r.err == nil {
					_ = r.conn.Close()
				}
			}
		}()
	}()
	timer := time.NewTimer(stagger)
	defer timer.Stop()
	var first error
	start()
	for {
		select {
		case r := <-results:
			running--
			if r.err == nil {
				return r.conn, r.to, nil
			}
			if first == nil {
				first = r.err
			}
			if running == 0 && len(addrs) == 0 {
				return nil, netip.AddrPort{}, first
			}
		case <-timer.C:
		case <-ctx.Done():
			return nil, netip.AddrPort{}, ctx.Err()
		}
		if len(addrs) > 0 {
			start()
			timer.Reset(stagger)
		}
	}
}

// interleave alternates the families of addrs, beginning with that of the first,
// and keeps the order within each. It returns at most maxAddrs.
func interleave(addrs []netip.Addr) []netip.Addr {
	var same, other []netip.Addr
	for _, addr := range addrs {
		if addr.Is4() == addrs[0].Is4() {
			same = append(same, addr)
		} else {
			other = append(other, addr)
		}
	}
	var turns []netip.Addr
	for len(turns) < maxAddrs && len(same)+len(other) > 0 {
		if len(same) > 0 {
			turns, same = append(turns, same[0]), same[1:]
		}
		same, other = other, same
	}
	return turns
}

// fault is why an allowed target could not be reached, in words for the
// container, which is not told which resolver there is or what the kernel said.
type fault struct {
	status int  // of HTTP
	socks  byte // reply of SOCKS5
	words  string
}

func lookupFault(err error) fault {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return fault{502, socksHostUnreachable, "name has no address"}
	case isTimeout(err):
		return fault{504, socksHostUnreachable, "lookup timed out"}
	}
	return fault{502, socksHostUnreachable, "lookup got no answer"}
}

func dialFault(err error) fault {
	var proxied *upstreamError
	switch {
	case errors.As(err, &proxied):
		return fault{502, socksFailed, proxied.words}
	case isTimeout(err):
		return fault{504, socksHostUnreachable, "connect timed out"}
	case errors.Is(err, syscall.ECONNREFUSED):
		return fault{502, socksRefused, "connection refused"}
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return fault{502, socksHostUnreachable, "host unreachable"}
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fault{502, socksFailed, "proxy has no descriptors left"}
	}
	return fault{502, socksFailed, "could not connect"}
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
