package egress

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"eggrun/internal/need"

	"golang.org/x/sys/unix"
)

// TestAuditHalves needs a file that would become too large to keep its newer
// lines, whole.
func TestAuditHalves(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "audit"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const limit = 1000
	a, err := newAuditFile(f, limit)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 500 {
		if _, err := fmt.Fprintf(a, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	// What was there before stays when it is opened again.
	if a, err = newAuditFile(f, limit); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Write([]byte("line 500\n")); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(f.Name())
	if err != nil || len(data) > limit || len(data) < limit/2 {
		t.Fatalf("%d bytes (%v), want at most %d and at least half", len(data), err, limit)
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	for i, line := range lines {
		wantEqual(t, "line", line, fmt.Sprintf("line %d", 501-len(lines)+i))
	}
}

// TestPruneAudits needs the oldest to go, but none that somebody writes, and
// nothing that is no audit.
func TestPruneAudits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, name := range []string{"oldest.jsonl", "written.jsonl", "older.jsonl", "newest.jsonl", "other"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
		then := time.Unix(int64(i+1)*1000, 0)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.Open(filepath.Join(dir, "written.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer written.Close()
	if err := unix.Flock(int(written.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	names := func() string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, entry := range entries {
			list = append(list, entry.Name())
		}
		return strings.Join(list, " ")
	}
	pruneAudits(dir, 400)
	wantEqual(t, "within the limit", names(), "newest.jsonl older.jsonl oldest.jsonl other written.jsonl")
	pruneAudits(dir, 399)
	wantEqual(t, "one too many", names(), "newest.jsonl older.jsonl other written.jsonl")
	pruneAudits(dir, 0)
	wantEqual(t, "all", names(), "other written.jsonl")
}

// TestAuditFullDisk has a line that finds room for half of it.
func TestAuditFullDisk(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	const page = 4096
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", page)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	f, err := os.OpenFile(filepath.Join(dir, "audit"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, err := newAuditFile(f, maxAudit)
	if err != nil {
		t.Fatal(err)
	}
	line := func(size int) []byte { return append(bytes.Repeat([]byte("x"), size-1), '\n') }
	for _, tt := range []struct {
		size int
		fits bool
	}{{page - 100, true}, {page, false}, {100, true}} {
		if _, err := a.Write(line(tt.size)); (err == nil) != tt.fits {
			t.Errorf("%d bytes: %v, want that they fit: %v", tt.size, err, tt.fits)
		}
	}
	got, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if want := append(line(page-100), line(100)...); !bytes.Equal(got, want) {
		t.Errorf("%d bytes in the file, want %d in two lines", len(got), len(want))
	}
}
