package linux

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCloseOnExecFrom runs in a child: it marks every descriptor there is.
func TestCloseOnExecFrom(t *testing.T) {
	if !isolated(t, 0) {
		return
	}
	var fds []int
	for range 3 {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0) // not close-on-exec
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	inherited := func() (n int) {
		for _, fd := range fds {
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			if err != nil {
				t.Fatal(err)
			}
			if flags&unix.FD_CLOEXEC == 0 {
				n++
			}
		}
		return n
	}
	wantEqual(t, "inherited before", inherited(), 3)
	if err := CloseOnExecFrom(fds[1]); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "inherited after", inherited(), 1)
	if err := CloseOnExecFrom(3); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "inherited at last", inherited(), 0)
	out, err := exec.Command("ls", "/proc/self/fd").Output()
	wantEqual(t, "descriptors of a program, error", fmt.Sprintf("%q %v", out, err), `"0\n1\n2\n3\n" <nil>`)
}

func TestFillHoles(t *testing.T) {
	if !isolated(t, 0) {
		return
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Beyond what the runtime has, and with a hole below.
	const first, count = 100, 6
	for _, fd := range []int{101, 104, first + count} {
		own, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Dup3(own, fd, 0)
			unix.Close(own)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	before := openFDs(t, "self")
	open, err := FillHoles(first, count)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "the caller's", open, []int{101, 104})
	after := append(slices.Clone(before), 100, 102, 103, 105)
	slices.Sort(after)
	wantEqual(t, "descriptors", openFDs(t, "self"), after)
	for fd := first; fd <= first+count; fd++ {
		target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil {
			t.Fatal(err)
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil {
			t.Fatal(err)
		}
		if fd == 101 || fd == 104 || fd == first+count {
			wantEqual(t, fmt.Sprint(fd), fmt.Sprint(target, " ", flags), file+" 0")
		} else {
			wantEqual(t, fmt.Sprint(fd), fmt.Sprint(target, " ", flags), fmt.Sprint("/dev/null ", unix.FD_CLOEXEC))
		}
	}
	// What is full stays as it is.
	again, err := FillHoles(first, count)
	wantEqual(t, "second time, error", fmt.Sprint(again, err), fmt.Sprint([]int{100, 101, 102, 103, 104, 105}, nil))
	none, err := FillHoles(first, 0)
	wantEqual(t, "no descriptor, error", fmt.Sprint(none, err), fmt.Sprint([]int(nil), nil))
	// A number that can't be opened is an error.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 200, Max: 200}); err != nil {
		t.Fatal(err)
	}
	_, err = FillHoles(199, 2)
	wantErrno(t, err, unix.EBADF)
}

func TestSameFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func(name string, flag int) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, name), flag|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b := open("a", 0), open("b", 0)
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "c")); err != nil {
		t.Fatal(err)
	}
	closed := open("a", 0)
	closed.Close()
	for _, tt := range []struct {
		name    string
		a, b    *os.File
		want    bool
		wantErr error
	}{
		{"other name", a, open("c", 0), true, nil},
		{"other file", a, b, false, nil},
		{"closed", a, closed, false, os.ErrClosed},
		{"closed", closed, a, false, os.ErrClosed},
	} {
		same, err := SameFile(tt.a, tt.b)
		wantEqual(t, tt.name, same, tt.want)
		wantEqual(t, tt.name+": failed", err != nil, tt.wantErr != nil)
	}
}
