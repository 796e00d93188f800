package linux

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMountNamespace(t *testing.T) {
	t.Parallel()
	if !isolated(t, unix.CLONE_NEWNS) {
		return
	}
	child := spawn(t, SpawnRequest{New: unix.CLONE_NEWNS})
	own, err := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	there, err := EnterMountNamespace(child.Pidfd)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	var inside string
	if err := there.Do(func() (err error) {
		inside, err = os.Readlink("/proc/thread-self/ns/mnt")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if inside == own {
		t.Errorf("f ran in %s, the caller's", own)
	}
	if now, err := os.Readlink("/proc/thread-self/ns/mnt"); err != nil || now != own {
		t.Errorf("the caller is in %s, %v, want %s", now, err, own)
	}
	want := errors.New("f's")
	if err := there.Do(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("error %v, want f's", err)
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, err := EnterMountNamespace(null); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no process: %v, want EINVAL", err)
	}
}
