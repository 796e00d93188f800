// Package inside is what is done inside a container's network namespace to make
// the wall: the namespace is closed, the loopback is up, and the proxy's
// listener is open before the container's program can run.
package inside

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"eggrun/sandbox"

	"golang.org/x/sys/unix"
)

// Port is where the proxy listens, on 127.0.0.1 of the container's namespace.
// It lies below every ip_local_port_range, so no client takes it by chance.
const Port = 3128

// Listen makes sure that the calling thread's network namespace is closed,
// brings its loopback up and opens a TCP listener on 127.0.0.1:port there.
//
// Clients can connect from then on; the kernel queues them until the sidecar
// accepts. The socket is plain TCP (Go's own would be MPTCP), close-on-exec, and
// shares its port with nobody.
//
// A namespace that is not closed, or whose port is taken, is an
// [sandbox.EnforcementError].
func Listen(port int) (*os.File, error) {
	if err := CheckClosed(); err != nil {
		return nil, err
	}
	if err := LoopbackUp(); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return nil, os.NewSyscallError("proxy listener: socket", err)
	}
	listener := os.NewFile(uintptr(fd), "proxy listener")
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if errors.Is(err, unix.EADDRINUSE) {
		err = &sandbox.EnforcementError{
			Gaps:     []string{fmt.Sprintf("domains: port %d of the network namespace is taken, by another container's proxy or a program", port)},
			Platform: "give each container with a policy a network namespace of its own",
		}
	}
	if err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}

// fallbackKinds are those of the devices that the kernel makes in each new
// namespace when their module is loaded: "tunl0" of kind "ipip" and so on. They
// carry nothing until somebody with CAP_NET_ADMIN configures them, and then only
// over another device; see net.core.fb_tunnels_only_for_init_net.
var fallbackKinds = []string{"sit", "ipip", "gre", "gretap", "erspan", "vti", "vti6", "ip6tnl", "ip6gre"}

// CheckClosed returns an [sandbox.EnforcementError] that names the interfaces
// through which the calling thread's network namespace could be left.
func CheckClosed() error {
	table, err := syscall.NetlinkRIB(syscall.RTM_GETLINK, syscall.AF_UNSPEC)
	if err != nil {
		return fmt.Errorf("list network interfaces: %w", err)
	}
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return fmt.Errorf("list network interfaces: %w", err)
	}
	var open []string
	for i := range messages {
		if messages[i].Header.Type != syscall.RTM_NEWLINK {
			continue
		}
		link, err := parseLink(&messages[i])
		if err != nil {
			return fmt.Errorf("list network interfaces: %w", err)
		}
		if link.leadsOut() {
			open = append(open, link.name)
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

// link is a network interface; flags are IFF_* bits, kind is "" for hardware.
type link struct {
	name, kind string
	flags      uint32
}

// leadsOut tells whether traffic could leave the namespace by the interface.
func (l *link) leadsOut() bool {
	isFallback := slices.Contains(fallbackKinds, l.kind) && l.flags&unix.IFF_UP == 0
	return l.flags&unix.IFF_LOOPBACK == 0 && !isFallback
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
	const flagsOffset = 8
	l := &link{name: "an unnamed interface", flags: binary.NativeEndian.Uint32(m.Data[flagsOffset:])}
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

// LoopbackUp brings up lo of the calling thread's network namespace, unless it
// is. It needs CAP_NET_ADMIN over the namespace.
func LoopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("loopback: socket", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil {
		return os.NewSyscallError("loopback: get flags", err)
	}
	if request.Uint16()&unix.IFF_UP != 0 {
		return nil
	}
	request.SetUint16(request.Uint16() | unix.IFF_UP)
	return os.NewSyscallError("loopback: set up", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request))
}

// CheckClosedIn is [CheckClosed] for another network namespace, given by its
// file. The error wraps an errno where it can't be joined.
func CheckClosedIn(netNS *os.File) error {
	result := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, for it may not
		// be allowed to go back.
		runtime.LockOSThread()
		if err := unix.Setns(int(netNS.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- os.NewSyscallError("join network namespace", err)
			return
		}
		result <- CheckClosed()
	}()
	return <-result
}
