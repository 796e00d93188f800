package proxy

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"eggrun/policy"
)

// originalDst returns where the client of a redirected connection wanted to go.
// Connection tracking is looked up in the network namespace of the socket, so
// it works from outside of the container. The error is that of getsockopt(2):
// ENOENT when nothing was redirected, EOPNOTSUPP for MPTCP.
func originalDst(conn net.Conn) (netip.AddrPort, error) {
	raw, ok := rawConn(conn)
	if !ok {
		return netip.AddrPort{}, errors.New("connection without a descriptor")
	}
	const soOriginalDst = 80 // also IP6T_SO_ORIGINAL_DST
	v4 := addrPort(conn.LocalAddr()).Addr().Is4()
	var to netip.AddrPort
	var fault error
	err := raw.Control(func(fd uintptr) {
		if v4 {
			// An ipv6_mreq is the smallest that holds a sockaddr_in: family, port and
			// address, in the order of the network.
			var in *syscall.IPv6Mreq
			if in, fault = syscall.GetsockoptIPv6Mreq(int(fd), syscall.SOL_IP, soOriginalDst); fault == nil {
				b := in.Multiaddr
				to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), uint16(b[2])<<8|uint16(b[3]))
			}
			return
		}
		// And an ip6_mtuinfo begins with a sockaddr_in6.
		var in *syscall.IPv6MTUInfo
		if in, fault = syscall.GetsockoptIPv6MTUInfo(int(fd), syscall.SOL_IPV6, soOriginalDst); fault == nil {
			port := in.Addr.Port // in the order of the network
			to = netip.AddrPortFrom(netip.AddrFrom16(in.Addr.Addr).Unmap(), port<<8|port>>8)
		}
	})
	return to, errors.Join(err, fault)
}

// destination returns where the client wanted to go.
func (x *exchange) destination() (netip.AddrPort, error) {
	// Where there is no nftables, a listener stands on all addresses, and clients
	// of a fake one arrive at it themselves.
	if here := addrPort(x.in.LocalAddr()); policy.FakeRange.Contains(here.Addr()) {
		return here, nil
	}
	to, err := x.p.opts.OriginalDst(x.in.Conn)
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	switch addr := to.Addr(); {
	case err != nil:
		return to, err
	case !addr.IsValid() || addr.IsUnspecified() || addr.IsLoopback() || to.Port() == 0 || to == addrPort(x.in.LocalAddr()):
		return to, errNoDestination
	}
	return to, nil
}

var errNoDestination = errors.New("connection was not redirected here")

// serveTransparent serves a client who does not know of the proxy.
func (x *exchange) serveTransparent() {
	x.proto, x.voice = protoTransparent, voiceRaw
	to, err := x.destination()
	if err != nil {
		x.uri = x.in.LocalAddr().String()
		x.user(x.in.LocalAddr())
		x.refuse(x.unfit("no_destination", errNoDestination.Error(), "connect to the name that is meant"))
		return
	}
	x.user(net.TCPAddrFromAddrPort(to))
	x.target = policy.Target{Host: to.Addr().String(), Addr: to.Addr(), Port: to.Port()}
	refused := x.decide()
	// A fake address has become its name; a real one is still an address.
	atAddress := x.target.Addr.IsValid()
	switch {
	case refused == nil && x.verdict.Opaque:
		x.enterAndStream()
	case x.target.Port == httpPort:
		x.plain(atAddress)
	case refused == nil:
		x.enterAndStream()
	case atAddress:
		x.byServerName(refused)
	default:
		x.refuse(refused)
	}
}

func (x *exchange) enterAndStream() {
	if refused := x.enter(); refused != nil {
		x.refuse(refused)
		return
	}
	x.stream()
}

// byServerName serves a connection to a real address that no rule names: it is
// worth what the name in its TLS greeting is, and leads to that name, never to
// the address. refused is for a client that has none.
func (x *exchange) byServerName(refused *refusal) {
	// Before it is known where to, for a greeting may be long.
	if !x.p.enter(x) {
		x.refuse(x.tooMany())
		return
	}
	h, err := x.hear()
	named, badName := policy.ParseTarget(h.serverName + ":" + strconv.Itoa(int(x.target.Port)))
	if err == nil && badName == nil && !named.Addr.IsValid() {
		x.target = named
		refused = x.admit()
	}
	if refused != nil {
		x.refuse(refused)
		return
	}
	x.tunnel()
}
