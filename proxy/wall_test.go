package proxy

import (
	"io"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"eggrun/egress/inside"
	"eggrun/internal/need"
	"eggrun/policy"

	"golang.org/x/sys/unix"
)

// TestBehindTheWall has clients in a namespace of their own, behind the real
// nftables, while the proxy is outside: where they wanted to go is what the
// kernel says.
func TestBehindTheWall(t *testing.T) {
	t.Parallel()
	need.Root(t)
	need.That(t, "ip", func() error { _, err := exec.LookPath("ip"); return err })
	f := toOrigin(origin(t, echo), 8443, 9)
	f.routes["8.8.8.8:9"], f.routes["[2600::1]:9"] = f.routes["9.9.9.9:443"], f.routes["9.9.9.9:443"]
	lines := new(sink)
	clients := make(chan func())
	sockets := walled(t, clients)
	var diag sync.Mutex
	p := New(Options{
		Policy: matching(t, policy.SNIMatch, "good.test:8443", "8.8.8.8:9", "[2600::1]:9"),
		Lookup: f.Lookup, Dial: f.Dial, Audit: lines,
		NameOf: func(addr netip.Addr) (string, bool) { return "good.test", addr == fake },
		UIDOf: func(local, remote netip.AddrPort) (int, bool) {
			diag.Lock()
			defer diag.Unlock()
			for _, s := range sockets.All {
				if s.Name == inside.Diag {
					owner, err := inside.UIDOf(s.File, local, remote)
					return int(owner.UID), err == nil
				}
			}
			return 0, false
		},
	})
	t.Cleanup(func() { _ = p.Close() })
	for _, s := range sockets.All {
		if s.Name != inside.Transparent4 && s.Name != inside.Transparent6 {
			continue
		}
		l, err := net.FileListener(s.File)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = p.ServeTransparent(l) }()
	}
	for _, tt := range []struct{ to, host, decision string }{
		{"198.18.0.7:8443", "good.test", "allow"},
		{"198.18.0.7:22", "good.test", "deny"},
		{"198.18.0.9:8443", "198.18.0.9", "deny"},
		{"8.8.8.8:9", "8.8.8.8", "allow"},
		{"8.8.4.4:9", "8.8.4.4", "deny"},
		{"[2600::1]:9", "2600::1", "allow"},
		{"[2600::2]:9", "2600::2", "deny"},
	} {
		answer := make(chan string, 1)
		clients <- func() { answer <- sayHello(tt.to) }
		got := <-answer
		if want := tt.decision == "allow"; (got == "hello") != want {
			t.Errorf("%s: %q", tt.to, got)
		}
		eventually(t, "a line for "+tt.to, func() bool {
			lines.mu.Lock()
			defer lines.mu.Unlock()
			for _, l := range lines.lines {
				if l["event"] == "decision" && l["host"] == tt.host && l["decision"] == tt.decision && l["uid"] == 0.0 {
					return true
				}
			}
			return false
		})
	}
}

// sayHello says so to an address and returns the answer, or what went wrong.
func sayHello(to string) string {
	conn, err := net.DialTimeout("tcp", to, patience)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, "hello"); err != nil {
		return err.Error()
	}
	got := make([]byte, len("hello"))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err.Error()
	}
	return string(got)
}

// walled makes a network namespace with a wall and returns its sockets. What
// comes over do runs inside, until the test ends.
func walled(t *testing.T, do <-chan func()) *inside.Sockets {
	t.Helper()
	type result struct {
		sockets *inside.Sockets
		err     error
	}
	results := make(chan result, 1)
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the namespace
		err := unix.Unshare(unix.CLONE_NEWNET)
		var sockets *inside.Sockets
		if err == nil {
			sockets, err = inside.Build(&inside.Wall{Transparent: true})
		}
		// A way out that leads nowhere, as an engine would make it.
		for _, args := range []string{
			"link add e0 type veth peer name e1", "link set e0 up", "link set e1 up",
			"addr add 10.77.0.2/24 dev e0", "route add default via 10.77.0.1",
			"addr add fd77::2/64 dev e0 nodad", "-6 route add default via fd77::1",
		} {
			if err == nil {
				err = exec.Command("ip", strings.Fields(args)...).Run()
			}
		}
		results <- result{sockets, err}
		for {
			select {
			case f := <-do:
				f()
			case <-end:
				return
			}
		}
	}()
	r := <-results
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(r.sockets.Close)
	return r.sockets
}
