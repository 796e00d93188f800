package inside

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"eggrun/policy"

	"golang.org/x/sys/unix"
)

// States of sockets, from the kernel's tcp_states.h, which UDP sockets have too.
const (
	stateTimeWait = 6
	stateClose    = 7
	stateListen   = 10

	allStates = 1<<32 - 1
)

// diagRequest is a struct inet_diag_req_v2 in its netlink message; the zero
// ends are those of a request for all sockets. See sock_diag(7).
func diagRequest(family, proto byte, flags uint16, states uint32, local, remote netip.AddrPort) []byte {
	const size = unix.SizeofNlMsghdr + 56
	m := binary.NativeEndian.AppendUint32(nil, size)
	m = binary.NativeEndian.AppendUint16(m, unix.SOCK_DIAG_BY_FAMILY)
	m = binary.NativeEndian.AppendUint16(m, flags|unix.NLM_F_REQUEST)
	m = append(m, make([]byte, 8)...) // sequence, port id
	m = append(m, family, proto, 0, 0)
	m = binary.NativeEndian.AppendUint32(m, states)
	m = binary.BigEndian.AppendUint16(m, local.Port())
	m = binary.BigEndian.AppendUint16(m, remote.Port())
	m = append(m, padded(local.Addr())...)
	m = append(m, padded(remote.Addr())...)
	m = append(m, 0, 0, 0, 0)                           // any interface
	return binary.NativeEndian.AppendUint64(m, 1<<64-1) // no cookie
}

// padded is an address in the 16 bytes that sock_diag has for it.
func padded(a netip.Addr) []byte {
	out := make([]byte, 16)
	copy(out, a.AsSlice())
	return out
}

// Owner is who holds a socket.
type Owner struct {
	// UID is in the user namespace of whoever asks.
	UID uint32
	// Inode is that of the socket, as in /proc/PID/fd; 0 when it is closed.
	Inode uint32
}

// UIDOf returns who holds the TCP socket that is bound to local and connected to
// remote in the network namespace where diag, a socket like [Diag], was opened.
// remote is what the client asked for, before any redirect.
//
// It takes no privilege. The error is ENOENT when there is no such socket. diag
// must not be used by two at a time.
func UIDOf(diag *os.File, local, remote netip.AddrPort) (Owner, error) {
	local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
	remote = netip.AddrPortFrom(remote.Addr().Unmap(), remote.Port())
	request := diagRequest(byte(familyOf(local.Addr())), unix.IPPROTO_TCP, 0, allStates, local, remote)
	var owner Owner
	found := false
	err := askDiag(diag, request, func(answer []byte) {
		// In the place of a connection that is gone the kernel may find a
		// listener.
		const portsOffset, uidOffset = 4, 64
		if binary.BigEndian.Uint16(answer[portsOffset+2:]) == remote.Port() {
			found = true
			owner.UID = binary.NativeEndian.Uint32(answer[uidOffset:])
			owner.Inode = binary.NativeEndian.Uint32(answer[uidOffset+4:])
		}
	})
	if err == nil && !found {
		err = unix.ENOENT
	}
	return owner, err
}

// askDiag sends a request and calls each with every answer, a struct
// inet_diag_msg.
func askDiag(diag *os.File, request []byte, each func(answer []byte)) error {
	raw, err := diag.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = raw.Control(func(fd uintptr) { failure = exchangeDiag(int(fd), request, each) })
	return errors.Join(err, failure)
}

func exchangeDiag(fd int, request []byte, each func(answer []byte)) error {
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sock_diag send", err)
	}
	isDump := binary.NativeEndian.Uint16(request[6:])&unix.NLM_F_DUMP != 0
	buffer := make([]byte, 32<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("sock_diag receive", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return fmt.Errorf("sock_diag: %w", err)
		}
		for _, m := range messages {
			const size = 72 // of struct inet_diag_msg
			switch {
			case m.Header.Type == unix.NLMSG_DONE:
				return nil
			case m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4:
				if errno := int32(binary.NativeEndian.Uint32(m.Data)); errno != 0 {
					return unix.Errno(-errno)
				}
				return nil
			case m.Header.Type == unix.SOCK_DIAG_BY_FAMILY && len(m.Data) >= size:
				each(m.Data)
				if !isDump {
					return nil
				}
			}
		}
	}
}

// countConnected counts the TCP and UDP sockets of the calling thread's network
// namespace that are connected to somebody outside, or are about to be.
func countConnected() (int, error) {
	own, err := Addresses()
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, os.NewSyscallError("netlink socket", err)
	}
	defer unix.Close(fd)
	// A UDP socket that waits for anybody is in the state close.
	const idle = 1<<stateTimeWait | 1<<stateClose | 1<<stateListen
	n := 0
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		for _, proto := range protocols {
			request := diagRequest(family, proto, unix.NLM_F_DUMP, allStates&^idle, netip.AddrPort{}, netip.AddrPort{})
			err := exchangeDiag(fd, request, func(answer []byte) {
				if remote := remoteOf(answer); !remote.IsLoopback() && !policy.FakeRange.Contains(remote) && !slices.Contains(own, remote) {
					n++
				}
			})
			if err != nil && !(family == unix.AF_INET6 && errors.Is(err, unix.ENOENT)) {
				return 0, err
			}
		}
	}
	return n, nil
}

// remoteOf is the other end in a struct inet_diag_msg.
func remoteOf(answer []byte) netip.Addr {
	const offset = 24
	if answer[0] == unix.AF_INET {
		return netip.AddrFrom4([4]byte(answer[offset:]))
	}
	return netip.AddrFrom16([16]byte(answer[offset:])).Unmap()
}

// Cookie returns the number of the network namespace that a socket belongs to,
// which the kernel never gives to another one while it runs. EINVAL or
// ENOPROTOOPT: Linux before 5.14, or no socket of a network. See SO_NETNS_COOKIE.
func Cookie(socket *os.File) (cookie uint64, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	if controlErr := raw.Control(func(fd uintptr) {
		cookie, err = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	}); controlErr != nil {
		return 0, controlErr
	}
	return cookie, os.NewSyscallError("SO_NETNS_COOKIE", err)
}

// OwnCookie is [Cookie] of the calling thread's network namespace.
func OwnCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	socket := os.NewFile(uintptr(fd), "socket")
	defer socket.Close()
	return Cookie(socket)
}
