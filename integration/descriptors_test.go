package integration

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPreserveFDs passes descriptors 3 and 4 and not 5.
func TestPreserveFDs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		var files []*os.File
		for _, name := range []string{"three", "four", "five"} {
			path := filepath.Join(l.dir, name)
			writeFile(t, path, name+"\n", 0o644)
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = file.Close() }()
			files = append(files, file)
		}
		r := l.runWith(invocation{args: []string{"--preserve-fds", "2"}, extraFiles: files}, sh("cat <&3; cat <&4; cat <&5; true"), quiet)
		equal(t, "output", r.stdout, "three\nfour\n")
		r = l.runWith(invocation{extraFiles: files}, sh("ls /proc/self/fd | tr '\\n' ' '; cat <&3; true"), quiet)
		equal(t, "descriptors without the flag", r.stdout, "0 1 2 3 ") // 3 is ls's own
	})
}

// TestNothingInherited looks from outside at what init holds, before and
// after start: pipes that conmon would wait for, directories of the host.
func TestNothingInherited(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = read.Close() }()
		hostDir, err := os.Open("/")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = hostDir.Close() }()
		c := l.createWith(invocation{extraFiles: []*os.File{write, hostDir}}, sh("exec sleep 1000"))
		_ = write.Close()
		// EOF now means that nobody kept the other end.
		if rest, err := io.ReadAll(read); err != nil || len(rest) > 0 {
			t.Errorf("pipe: %q (%v)", rest, err)
		}
		for fd, target := range descriptors(t, c.pid) {
			if fd > 2 && (target == "/" || strings.HasPrefix(target, l.dir+"/call")) {
				t.Errorf("created init holds descriptor %d: %s", fd, target)
			}
		}
		c.start()
		eventually(t, "sleep", func() bool { return strings.HasPrefix(procFile(t, c.pid, "cmdline"), "sleep") })
		var numbers []int
		for fd := range descriptors(t, c.pid) {
			numbers = append(numbers, fd)
		}
		slices.Sort(numbers)
		if !slices.Equal(numbers, []int{0, 1, 2}) {
			t.Errorf("descriptors of the program: %v", descriptors(t, c.pid))
		}
		equal(t, "working directory", procLink(t, c.pid, "cwd"), "/")
		l.wantSilent(l.call("delete", "--force", c.id))
	})
}

func descriptors(t *testing.T, pid int) map[int]string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]string{}
	for _, entry := range entries {
		fd, _ := strconv.Atoi(entry.Name())
		if target, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "fd", entry.Name())); err == nil {
			found[fd] = target
		}
	}
	return found
}

// TestListenFDs is socket activation: LISTEN_FDS counts only if LISTEN_PID is
// the runtime, and the container sees itself as 1.
func TestListenFDs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
		defer func() { _ = ours.Close(); _ = theirs.Close() }()
		id := l.newID()
		b := l.bundle(id, sh("echo fds $LISTEN_FDS pid $LISTEN_PID; readlink /proc/self/fd/3 | cut -d: -f1"), quiet)
		// A shell of the same process number as the runtime sets LISTEN_PID.
		runtime := l.rt
		wrapped := *l
		wrapped.rt.path = filepath.Join(l.dir, "activate")
		writeFile(t, wrapped.rt.path, "#!/bin/sh\nexport LISTEN_PID=$$\nexec "+runtime.path+" \"$@\"\n", 0o755)
		r := wrapped.invoke(invocation{args: []string{"run", "--bundle", b.dir, id}, env: []string{"LISTEN_FDS=1"}, extraFiles: []*os.File{theirs}})
		l.calls = wrapped.calls
		equal(t, "output ("+r.stderr+")", r.stdout, "fds 1 pid 1\nsocket\n")
		r = l.invoke(invocation{args: []string{"run", "--bundle", b.dir, id}, env: []string{"LISTEN_FDS=1", "LISTEN_PID=1234567"}, extraFiles: []*os.File{theirs}})
		equal(t, "output with another's LISTEN_PID", r.stdout, "fds pid\n")
	})
}
