package egress

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"eggrun/internal/need"
	"eggrun/internal/seccomp"
	"eggrun/internal/syncsocket"

	"golang.org/x/sys/unix"
)

// attackLabel makes this test's sidecar do what a broken one would.
const attackLabel = "attack"

const kindOutcomes syncsocket.Kind = "outcomes"

// attacks are what a sidecar must not be able to do, each with its error.
var attacks = map[string]func() error{
	"read a secret":        func() error { return readable("/etc/shadow") },
	"read the host's root": func() error { return readable("/proc/self/status") },
	"write below /etc": func() error {
		f, err := os.CreateTemp("/etc", "eggrun-test-")
		if err == nil {
			f.Close()
			err = os.Remove(f.Name())
		}
		return err
	},
	"start a process": func() error {
		process, err := os.StartProcess("/proc/self/exe", []string{"eggrun", "sidecar"}, &os.ProcAttr{})
		if err == nil {
			_, err = process.Wait()
		}
		return err
	},
	"unix socket":      func() error { return openSocket(unix.AF_UNIX, unix.SOCK_STREAM, 0) },
	"packet socket":    func() error { return openSocket(unix.AF_PACKET, unix.SOCK_RAW, 0) },
	"netfilter socket": func() error { return openSocket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER) },
	"listen": func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil // it must be able to get one
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return err
		}
		return unix.Listen(fd, 1)
	},
	"executable memory": func() error {
		memory, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err == nil {
			err = unix.Munmap(memory)
		}
		return err
	},
	"signal another": func() error { return unix.Kill(os.Getppid(), 0) },
	"mount":          func() error { return unix.Mount("", "/", "", unix.MS_PRIVATE, "") },
	"dumpable":       func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) },
}

func readable(path string) error {
	f, err := os.Open(path)
	if err == nil {
		err = f.Close()
	}
	return err
}

func openSocket(family, kind, protocol int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

// outcomes tries every attack.
func outcomes() map[string]string {
	found := map[string]string{}
	for name, try := range attacks {
		found[name] = "works"
		if err := try(); err != nil {
			found[name] = "fails: " + err.Error()
		}
	}
	return found
}

// attack is the main function of a broken sidecar.
func attack() {
	control := syncsocket.New(os.NewFile(controlFD, "control"))
	var request serveRequest
	_, err := control.Expect(kindServe, &request)
	if err == nil {
		err = seccomp.Load(request.Filter, true)
	}
	if err == nil {
		err = checkCaged(request.UID)
	}
	if err != nil {
		_ = control.SendFailure(err)
		return
	}
	_ = control.Send(kindOutcomes, outcomes())
}

// TestCage needs every attack to fail in a sidecar, and to work in this process.
func TestCage(t *testing.T) {
	need.Root(t)
	for name, outcome := range outcomes() {
		wantEqual(t, name+" without a cage", outcome, "works")
	}
	launched, err := Launch(attackLabel)
	if err != nil {
		t.Fatal(err)
	}
	defer launched.End() //nolint:errcheck // it has ended by itself
	filter, err := sidecarFilter("")
	if err != nil {
		t.Fatal(err)
	}
	if err := launched.socket.Send(kindServe, &serveRequest{UID: sidecarUID, Filter: filter}); err != nil {
		t.Fatal(err)
	}
	var found map[string]string
	if _, err := launched.socket.Expect(kindOutcomes, &found); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "attacks", slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(attacks)))
	for name, outcome := range found {
		if outcome == "works" {
			t.Errorf("%s works", name)
		}
	}
	t.Log(fmt.Sprint(found))
}
