package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOneLine(t *testing.T) {
	t.Parallel()
	a, b, c := errors.New("a"), fmt.Errorf("b: %w", unix.EBUSY), &os.PathError{Op: "open", Path: "/c", Err: unix.ENOENT}
	wrapped := fmt.Errorf("%w (%w)", a, unix.EACCES)
	for _, tt := range []struct {
		in   error
		want string
	}{
		{a, "a"},
		{errors.Join(a), "a"},
		{errors.Join(nil, b, nil), "b: device or resource busy"},
		{errors.Join(a, b), "a; and then: b: device or resource busy"},
		{errors.Join(a, b, c), "a; and then: b: device or resource busy; and then: open /c: no such file or directory"},
		{errors.Join(a, errors.Join(b, errors.Join(a, c))), "a; and then: b: device or resource busy; and then: a; and then: open /c: no such file or directory"},
		// What somebody else has put together stays so.
		{wrapped, "a (permission denied)"},
		{fmt.Errorf("outer: %w", errors.Join(wrapped)), "outer: a (permission denied)"},
		{errors.Join(wrapped, a), "a (permission denied); and then: a"},
	} {
		got := oneLine(tt.in)
		if got.Error() != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
		for _, cause := range []error{a, b, c, unix.EBUSY, unix.EACCES} {
			if errors.Is(got, cause) != errors.Is(tt.in, cause) {
				t.Errorf("%q: %v is lost", got, cause)
			}
		}
	}
}

func TestWritePIDFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "pid")
	for _, pid := range []int{1234567, 8} { // the second is shorter
		if err := writePIDFile(path, pid); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil || string(text) != fmt.Sprint(pid) {
			t.Errorf("%q, error %v, want %d", text, err, pid)
		}
	}
	if err := writePIDFile("", 1); err != nil {
		t.Error(err)
	}
	if err := writePIDFile(filepath.Join(dir, "none/pid"), 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "taken/x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writePIDFile(filepath.Join(dir, "taken"), 1); err == nil {
		t.Error("wrote over a directory")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, error %v", entries, err)
	}
}

// TestPIDFileLink has a link lie where the pid is first written, as others can
// where the directory is /tmp.
func TestPIDFileLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, theirs := filepath.Join(dir, "pid"), filepath.Join(dir, "theirs")
	if err := os.WriteFile(theirs, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(theirs, filepath.Join(dir, ".pid.new")); err != nil {
		t.Fatal(err)
	}
	if err := writePIDFile(path, 17); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{path: "17", theirs: "kept"} {
		if text, err := os.ReadFile(file); err != nil || string(text) != want {
			t.Errorf("%s: %q, error %v, want %q", file, text, err, want)
		}
	}
}
