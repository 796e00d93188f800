package container

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"eggrun/internal/need"

	"golang.org/x/sys/unix"
)

// unifiedRoot returns where cgroup v2 is mounted.
func unifiedRoot(t *testing.T) string {
	t.Helper()
	root := ""
	need.That(t, "a mount of cgroup v2", func() error {
		f, err := os.Open("/proc/self/mountinfo")
		if err != nil {
			return err
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			mount, kind, _ := strings.Cut(lines.Text(), " - ")
			if strings.HasPrefix(kind, "cgroup2 ") {
				root = strings.Fields(mount)[4]
				return nil
			}
		}
		return os.ErrNotExist
	})
	return root
}

// TestOOMWatchPolls has another file of cgroup v2 than memory.events, of the
// same kind, change: it must wake the watch each time, and only then.
func TestOOMWatchPolls(t *testing.T) {
	t.Parallel()
	need.Root(t)
	dir, err := os.MkdirTemp(unifiedRoot(t), "eggrun-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	w := &oomWatch{events: unix.POLLPRI}
	if w.file, err = os.Open(filepath.Join(dir, "cgroup.events")); err != nil {
		t.Fatal(err)
	}
	defer w.close()
	kills := uint64(3)
	w.look = w.newKills(func() (uint64, error) { return kills, nil })
	pidfd := pidfdOf(t)
	check := func(when string, until time.Time, wantOOM bool) {
		t.Helper()
		isOOM, ended, err := w.wait(pidfd, until)
		if isOOM != wantOOM || ended || err != nil {
			t.Errorf("%s: memory ran out: %v, ended: %v, error %v", when, isOOM, ended, err)
		}
		if !until.IsZero() && !time.Now().Before(until) {
			t.Fatalf("%s: nothing woke the watch", when)
		}
	}
	later := time.Now().Add(20 * time.Second)
	freeze := func(value string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check("first look", time.Time{}, true)
	check("nothing new", time.Time{}, false)
	for _, value := range []string{"1", "0", "1"} {
		kills++
		freeze(value)
		check("killed", later, true)
		other := map[string]string{"1": "0", "0": "1"}[value]
		freeze(other)
		check("another change", later, false)
		freeze(value)
		check("and back", later, false)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	check("removed", time.Time{}, false)
	if w.file != nil {
		t.Error("still polls the file of a cgroup that is gone")
	}
}

// pidfdOf returns a pidfd of a process that runs until the test ends.
func pidfdOf(t *testing.T) *os.File {
	t.Helper()
	init, _ := startProcess(t)
	pidfd, err := init.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pidfd.Close() })
	return pidfd
}

func TestOOMWatchEnds(t *testing.T) {
	t.Parallel()
	init, cmd := startProcess(t)
	pidfd, err := init.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer pidfd.Close()
	w := &oomWatch{}
	if isOOM, ended, err := w.wait(pidfd, time.Now()); isOOM || ended || err != nil {
		t.Errorf("running: %v, %v, %v", isOOM, ended, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if isOOM, ended, err := w.wait(pidfd, time.Now().Add(time.Hour)); isOOM || !ended || err != nil {
		t.Errorf("killed: %v, %v, %v", isOOM, ended, err)
	}
}
