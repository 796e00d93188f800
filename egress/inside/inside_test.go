package inside

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"eggrun/sandbox"

	"golang.org/x/sys/unix"
)

// wantGap needs err to be an EnforcementError with exactly this text.
func wantGap(t *testing.T, err error, want string) {
	t.Helper()
	var enforcement *sandbox.EnforcementError
	if !errors.As(err, &enforcement) || err.Error() != want {
		t.Errorf("error %v, want the EnforcementError %s", err, want)
	}
}

func option(t *testing.T, f *os.File, name int) int {
	t.Helper()
	value, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, name)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// listen opens a listener as that of the proxy.
func listen(port uint16) (*os.File, error) {
	if err := LoopbackUp(); err != nil {
		return nil, err
	}
	var s Sockets
	if err := s.listen(Proxy4, netip.AddrPortFrom(localhost4, port)); err != nil {
		return nil, err
	}
	return s.All[0].File, nil
}

func TestListen(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	if lo, err := net.InterfaceByName("lo"); err != nil || lo.Flags&net.FlagUp != 0 {
		t.Fatalf("lo is %v (%v) in a new namespace", lo, err)
	}
	f, err := listen(Port)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if lo, err := net.InterfaceByName("lo"); err != nil || lo.Flags&net.FlagUp == 0 {
		t.Errorf("lo is %v (%v)", lo, err)
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
	got := []int{flags, option(t, f, unix.SO_PROTOCOL), option(t, f, unix.SO_REUSEADDR), option(t, f, unix.SO_REUSEPORT), option(t, f, unix.SO_ACCEPTCONN)}
	if want := []int{unix.FD_CLOEXEC, unix.IPPROTO_TCP, 1, 0, 1}; err != nil || !slices.Equal(got, want) {
		t.Errorf("flags, protocol, reuse of address and port, listening: %v (%v), want %v", got, err, want)
	}
	// Nobody accepts yet.
	address := fmt.Sprintf("127.0.0.1:%d", Port)
	var clients []net.Conn
	for range 100 {
		conn, err := net.DialTimeout("tcp4", address, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("early")); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, conn)
	}
	for _, elsewhere := range []string{fmt.Sprintf("127.0.0.2:%d", Port), fmt.Sprintf("[::1]:%d", Port)} {
		if _, err := net.Dial("tcp", elsewhere); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connect %s: %v, want refused", elsewhere, err)
		}
	}
	listener, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for range clients {
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 5)
		if _, err := io.ReadFull(conn, text); err != nil || string(text) != "early" {
			t.Errorf("read %q, error %v", text, err)
		}
		conn.Close()
	}
	_, err = listen(Port)
	wantGap(t, err, fmt.Sprintf("cannot enforce domains: port %d of the network namespace is taken, "+
		"by another container's proxy or a program; give each container with a policy a network namespace of its own", Port))
	other, err := listen(Port + 1)
	if err != nil {
		t.Errorf("another port: %v", err)
	}
	other.Close()
	// With the listener gone nobody waits.
	listener.Close()
	f.Close()
	if _, err := net.Dial("tcp4", address); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("connect to nobody: %v, want refused", err)
	}
}

// TestOpenNamespace has interfaces beside lo. Up or down makes no difference:
// who may bring one up is not known.
func TestOpenNamespace(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	if err := CheckClosed(); err != nil {
		t.Errorf("a new namespace: %v", err)
	}
	const text = "cannot enforce domains: the network namespace has a way out by v0, v1; run with --network none"
	ip(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	wantGap(t, sorted(CheckClosed()), text)
	ip(t, "link", "set", "v0", "up")
	wantGap(t, sorted(CheckClosed()), text)
	if lo, err := net.InterfaceByName("lo"); err != nil || lo.Flags&net.FlagUp != 0 {
		t.Errorf("lo is %v (%v) in a namespace that was refused", lo, err)
	}
	ip(t, "link", "delete", "v0")
	if err := CheckClosed(); err != nil {
		t.Errorf("with the interface gone: %v", err)
	}
}

// sorted puts the two names of a pair in their order: the peer comes first in
// the kernel's list.
func sorted(err error) error {
	var enforcement *sandbox.EnforcementError
	if errors.As(err, &enforcement) && len(enforcement.Gaps) == 1 {
		enforcement.Gaps[0] = strings.Replace(enforcement.Gaps[0], "v1, v0", "v0, v1", 1)
	}
	return err
}

// TestLeadsOut needs the devices that the kernel makes by itself to be
// tolerated, but only while they are down, and by their kind.
func TestLeadsOut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		link link
		want bool
	}{
		{link{name: "lo", kind: "", flags: unix.IFF_LOOPBACK | unix.IFF_UP}, false},
		{link{name: "lo", kind: "", flags: unix.IFF_LOOPBACK}, false},
		{link{name: "tunl0", kind: "ipip", flags: 0}, false},
		{link{name: "tunl0", kind: "ipip", flags: unix.IFF_UP}, true},
		{link{name: "eth0", kind: "", flags: unix.IFF_UP}, true},
		{link{name: "eth0", kind: "veth", flags: 0}, true},
		{link{name: "tunl0", kind: "veth", flags: 0}, true},
		{link{name: "tunl0", kind: "", flags: 0}, true},
	} {
		if got := tt.link.leadsOut(); got != tt.want {
			t.Errorf("%+v: %v", tt.link, got)
		}
	}
}

// TestFallbackNames needs a device that only has the name of one of them to be
// seen.
func TestFallbackNames(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	ip(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	wantGap(t, sorted(CheckClosed()), "cannot enforce domains: the network namespace has a way out by v0, v1; run with --network none")
	messages, err := syscall.NetlinkRIB(syscall.RTM_GETLINK, syscall.AF_UNSPEC)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := syscall.ParseNetlinkMessage(messages)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for i := range parsed {
		if l, err := parseLink(&parsed[i]); err == nil {
			kinds[l.name] = l.kind
		}
	}
	if kinds["lo"] != "" || kinds["v0"] != "veth" || kinds["v1"] != "veth" {
		t.Errorf("kinds %q, want veth for v0 and v1", kinds)
	}
}

// TestParseLink needs what can't be read to be an error, not a closed namespace.
func TestParseLink(t *testing.T) {
	t.Parallel()
	info := func(flags byte) []byte {
		data := make([]byte, syscall.SizeofIfInfomsg)
		data[8] = flags
		return data
	}
	name := []byte{8, 0, unix.IFLA_IFNAME, 0, 'l', 'o', 0, 0}
	for _, tt := range []struct {
		what, data, want string
	}{
		{"whole", string(info(unix.IFF_UP|unix.IFF_LOOPBACK)) + string(name), `&{0 lo  9 []} <nil>`},
		{"no name", string(info(unix.IFF_UP)), `&{0 an unnamed interface  1 []} <nil>`},
		{"kind", string(info(0)) + "\x0c\x00\x12\x00\x08\x00\x01\x00sit\x00", `&{0 an unnamed interface sit 0 []} <nil>`},
		{"broken kind", string(info(0)) + "\x0c\x00\x12\x00\x09\x00\x01\x00sit\x00", `&{0 an unnamed interface  0 []} <nil>`},
		{"short", string(info(0)[:15]), `<nil> invalid argument`},
		{"nothing", "", `<nil> invalid argument`},
		{"broken attribute", string(info(0)) + "\xff\xff\x03\x00", `<nil> invalid argument`},
	} {
		m := &syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: syscall.RTM_NEWLINK}, Data: []byte(tt.data)}
		got, err := parseLink(m)
		if text := fmt.Sprintf("%v %v", got, err); text != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, text, tt.want)
		}
	}
}

// TestCheckClosedIn looks into another namespace and comes back.
func TestCheckClosedIn(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	// This process's own namespace is open, the other one is not, and then
	// the other way round.
	ip(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	other := newNamespace(t)
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	const text = "cannot enforce domains: the network namespace has a way out by v0, v1; run with --network none"
	for range 10 {
		if err := CheckClosedIn(other); err != nil {
			t.Errorf("closed namespace: %v", err)
		}
		wantGap(t, sorted(CheckClosedIn(own)), text)
		wantGap(t, sorted(CheckClosed()), text)
	}
	fd := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), other.Fd())
	for _, name := range []string{"v0", "v1"} {
		ip(t, "link", "set", name, "netns", fd)
	}
	wantGap(t, sorted(CheckClosedIn(other)), text)
	if err := CheckClosed(); err != nil {
		t.Errorf("own namespace: %v", err)
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	err = CheckClosedIn(null)
	var enforcement *sandbox.EnforcementError
	if !errors.Is(err, unix.EINVAL) || errors.As(err, &enforcement) {
		t.Errorf("no namespace: %v, want EINVAL", err)
	}
}

// newNamespace returns a network namespace that nobody is in.
func newNamespace(t *testing.T) *os.File {
	t.Helper()
	type result struct {
		f   *os.File
		err error
	}
	results := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			results <- result{nil, err}
			return
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		results <- result{f, err}
	}()
	r := <-results
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { r.f.Close() })
	return r.f
}
