package inside

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"eggrun/sandbox"

	"golang.org/x/sys/unix"
)

// Where the sidecar is found in the container's namespace. The ports need no
// privilege and lie below every ip_local_port_range, so that no client takes one
// by chance.
const (
	// Port is the proxy's, on 127.0.0.1 and ::1.
	Port = 3128
	// TransparentPort is where connections to other addresses are sent.
	TransparentPort = 3129
	// ResolverPort is where questions for names are sent, of TCP and UDP.
	ResolverPort = 3153

	dnsPort = 53
)

// mark is that of the sockets that may ask the engine's resolver. Setting it
// takes CAP_NET_ADMIN or CAP_NET_RAW, which no container with a policy has.
const mark = 0x65676772

// Names of the sockets of a wall. Those that end in 6 are missing where the
// namespace has no IPv6.
const (
	Proxy4       = "proxy4"
	Proxy6       = "proxy6"
	Transparent4 = "transparent4"
	Transparent6 = "transparent6"
	DNSUDP4      = "dns-udp4"
	DNSUDP6      = "dns-udp6"
	DNSTCP4      = "dns-tcp4"
	DNSTCP6      = "dns-tcp6"
	// EngineUDP4 and the like are not bound and not connected. They may ask the
	// engine's resolver, and are there when it has an address of that family, or
	// when the namespace is new and may still get one. A TCP socket can be used
	// again after connect(AF_UNSPEC).
	EngineUDP4 = "engine-udp4"
	EngineUDP6 = "engine-udp6"
	EngineTCP4 = "engine-tcp4"
	EngineTCP6 = "engine-tcp6"
	// LocalPrefix begins the names of the listeners of local ports, and the
	// port, in decimal, ends them.
	LocalPrefix = "local-"
	// PortPrefix likewise begins those of the listeners on the ports of the
	// rules, which are there without nftables only. The address that a client
	// wanted is the accepted socket's own (getsockname), not SO_ORIGINAL_DST.
	PortPrefix = "port-"
	// Diag is for [UIDOf], and Links tells of each new interface.
	Diag  = "diag"
	Links = "links"
)

// Socket is one that the sidecar serves. The file is close-on-exec.
type Socket struct {
	Name string
	File *os.File
}

// Sockets are those of one wall.
type Sockets struct {
	All []Socket
	// NoTables says that the kernel has no nftables: the namespace must stay
	// closed, and whoever holds the socket [Links] has to end the container when
	// an interface appears.
	NoTables bool
}

// Close closes all of them.
func (s *Sockets) Close() {
	for _, one := range s.All {
		one.File.Close()
	}
}

func (s *Sockets) add(name string, fd int, err error) error {
	if err != nil {
		return err
	}
	s.All = append(s.All, Socket{name, os.NewFile(uintptr(fd), name)})
	return nil
}

// listen adds a TCP listener.
func (s *Sockets) listen(name string, at netip.AddrPort) error {
	fd, err := bound(unix.SOCK_STREAM, at)
	if err == nil {
		if err = unix.Listen(fd, unix.SOMAXCONN); err != nil {
			unix.Close(fd)
			err = os.NewSyscallError("listen", err)
		}
	}
	return s.add(name, fd, err)
}

// receive adds a UDP socket.
func (s *Sockets) receive(name string, at netip.AddrPort) error {
	fd, err := bound(unix.SOCK_DGRAM, at)
	return s.add(name, fd, err)
}

// bound returns a socket with an address, which it shares with nobody. It is
// plain TCP: Go's own would be MPTCP, for which the kernel tells no original
// destination.
func bound(kind int, at netip.AddrPort) (fd int, err error) {
	family, proto := familyOf(at.Addr()), unix.IPPROTO_TCP
	if kind == unix.SOCK_DGRAM {
		proto = unix.IPPROTO_UDP
	}
	fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if family == unix.AF_INET6 {
		err = os.NewSyscallError("IPV6_V6ONLY", unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1))
	}
	if err == nil && kind == unix.SOCK_STREAM {
		// The connections of a sidecar that has ended may still be waiting for
		// late packets (TIME_WAIT), which must not keep a new one from its
		// port; the option passes to them. Nobody can listen beside a listener,
		// with it or without.
		err = os.NewSyscallError("SO_REUSEADDR", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	}
	if err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, sockaddr(at)))
	}
	if errors.Is(err, unix.EADDRINUSE) {
		err = &sandbox.EnforcementError{
			Gaps:     []string{fmt.Sprintf("domains: port %d of the network namespace is taken, by another container's proxy or a program", at.Port())},
			Platform: "give each container with a policy a network namespace of its own",
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// openMarked adds a socket that may ask the engine's resolver.
func (s *Sockets) openMarked(name string, family, kind, proto int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, mark); err != nil {
		unix.Close(fd)
		return os.NewSyscallError("SO_MARK", err)
	}
	return s.add(name, fd, nil)
}

// openNetlink adds a netlink socket that is subscribed to groups, a bit mask.
func (s *Sockets) openNetlink(name string, proto int, groups uint32) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return os.NewSyscallError("netlink socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return os.NewSyscallError("netlink bind", err)
	}
	return s.add(name, fd, nil)
}

var (
	localhost4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	localhost6 = netip.IPv6Loopback()
)

// open opens all sockets, with nftables or without.
func (w *Wall) open(tables bool) (s *Sockets, err error) {
	s = &Sockets{NoTables: !tables}
	defer func() {
		if err != nil {
			s.Close()
			s = nil
		}
	}()
	// Without redirects it has to be where it is asked: at the address that
	// resolv.conf names, and at 127.0.0.1, where libc asks without that.
	resolver4, resolver6 := netip.AddrPortFrom(netip.IPv4Unspecified(), dnsPort), netip.AddrPortFrom(localhost6, dnsPort)
	if tables {
		resolver4, resolver6 = netip.AddrPortFrom(localhost4, ResolverPort), netip.AddrPortFrom(localhost6, ResolverPort)
	}
	has6, err := hasLoopback6()
	if err != nil {
		return s, err
	}
	for _, family := range []struct {
		localhost                          netip.Addr
		resolver                           netip.AddrPort
		proxy, transparent, dnsUDP, dnsTCP string
	}{
		{localhost4, resolver4, Proxy4, Transparent4, DNSUDP4, DNSTCP4},
		{localhost6, resolver6, Proxy6, Transparent6, DNSUDP6, DNSTCP6},
	} {
		if family.localhost.Is6() && !has6 {
			continue
		}
		err = s.listen(family.proxy, netip.AddrPortFrom(family.localhost, Port))
		if err == nil && tables && w.Transparent {
			err = s.listen(family.transparent, netip.AddrPortFrom(family.localhost, TransparentPort))
		}
		if err == nil {
			err = s.receive(family.dnsUDP, family.resolver)
		}
		if err == nil {
			err = s.listen(family.dnsTCP, family.resolver)
		}
		if err != nil {
			return s, err
		}
	}
	if err := w.openPorts(s); err != nil {
		return s, err
	}
	if err := openEngine(s, has6); err != nil {
		return s, err
	}
	if err := s.openNetlink(Diag, unix.NETLINK_SOCK_DIAG, 0); err != nil {
		return s, err
	}
	return s, s.openNetlink(Links, unix.NETLINK_ROUTE, unix.RTMGRP_LINK)
}

// openPorts opens the listeners that depend on the policy.
func (w *Wall) openPorts(s *Sockets) error {
	for _, p := range w.LocalPorts {
		if err := s.listen(LocalPrefix+strconv.Itoa(int(p)), netip.AddrPortFrom(localhost4, p)); err != nil {
			return err
		}
	}
	if !s.NoTables || !w.Transparent {
		return nil
	}
	for _, p := range w.Ports {
		if p == Port || p == dnsPort || slices.Contains(w.LocalPorts, p) {
			continue // it has a listener of its own
		}
		// An address of the fake range can't be waited for alone.
		if err := s.listen(PortPrefix+strconv.Itoa(int(p)), netip.AddrPortFrom(netip.IPv4Unspecified(), p)); err != nil {
			return err
		}
	}
	return nil
}

// openEngine opens the sockets that may ask the engine's resolver, which need not
// be known yet. Without nftables the namespace is closed, and there is none.
func openEngine(s *Sockets, has6 bool) error {
	if s.NoTables {
		return nil
	}
	for _, one := range []struct {
		name                string
		family, kind, proto int
	}{
		{EngineUDP4, unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP},
		{EngineTCP4, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP},
		{EngineUDP6, unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP},
		{EngineTCP6, unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP},
	} {
		if one.family == unix.AF_INET6 && !has6 {
			continue
		}
		if err := s.openMarked(one.name, one.family, one.kind, one.proto); err != nil {
			return err
		}
	}
	return nil
}

// hasLoopback6 tells whether something can listen on ::1: a kernel can lack
// IPv6, and a namespace can have it turned off.
func hasLoopback6() (bool, error) {
	fd, err := bound(unix.SOCK_DGRAM, netip.AddrPortFrom(localhost6, 0))
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, unix.Close(fd)
}
