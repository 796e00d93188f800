package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Links returns the indices of the network devices of the calling thread's
// namespace, by name.
func Links() (map[string]uint32, error) {
	links := make(map[string]uint32)
	return links, listNetlink(unix.RTM_GETLINK, unix.RTM_NEWLINK, syscall.SizeofIfInfomsg, func(body []byte, attributes []syscall.NetlinkRouteAttr) {
		for _, a := range attributes {
			if a.Attr.Type == unix.IFLA_IFNAME {
				links[strings.TrimRight(string(a.Value), "\x00")] = binary.NativeEndian.Uint32(body[4:]) // ifi_index
			}
		}
	})
}

// Address is an address of a network device, of any family: the body of an
// RTM_NEWADDR message, without what is the device's own. See rtnetlink(7).
type Address []byte

// LastingAddresses returns the addresses of a device that are permanent and of
// global scope.
func LastingAddresses(index uint32) (addresses []Address, err error) {
	// Those are set by who adds an address; the others are its state.
	const settable = unix.IFA_F_NODAD | unix.IFA_F_HOMEADDRESS | unix.IFA_F_MANAGETEMPADDR | unix.IFA_F_NOPREFIXROUTE
	err = listNetlink(unix.RTM_GETADDR, unix.RTM_NEWADDR, syscall.SizeofIfAddrmsg, func(body []byte, attributes []syscall.NetlinkRouteAttr) {
		flags, scope := uint32(body[2]), body[3]
		address := append([]byte(nil), body[:syscall.SizeofIfAddrmsg]...)
		for _, a := range attributes {
			switch a.Attr.Type {
			case unix.IFA_FLAGS:
				flags = binary.NativeEndian.Uint32(a.Value)
			case unix.IFA_ADDRESS, unix.IFA_LOCAL, unix.IFA_BROADCAST, unix.IFA_RT_PRIORITY:
				address = append(address, attribute(a.Attr.Type, a.Value)...)
			}
		}
		if binary.NativeEndian.Uint32(body[4:]) != index || scope != unix.RT_SCOPE_UNIVERSE || flags&unix.IFA_F_PERMANENT == 0 {
			return
		}
		address[2] = 0
		address = append(address, attribute(unix.IFA_FLAGS, binary.NativeEndian.AppendUint32(nil, flags&settable))...)
		addresses = append(addresses, address)
	})
	return addresses, err
}

// listNetlink calls each with every answer of that type, the fixed part of which
// has headerSize bytes.
func listNetlink(request, answer uint16, headerSize int, each func(body []byte, attributes []syscall.NetlinkRouteAttr)) error {
	table, err := syscall.NetlinkRIB(int(request), unix.AF_UNSPEC)
	if err != nil {
		return fmt.Errorf("list network devices: %w", err)
	}
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return fmt.Errorf("list network devices: %w", err)
	}
	for i := range messages {
		m := &messages[i]
		if m.Header.Type != answer || len(m.Data) < headerSize {
			continue
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(m)
		if err != nil {
			return fmt.Errorf("list network devices: %w", err)
		}
		each(m.Data, attributes)
	}
	return nil
}

// AddAddress gives a device an address. EEXIST: it has it already.
func AddAddress(index uint32, address Address) error {
	body := append([]byte(nil), address...)
	binary.NativeEndian.PutUint32(body[4:], index) // ifa_index
	return requestNetlink(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, body)
}

// MoveLink moves a device of the calling thread's network namespace into
// another one, where it is down, has no address and is called name, which may
// have a "%d" for the kernel to fill in.
//
// Where name is taken the device has moved all the same, and the error is
// EEXIST. EINVAL: the kernel moves no device of this kind; EPERM: no
// CAP_NET_ADMIN over one of the namespaces.
func MoveLink(index uint32, netNS *os.File, name string) error {
	defer runtime.KeepAlive(netNS)
	return requestNetlink(unix.RTM_NEWLINK, 0, linkHeader(index, 0),
		attribute(unix.IFLA_NET_NS_FD, binary.NativeEndian.AppendUint32(nil, uint32(netNS.Fd()))),
		attribute(unix.IFLA_IFNAME, append([]byte(name), 0)))
}

// SetLinkUp brings a device up.
func SetLinkUp(index uint32) error {
	return requestNetlink(unix.RTM_NEWLINK, 0, linkHeader(index, unix.IFF_UP))
}

// linkHeader is a struct ifinfomsg; up is IFF_UP or 0 to leave that as it is.
func linkHeader(index, up uint32) []byte {
	header := make([]byte, 4, syscall.SizeofIfInfomsg)
	header = binary.NativeEndian.AppendUint32(header, index)
	header = binary.NativeEndian.AppendUint32(header, up)
	return binary.NativeEndian.AppendUint32(header, up) // what changes
}

// attribute is a struct rtattr with its value, padded.
func attribute(kind uint16, value []byte) []byte {
	size := unix.SizeofRtAttr + len(value)
	out := binary.NativeEndian.AppendUint16(nil, uint16(size))
	out = append(binary.NativeEndian.AppendUint16(out, kind), value...)
	return append(out, make([]byte, -size&(unix.RTA_ALIGNTO-1))...)
}

// requestNetlink sends one rtnetlink message and waits for its acknowledgement.
func requestNetlink(kind, flags uint16, parts ...[]byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("netlink socket", err)
	}
	defer unix.Close(fd)
	message := make([]byte, unix.SizeofNlMsghdr)
	for _, part := range parts {
		message = append(message, part...)
	}
	binary.NativeEndian.PutUint32(message, uint32(len(message)))
	binary.NativeEndian.PutUint16(message[4:], kind)
	binary.NativeEndian.PutUint16(message[6:], flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("netlink send", err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return os.NewSyscallError("netlink receive", err)
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("netlink: unexpected answer")
	}
	if errno := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); errno != 0 {
		return unix.Errno(-errno)
	}
	return nil
}

// NewAddress returns an IPv4 address of this host alone, with the network that
// it is in: on a loopback device all of that network is the host's own.
func NewAddress(prefix netip.Prefix) Address {
	address := prefix.Addr().AsSlice()
	header := []byte{unix.AF_INET, byte(prefix.Bits()), 0, unix.RT_SCOPE_HOST, 0, 0, 0, 0}
	return slices.Concat(header, attribute(unix.IFA_LOCAL, address), attribute(unix.IFA_ADDRESS, address))
}
