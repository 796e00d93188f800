package inside

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"eggrun/sandbox"

	"golang.org/x/sys/unix"
)

// link is a network interface; flags are IFF_* bits, kind is "" for hardware.
type link struct {
	index      uint32
	name, kind string
	flags      uint32
	// prefixes are the addresses with the size of their networks, not masked.
	prefixes []netip.Prefix
}

// fallbackKinds are those of the devices that the kernel makes in each new
// namespace when their module is loaded: "tunl0" of kind "ipip" and so on. They
// carry nothing until somebody with CAP_NET_ADMIN configures them, and then only
// over another device; see net.core.fb_tunnels_only_for_init_net.
var fallbackKinds = []string{"sit", "ipip", "gre", "gretap", "erspan", "vti", "vti6", "ip6tnl", "ip6gre"}

// leadsOut tells whether traffic could leave the namespace by the interface.
func (l *link) leadsOut() bool {
	isFallback := slices.Contains(fallbackKinds, l.kind) && l.flags&unix.IFF_UP == 0
	return l.flags&unix.IFF_LOOPBACK == 0 && !isFallback
}

// CheckClosed returns an [sandbox.EnforcementError] that names the interfaces
// through which the calling thread's network namespace could be left.
func CheckClosed() error {
	links, err := listLinks()
	if err != nil {
		return err
	}
	var open []string
	for i := range links {
		if links[i].leadsOut() {
			open = append(open, links[i].name)
		}
	}
	if open == nil {
		return nil
	}
	return &sandbox.EnforcementError{
		Gaps:     []string{"domains: the network namespace has a way out by " + strings.Join(open, ", ")},
		Platform: "run with --network none",
	}
}

// dump returns the answers of one type to a request for a whole table of the
// calling thread's network namespace.
func dump(request int, answer uint16, what string) ([]syscall.NetlinkMessage, error) {
	table, err := syscall.NetlinkRIB(request, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", what, err)
	}
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", what, err)
	}
	return slices.DeleteFunc(messages, func(m syscall.NetlinkMessage) bool { return m.Header.Type != answer }), nil
}

// listLinks returns the interfaces of the calling thread's network namespace,
// without their addresses.
func listLinks() (links []link, err error) {
	messages, err := dump(unix.RTM_GETLINK, unix.RTM_NEWLINK, "network interfaces")
	if err != nil {
		return nil, err
	}
	for i := range messages {
		l, err := parseLink(&messages[i])
		if err != nil {
			return nil, fmt.Errorf("list network interfaces: %w", err)
		}
		links = append(links, *l)
	}
	return links, nil
}

// parseLink reads an RTM_NEWLINK message, see rtnetlink(7).
func parseLink(m *syscall.NetlinkMessage) (*link, error) {
	if len(m.Data) < syscall.SizeofIfInfomsg {
		return nil, unix.EINVAL
	}
	attributes, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return nil, err
	}
	const indexOffset, flagsOffset = 4, 8
	l := &link{
		name:  "an unnamed interface",
		index: binary.NativeEndian.Uint32(m.Data[indexOffset:]),
		flags: binary.NativeEndian.Uint32(m.Data[flagsOffset:]),
	}
	for _, a := range attributes {
		switch a.Attr.Type {
		case unix.IFLA_IFNAME:
			l.name = unix.ByteSliceToString(a.Value)
		case unix.IFLA_LINKINFO, unix.IFLA_LINKINFO | unix.NLA_F_NESTED:
			l.kind = infoKind(a.Value)
		}
	}
	return l, nil
}

// infoKind returns IFLA_INFO_KIND of the attributes nested in IFLA_LINKINFO.
func infoKind(nested []byte) string {
	const header = unix.SizeofRtAttr
	for len(nested) >= header {
		size := int(binary.NativeEndian.Uint16(nested))
		if size < header || size > len(nested) {
			return ""
		}
		if binary.NativeEndian.Uint16(nested[2:]) == unix.IFLA_INFO_KIND {
			return unix.ByteSliceToString(nested[header:size])
		}
		nested = nested[min(len(nested), (size+3)&^3):] // attributes are aligned to 4
	}
	return ""
}

// listAddresses fills in the prefixes of the links.
func listAddresses(links []link) error {
	messages, err := dump(unix.RTM_GETADDR, unix.RTM_NEWADDR, "addresses")
	if err != nil {
		return err
	}
	for i := range messages {
		index, prefix, err := parseAddress(&messages[i])
		if err != nil {
			return fmt.Errorf("list addresses: %w", err)
		}
		for j := range links {
			if links[j].index == index && prefix.IsValid() {
				links[j].prefixes = append(links[j].prefixes, prefix)
			}
		}
	}
	return nil
}

// parseAddress reads an RTM_NEWADDR message, see rtnetlink(7). The prefix has
// the interface's own address; on a point-to-point link only the other end's
// tells the network, and then it is that.
func parseAddress(m *syscall.NetlinkMessage) (index uint32, prefix netip.Prefix, err error) {
	if len(m.Data) < syscall.SizeofIfAddrmsg {
		return 0, prefix, unix.EINVAL
	}
	attributes, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return 0, prefix, err
	}
	for _, a := range attributes {
		if address, ok := netip.AddrFromSlice(a.Value); ok && a.Attr.Type == unix.IFA_ADDRESS {
			prefix = netip.PrefixFrom(address, int(m.Data[1])) // ifa_prefixlen
		}
	}
	const indexOffset = 4
	return binary.NativeEndian.Uint32(m.Data[indexOffset:]), prefix, nil
}

// Addresses returns every address of the calling thread's network namespace.
func Addresses() (addresses []netip.Addr, err error) {
	messages, err := dump(unix.RTM_GETADDR, unix.RTM_NEWADDR, "addresses")
	if err != nil {
		return nil, err
	}
	for i := range messages {
		attributes, err := syscall.ParseNetlinkRouteAttr(&messages[i])
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		for _, a := range attributes {
			if a.Attr.Type != unix.IFA_LOCAL && a.Attr.Type != unix.IFA_ADDRESS {
				continue
			}
			if address, ok := netip.AddrFromSlice(a.Value); ok {
				addresses = append(addresses, address)
			}
		}
	}
	return addresses, nil
}

// nextHops returns the gateways of all routes of the calling thread's network
// namespace.
func nextHops() (hops []netip.Addr, err error) {
	messages, err := dump(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, "routes")
	if err != nil {
		return nil, err
	}
	for i := range messages {
		attributes, err := syscall.ParseNetlinkRouteAttr(&messages[i])
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, a := range attributes {
			hops = append(hops, gateways(a.Attr.Type&^unix.NLA_F_NESTED, a.Value)...)
		}
	}
	return hops, nil
}

// gateways are the next hops in one attribute of a route.
func gateways(kind uint16, value []byte) (hops []netip.Addr) {
	switch kind {
	case unix.RTA_VIA: // struct rtvia: a family, then the address
		value = value[min(2, len(value)):]
		fallthrough
	case unix.RTA_GATEWAY:
		if hop, ok := netip.AddrFromSlice(value); ok {
			hops = append(hops, hop)
		}
	case unix.RTA_MULTIPATH: // struct rtnexthop, each with attributes of its own
		for len(value) >= unix.SizeofRtNexthop {
			size := int(binary.NativeEndian.Uint16(value))
			if size < unix.SizeofRtNexthop || size > len(value) {
				break
			}
			nested := value[unix.SizeofRtNexthop:size]
			for len(nested) >= unix.SizeofRtAttr {
				n := int(binary.NativeEndian.Uint16(nested))
				if n < unix.SizeofRtAttr || n > len(nested) {
					break
				}
				hops = append(hops, gateways(binary.NativeEndian.Uint16(nested[2:]), nested[unix.SizeofRtAttr:n])...)
				nested = nested[min(len(nested), (n+3)&^3):]
			}
			value = value[min(len(value), (size+3)&^3):]
		}
	}
	return hops
}
