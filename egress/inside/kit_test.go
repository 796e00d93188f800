package inside

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"eggrun/internal/need"
	"eggrun/policy"

	"golang.org/x/sys/unix"
)

// isolated runs the calling test once more, in child processes with a network
// namespace of their own, as root and as root of a user namespace; see
// [need.Child].
func isolated(t *testing.T) bool {
	t.Helper()
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	return need.Child(t, syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}) ||
		need.Child(t, syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids})
}

// ip calls ip(8) in the calling thread's network namespace.
func ip(t *testing.T, args ...string) {
	t.Helper()
	need.That(t, "ip "+strings.Join(args, " "), func() error {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// Addresses of a world, beside those of ip(8)'s commands below.
var (
	gateway4 = netip.MustParseAddr("10.77.0.1")
	gateway6 = netip.MustParseAddr("fd77::1")
	own4     = netip.MustParseAddr("10.77.0.2")
	own6     = netip.MustParseAddr("fd77::2")
	peer4    = netip.MustParseAddr("10.77.0.3")
	peer6    = netip.MustParseAddr("fd77::3")
	evil4    = netip.MustParseAddr("203.0.113.9")
	evil6    = netip.MustParseAddr("2001:db8::9")
	fake     = netip.MustParseAddr("198.18.0.7")
)

// A world is a container's network namespace, joined by a veth pair to the
// test's own, which is the host: the bridge, the peers and everybody else.
type world struct {
	t     *testing.T
	netNS *os.File
	// wire is a packet socket on the host's end.
	wire int
	// hostLink is the link-local address of the host's end.
	hostLink netip.Addr
}

// newWorld makes both ends and their routes. routes is whether the container has
// default routes.
func newWorld(t *testing.T, routes bool) *world {
	t.Helper()
	w := &world{t: t, wire: -1}
	made := make(chan error)
	pid := make(chan int)
	done := make(chan struct{})
	go func() { // its thread is what ip(8) finds the namespace by
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			w.netNS, err = os.Open("/proc/thread-self/ns/net")
		}
		made <- err
		pid <- unix.Gettid()
		<-done
	}()
	need.That(t, "network namespaces", func() error { return <-made })
	defer close(done)
	t.Cleanup(func() { w.netNS.Close() })
	host := []string{
		"link set lo up",
		fmt.Sprintf("link add h0 type veth peer name eth0 netns %d", <-pid),
		"link set h0 up",
		"addr add 10.77.0.1/24 dev h0",
		"addr add 10.77.0.3/24 dev h0",
		"addr add 203.0.113.9/32 dev lo",
		"-6 addr add fd77::1/64 dev h0 nodad",
		"-6 addr add fd77::3/64 dev h0 nodad",
		"-6 addr add 2001:db8::9/128 dev lo nodad",
	}
	container := []string{
		"link set lo up",
		"link set eth0 up",
		"addr add 10.77.0.2/24 dev eth0",
		"-6 addr add fd77::2/64 dev eth0 nodad",
	}
	if routes {
		container = append(container, "route add default via 10.77.0.1", "-6 route add default via fd77::1")
	}
	// Duplicate address detection would take a second.
	setSysctl(t, "ipv6/conf/default/accept_dad", "0")
	w.inside(func() error { return writeSysctl("ipv6/conf/default/accept_dad", "0") })
	for _, line := range host {
		ip(t, strings.Fields(line)...)
	}
	w.inside(func() error {
		for _, line := range container {
			ip(t, strings.Fields(line)...)
		}
		return nil
	})
	// A bridge whose engine publishes ports may be so.
	for _, device := range []string{"all", "h0"} {
		setSysctl(t, "ipv4/conf/"+device+"/route_localnet", "1")
	}
	w.openWire()
	return w
}

func setSysctl(t *testing.T, name, value string) {
	t.Helper()
	if err := writeSysctl(name, value); err != nil {
		t.Fatal(err)
	}
}

// writeSysctl sets a sysctl of the calling thread's namespace.
func writeSysctl(name, value string) error {
	return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0)
}

// inside calls do on a thread in the container's namespace.
func (w *world) inside(do func() error) {
	w.t.Helper()
	if err := Within(w.netNS, do); err != nil {
		w.t.Fatal(err)
	}
}

// wall is one for everything that a world may be asked for.
func (w *world) wall() *Wall {
	host := []netip.Addr{gateway4, gateway6, evil4, evil6, w.hostLink}
	return &Wall{
		Transparent: true, Host: host, New: true,
		Peers: policy.Peers{OnLink: true}, Inbound: policy.Inbound{All: true},
	}
}

// build makes the wall and starts the container, as far as the network goes.
func (w *world) build(wall *Wall) *Sockets {
	w.t.Helper()
	var sockets *Sockets
	w.inside(func() (err error) {
		if sockets, err = Build(wall); err != nil {
			return err
		}
		return Recheck(wall, true)
	})
	w.t.Cleanup(sockets.Close)
	return sockets
}

func (s *Sockets) file(t *testing.T, name string) *os.File {
	t.Helper()
	i := slices.IndexFunc(s.All, func(one Socket) bool { return one.Name == name })
	if i < 0 {
		t.Fatalf("no socket %s in %v", name, s.All)
	}
	return s.All[i].File
}

// openWire opens a packet socket and waits until both ends have their IPv6
// link-local addresses.
func (w *world) openWire() {
	w.t.Helper()
	device, err := net.InterfaceByName("h0")
	if err != nil {
		w.t.Fatal(err)
	}
	const allProtocols = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8
	w.wire, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, allProtocols)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { unix.Close(w.wire) })
	if err := unix.Bind(w.wire, &unix.SockaddrLinklayer{Protocol: allProtocols, Ifindex: device.Index}); err != nil {
		w.t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(w.wire, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}); err != nil {
		w.t.Fatal(err)
	}
	eventually(w.t, "link-local addresses of both ends", func() bool {
		w.hostLink = linkLocal(w.t, "h0")
		var own netip.Addr
		w.inside(func() error { own = linkLocal(w.t, "eth0"); return nil })
		return w.hostLink.IsValid() && own.IsValid()
	})
}

// linkLocal returns a device's address below fe80::/10 that can be used.
func linkLocal(t *testing.T, device string) (found netip.Addr) {
	t.Helper()
	out, err := exec.Command("ip", "-6", "-o", "addr", "show", "dev", device, "scope", "link", "-tentative").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range strings.Fields(string(out)) {
		if prefix, err := netip.ParsePrefix(field); err == nil {
			found = prefix.Addr()
		}
	}
	return found
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in time", what)
		}
	}
}

// left returns what left the container while attempt ran inside, as "tcp
// SOURCE>DESTINATION" and the like, each once. What IPv6 says of its own accord
// is no part of it.
func (w *world) left(attempt func() error) (packets []string) {
	w.t.Helper()
	w.inside(func() error {
		if err := attempt(); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			w.t.Logf("attempt: %v", err)
		}
		return nil
	})
	// A frame that no rule of the container sees marks the end.
	const end = "end of attempt"
	w.inside(func() error { return sendFrame("eth0", end) })
	buffer := make([]byte, 2048)
	for {
		n, from, err := unix.Recvfrom(w.wire, buffer, 0)
		if err != nil {
			w.t.Fatalf("no more frames: %v", err)
		}
		if link, ok := from.(*unix.SockaddrLinklayer); !ok || link.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if strings.HasPrefix(string(buffer[:n]), end) {
			return packets
		}
		if text := describe(buffer[:n]); text != "" && !slices.Contains(packets, text) {
			packets = append(packets, text)
		}
	}
}

// sendFrame sends a frame of a protocol that nobody speaks.
func sendFrame(device, text string) error {
	d, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const localExperimental = 0xb588 // 0x88b5 in network order
	return unix.Sendto(fd, []byte(text), 0, &unix.SockaddrLinklayer{
		Protocol: localExperimental, Ifindex: d.Index, Halen: 6, Addr: [8]byte{255, 255, 255, 255, 255, 255},
	})
}

// describe names an IP packet.
func describe(packet []byte) string {
	var source, destination netip.Addr
	var proto byte
	var body []byte
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		source, destination = netip.AddrFrom4([4]byte(packet[12:])), netip.AddrFrom4([4]byte(packet[16:]))
		proto, body = packet[9], packet[4*(packet[0]&15):]
	case len(packet) >= 40 && packet[0]>>4 == 6:
		source, destination = netip.AddrFrom16([16]byte(packet[8:])), netip.AddrFrom16([16]byte(packet[24:]))
		proto, body = packet[6], packet[40:]
	default:
		return ""
	}
	names := map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_UDPLITE: "udplite"}
	name, ok := names[proto]
	if ok && len(body) >= 4 {
		return fmt.Sprintf("%s %s>%s", name, source, netip.AddrPortFrom(destination, binary.BigEndian.Uint16(body[2:])))
	}
	const echo4, echo6 = 8, 128
	if proto == unix.IPPROTO_ICMP && body[0] == echo4 || proto == unix.IPPROTO_ICMPV6 && body[0] == echo6 {
		return fmt.Sprintf("echo %s>%s", source, destination)
	}
	return ""
}

// begin sends the first packet to an address, SYN or datagram, by a device if it
// is not "", and waits for nothing.
func begin(kind int, to netip.AddrPort, device string) error {
	fd, err := unix.Socket(familyOf(to.Addr()), kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if device != "" {
		if err := unix.BindToDevice(fd, device); err != nil {
			return err
		}
	}
	target := sockaddr(to)
	if six, ok := target.(*unix.SockaddrInet6); ok && to.Addr().Zone() != "" {
		zone, err := net.InterfaceByName(to.Addr().Zone())
		if err != nil {
			return err
		}
		six.ZoneId = uint32(zone.Index)
	}
	if err := unix.Connect(fd, target); err != nil || kind == unix.SOCK_STREAM {
		return err
	}
	_, err = unix.Write(fd, []byte("hello"))
	return err
}
