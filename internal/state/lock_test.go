package state

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childLock says when it waits for a lock and when it has it, or why not, and
// then holds it until its input ends.
func childLock(root, id string) {
	fmt.Println("waiting")
	d, err := Lock(root, id)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin)
	d.Close()
}

// locker is a process that wants the lock.
type locker struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Scanner
}

func startLocker(t *testing.T, root, id string) *locker {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", root, id)
	cmd.Env = append(os.Environ(), childEnv+"=lock")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l := &locker{t: t, cmd: cmd, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return l
}

func (l *locker) wantWord(want string) {
	l.t.Helper()
	l.out.Scan()
	wantEqual(l.t, "word of the other process", l.out.Text(), want)
}

// wantBlocked needs the process to sleep in flock.
func (l *locker) wantBlocked() {
	l.t.Helper()
	l.wantWord("waiting")
	deadline := time.Now().Add(patience)
	for {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", l.cmd.Process.Pid))
		for _, path := range tasks {
			text, _ := os.ReadFile(path)
			if strings.HasPrefix(string(text), fmt.Sprint(unix.SYS_FLOCK, " ")) {
				return
			}
		}
		if time.Now().After(deadline) {
			l.t.Fatal("the other process does not wait for the lock")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestLockTwoProcesses(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := create(t, root, "a")
	other := startLocker(t, root, "a")
	other.wantBlocked()
	// Looking needs no lock.
	reader, err := Open(root, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Load(); err != nil {
		t.Error(err)
	}
	reader.Close()
	d.Close()
	other.wantWord("locked")
	third := startLocker(t, root, "a")
	third.wantBlocked()
	// The lock goes with the process.
	if err := other.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	third.wantWord("locked")
	third.in.Close()
	d, err = Lock(root, "a")
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}

// TestLockDeleted waits for the lock of a container that is deleted meanwhile,
// and of one that is deleted and made again.
func TestLockDeleted(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"deleted": false, "made again": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			d := create(t, root, "a")
			other := startLocker(t, root, "a")
			other.wantBlocked()
			if err := d.Remove(); err != nil {
				t.Fatal(err)
			}
			if again {
				create(t, root, "a")
			}
			d.Close()
			other.wantWord(ErrNotExist.Error())
		})
	}
}
