package linux

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"eggrun/internal/need"

	"golang.org/x/sys/unix"
)

// childEnv names what the test binary does instead of testing.
const childEnv = "EGGRUN_LINUX_TEST_CHILD"

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

func TestMain(m *testing.M) {
	switch mode := os.Getenv(childEnv); mode {
	case "block":
		childBlock()
	case "orphan":
		childOrphan()
	case "exec":
		childExec()
	case "headless":
		childHeadless()
	default:
		// What this process was started with is nobody's here.
		if err := CloseOnExecFrom(3); err != nil {
			panic(err)
		}
		// The race detector would have each child sleep for a second.
		os.Setenv("GORACE", "atexit_sleep_ms=0")
		os.Exit(m.Run())
	}
}

// childBlock waits for the end of the pipe on the descriptor that it is given.
func childBlock() {
	fd, _ := strconv.Atoi(os.Args[1])
	_, _ = unix.Read(fd, make([]byte, 1))
}

// childHeadless ends its first thread only.
func childHeadless() {
	runtime.LockOSThread()
	started := make(chan bool)
	go func() {
		close(started)
		var b [1]byte
		_, _ = unix.Read(0, b[:])
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}()
	<-started
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// isolated is [need.Child] in new namespaces (CLONE_NEW* flags).
func isolated(t *testing.T, flags uintptr) bool {
	t.Helper()
	return need.Child(t, syscall.SysProcAttr{Cloneflags: flags})
}

// onThread runs f on a thread that is thrown away afterwards: what it does to
// the thread's rights stays there.
func onThread(t *testing.T, f func() error) {
	t.Helper()
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		result <- f()
	}()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}

// eventually polls until ok is true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// procFile returns the text of /proc/PID/name; PID may be "thread-self".
func procFile(t *testing.T, pid any, name string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%v/%s", pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// statusField returns a field of /proc/PID/status, its values split.
func statusField(t *testing.T, pid any, name string) []string {
	t.Helper()
	for line := range strings.Lines(procFile(t, pid, "status")) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Fields(value)
		}
	}
	t.Fatalf("no %s in /proc/%v/status", name, pid)
	return nil
}

func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func wantErrno(t *testing.T, err error, want syscall.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// wantNoChild fails if this process has a child, or the zombie of one. Only for
// tests that are not parallel.
func wantNoChild(t *testing.T) {
	t.Helper()
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if !errors.Is(err, unix.ECHILD) {
		children, _ := os.ReadFile("/proc/thread-self/children")
		t.Errorf("a child is left (%v), this thread's: %q", err, children)
	}
}

// openFDs returns the numbers of the descriptors of a process, sorted.
func openFDs(t *testing.T, pid any) []int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%v/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	var fds []int
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	slices.Sort(fds)
	return fds
}

// sleep is a program that does nothing, opened for SpawnIn.
func sleep(t *testing.T) *os.File {
	t.Helper()
	var f *os.File
	need.That(t, "a program sleep", func() error {
		path, err := exec.LookPath("sleep")
		if err != nil {
			return err
		}
		f, err = os.OpenFile(path, unix.O_PATH, 0)
		return err
	})
	t.Cleanup(func() { f.Close() })
	return f
}

// spawn runs sleep as req says, and ends and reaps it after the test.
func spawn(t *testing.T, req SpawnRequest) *Child {
	t.Helper()
	if req.Exe == nil {
		req.Exe, req.Argv = sleep(t), []string{"sleep", "60"}
	}
	child, err := SpawnIn(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, child) })
	return child
}

// end kills a child and reaps it; it may have been ended before.
func end(t *testing.T, child *Child) {
	t.Helper()
	if child.Pidfd.Fd() == ^uintptr(0) {
		return
	}
	if err := PidfdSignal(child.Pidfd, unix.SIGKILL); err != nil {
		wantErrno(t, err, unix.ESRCH)
	}
	reap(child.PID)
	child.Pidfd.Close()
}

// shiftedMap maps the ids of a new user namespace to those 100000 above.
func shiftedMap(pid int) error {
	for _, file := range []string{"uid_map", "gid_map"} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, file), []byte("0 100000 65536"), 0); err != nil {
			return err
		}
	}
	return nil
}
