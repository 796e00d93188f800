package integration

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// world is a network namespace for a container, as an engine makes it, with eth0,
// and one outside that has the other end: the bridge, the peers and the Internet.
//
//	10.77.0.2, fd77::2   the container
//	10.77.0.1, fd77::1   the gateway, which is the host
//	10.77.0.3, fd77::3   a peer
type world struct {
	*lab
	inside, outside string // files of the namespaces
	wire            int    // a packet socket on the other end
}

// newWorld makes both. With routes the container has default routes.
func (l *lab) newWorld(routes bool) *world {
	t := l.t
	t.Helper()
	l.calls++
	dir := makeDir(t, filepath.Join(l.dir, "world"+itoa(l.calls)))
	w := &world{lab: l, inside: filepath.Join(dir, "inside"), outside: filepath.Join(dir, "outside")}
	for _, file := range []string{w.inside, w.outside} {
		writeFile(t, file, "", 0o644)
		// No router and no duplicate is waited for, and programs may ping.
		l.helper("unshare", "--net="+file, "sh", "-c", "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; echo '0 2000' >/proc/sys/net/ipv4/ping_group_range; ip link set lo up")
		t.Cleanup(func() { _ = unix.Unmount(file, unix.MNT_DETACH) })
	}
	w.run(w.outside, `ip link add h0 type veth peer name eth0 && ip link set eth0 netns `+w.inside+` && ip link set h0 up &&
		for a in 10.77.0.1/24 10.77.0.3/24; do ip address add $a dev h0 || exit; done &&
		for a in fd77::1/64 fd77::3/64 fe80::1/64; do ip address add $a dev h0 nodad || exit; done &&
		echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet && echo 1 >/proc/sys/net/ipv4/conf/h0/route_localnet`)
	script := `ip link set eth0 up && ip address add 10.77.0.2/24 dev eth0 && ip address add fd77::2/64 dev eth0 nodad`
	if routes {
		script += ` && ip route add default via 10.77.0.1 && ip route add default via fd77::1`
	}
	w.run(w.inside, script)
	return w
}

// run runs a shell script in one of the namespaces.
func (w *world) run(namespace, script string) string {
	w.t.Helper()
	return w.helper("nsenter", "--net="+namespace, "sh", "-c", script)
}

// network puts a container into the world.
func (w *world) network() edit { return withNamespace(specs.NetworkNamespace, w.inside) }

// within calls do on a thread in one of the namespaces: what it opens is of there.
func (w *world) within(namespace string, do func() error) {
	w.t.Helper()
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends
		f, err := os.Open(namespace)
		if err == nil {
			defer func() { _ = f.Close() }()
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = do()
		}
		result <- err
	}()
	if err := <-result; err != nil {
		w.t.Fatal(err)
	}
}

// listen lets a canary listen for connections and datagrams in the namespace
// outside, at an address and port.
func (w *world) listen(c *canary, address string) {
	w.t.Helper()
	w.within(w.outside, func() error {
		c.stream(w.t, "tcp", address)
		c.packets(w.t, "udp", address)
		return nil
	})
}

// watch begins to record what leaves by eth0.
func (w *world) watch() {
	t := w.t
	t.Helper()
	w.within(w.outside, func() error {
		device, err := net.InterfaceByName("h0")
		if err != nil {
			return err
		}
		const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8
		if w.wire, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		if err := unix.SetsockoptTimeval(w.wire, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(patience.Seconds())}); err != nil {
			return err
		}
		return unix.Bind(w.wire, &unix.SockaddrLinklayer{Protocol: all, Ifindex: device.Index})
	})
	t.Cleanup(func() { _ = unix.Close(w.wire) })
}

// left returns what left by eth0 since watch, each once: "PROTOCOL
// DESTINATION" with the port where there is one.
func (w *world) left() []string {
	t := w.t
	t.Helper()
	// A frame that no rule sees marks the end.
	const end = "end of what is watched"
	w.within(w.inside, func() error {
		device, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		const experimental = 0xb588 // 0x88b5 in network order
		return unix.Sendto(fd, []byte(end), 0, &unix.SockaddrLinklayer{Protocol: experimental, Ifindex: device.Index, Halen: 6, Addr: [8]byte{255, 255, 255, 255, 255, 255}})
	})
	var packets []string
	buffer := make([]byte, 4096)
	for {
		n, from, err := unix.Recvfrom(w.wire, buffer, 0)
		if err != nil {
			t.Fatalf("no more frames: %v", err)
		}
		if link, ok := from.(*unix.SockaddrLinklayer); !ok || link.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if strings.HasPrefix(string(buffer[:n]), end) {
			return packets
		}
		if text := describePacket(buffer[:n]); text != "" && !slices.Contains(packets, text) {
			packets = append(packets, text)
		}
	}
}

// describePacket names an IP packet, but not what every host says by itself to
// find others.
func describePacket(packet []byte) string {
	var to netip.Addr
	var protocol byte
	var body []byte
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		to, protocol, body = netip.AddrFrom4([4]byte(packet[16:])), packet[9], packet[4*(packet[0]&15):]
	case len(packet) >= 40 && packet[0]>>4 == 6:
		to, protocol, body = netip.AddrFrom16([16]byte(packet[24:])), packet[6], packet[40:]
	default:
		return ""
	}
	const hopByHop = 0 // of multicast listeners
	name, hasPorts := map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_UDPLITE: "udplite", unix.IPPROTO_SCTP: "sctp"}[protocol]
	switch {
	case hasPorts && len(body) >= 4:
		return name + " " + netip.AddrPortFrom(to, binary.BigEndian.Uint16(body[2:])).String()
	case protocol == unix.IPPROTO_ICMPV6 || to.Is6() && protocol == hopByHop:
		return ""
	}
	return fmt.Sprintf("protocol %d %s", protocol, to)
}

// TestDescribePacket: the control of all that watch a wire is that they see.
func TestDescribePacket(t *testing.T) {
	t.Parallel()
	four := append([]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 203, 0, 113, 9}, 0, 1, 0, 53, 0, 8, 0, 0)
	equal(t, "UDP", describePacket(four), "udp 203.0.113.9:53")
	four[9] = unix.IPPROTO_IGMP
	equal(t, "IGMP", describePacket(four), "protocol 2 203.0.113.9")
	equal(t, "no IP", describePacket([]byte("end of what is watched")), "")
}
