package resolver

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"eggrun/internal/need"

	"golang.org/x/sys/unix"
)

// inNamespaces runs f on a thread with a network and a mount namespace of its own,
// where lo has the resolver's address and /etc/resolv.conf reads conf.
func inNamespaces(t *testing.T, conf string, f func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		defer close(done)
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		if err := enter(path); err != nil {
			done <- err
			return
		}
		f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// enter unshares the thread's namespaces and fits them out.
func enter(conf string) error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount(conf, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount resolv.conf: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	second, err := unix.NewIfreq("lo:1")
	if err != nil {
		return err
	}
	addr := Addr().As4()
	if err := second.SetInet4Addr(addr[:]); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, second); err != nil {
		return fmt.Errorf("give lo the resolver's address: %w", err)
	}
	return nil
}

// TestLibc asks with the resolvers that programs really use: glibc's, and
// busybox's.
func TestLibc(t *testing.T) {
	t.Parallel()
	need.Root(t)
	s := newServer(t, Options{
		Policy: rules(t, "good.test", "*.wild.test"),
		Engine: Engine{Search: []string{"dns.podman"}, IsPeer: inPeers, Upstream: newZone()},
	})
	type result struct {
		out string
		err error
	}
	address := net.JoinHostPort(Addr().String(), "53")
	results := map[string]result{}
	commands := []struct{ command, want string }{
		{"getent ahosts good.test", "198.18.0.2 STREAM good.test"},
		{"getent ahosts GOOD.test", "198.18.0.2 STREAM"},
		// AI_ADDRCONFIG and a family: needs an address that isn't 127.0.0.1.
		{"getent ahostsv4 good.test", "198.18.0.2 STREAM good.test"},
		{"getent ahostsv6 good.test", ""},
		{"getent ahosts x.wild.test", "198.18.0.3 STREAM x.wild.test"},
		{"getent hosts 198.18.0.2", "198.18.0.2 good.test"},
		// By the search domain, and two questions for each name.
		{"getent ahosts db", "10.77.0.5 STREAM db.dns.podman"},
		{"getent ahosts evil.test", ""},
		{"getent ahosts nobody", ""},
		{"getent ahosts leak.dns.evil.test", ""},
		{"busybox nslookup good.test", "Address: 198.18.0.2"},
		{"busybox nslookup -type=a x.wild.test", "Address: 198.18.0.3"},
		{"busybox nslookup evil.test", ""},
	}
	for _, tool := range []string{"getent", "busybox"} {
		need.That(t, tool, func() error { _, err := exec.LookPath(tool); return err })
	}
	inNamespaces(t, "nameserver 198.18.0.1\nsearch dns.podman\noptions ndots:5 timeout:2\n", func() {
		packets, err := net.ListenPacket("udp4", address)
		if err != nil {
			t.Error(err)
			return
		}
		listener, err := net.Listen("tcp4", address)
		if err != nil {
			t.Error(err)
			return
		}
		serveOn(t, s, packets, listener)
		for _, c := range commands {
			words := strings.Fields(c.command)
			out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
			results[c.command] = result{strings.Join(strings.Fields(string(out)), " "), err}
		}
	})
	for _, c := range commands {
		r := results[c.command]
		if (r.err == nil) != (c.want != "") || !strings.Contains(r.out, c.want) {
			t.Errorf("%s: %v, %q; want %q", c.command, r.err, r.out, c.want)
		}
	}
}
