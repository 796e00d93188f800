package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"eggrun/internal/linux"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// childEnv names what the test binary does instead of testing.
const childEnv = "EGGRUN_STATE_TEST_CHILD"

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "lock" {
		childLock(os.Args[1], os.Args[2])
		return
	}
	os.Exit(m.Run())
}

func wantEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func create(t *testing.T, root, id string) *Dir {
	t.Helper()
	d, err := Create(root, id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestCheckID(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ id, want string }{
		{"a", ""},
		{"Web_1+x-y.z", ""},
		{"-rf", ""},
		{"_", ""},
		{"a..b", ""},
		{strings.Repeat("x", 240), ""},
		{"", `container id "": invalid; `},
		{".", `container id ".": invalid; `},
		{"..", `container id "..": invalid; `},
		{".hidden", `container id ".hidden": invalid; `},
		{"a/b", `container id "a/b": invalid character '/'; `},
		{"../a", `container id "../a": invalid; `},
		{"a b", `container id "a b": invalid character ' '; `},
		{"a\x00b", `container id "a\x00b": invalid character '\x00'; `},
		{"a\nb", `container id "a\nb": invalid character '\n'; `},
		{"ä", `container id "ä": invalid character 'ä'; `},
		{strings.Repeat("x", 241), `container id "` + strings.Repeat("x", 64) + `…": invalid; `},
	} {
		err := CheckID(tt.id)
		if tt.want == "" {
			wantEqual(t, tt.id, err, nil)
		} else if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("id %q: error %v, want %s", tt.id, err, tt.want)
		}
	}
	for _, f := range []func(string, string) (*Dir, error){Create, Open, Lock} {
		root := t.TempDir()
		if _, err := f(filepath.Join(root, "root"), "../x"); err == nil || !strings.Contains(err.Error(), "invalid") {
			t.Errorf("error %v", err)
		}
		entries, err := os.ReadDir(root)
		wantEqual(t, "entries, error", fmt.Sprint(len(entries), err), "0 <nil>")
	}
}

// FuzzCheckID needs every accepted id to be one plain name of a file.
func FuzzCheckID(f *testing.F) {
	for _, id := range []string{"a", "..", "a/b", ".a", "a\x00", "-", "+", "web-1", "ä", "a\n"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if err := CheckID(id); err != nil {
			if strings.ContainsAny(err.Error(), "\n\x00") {
				t.Errorf("error of several lines: %q", err)
			}
			return
		}
		path := filepath.Join("/root", id)
		if filepath.Dir(path) != "/root" || filepath.Base(path) != id || len(id) > maxID || strings.HasPrefix(id, ".") {
			t.Errorf("accepted %q", id)
		}
		for _, c := range id {
			if c <= ' ' || c > '~' || strings.ContainsRune(`/\'"$*?;&|<>(){}[]~`+"`", c) {
				t.Errorf("accepted %q", id)
			}
		}
	})
}

func TestCreate(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "run", "eggrun")
	d := create(t, root, "a")
	for _, path := range []string{root, d.Path()} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		wantEqual(t, "mode of "+path, info.Mode(), os.ModeDir|0o700)
	}
	wantEqual(t, "path", d.Path(), filepath.Join(root, "a"))
	_, err := Create(root, "a")
	wantError(t, err, ErrExist)
	for _, f := range []func(string, string) (*Dir, error){Open, Lock} {
		_, err = f(root, "b")
		wantError(t, err, ErrNotExist)
		_, err = f(filepath.Join(root, "none"), "b")
		wantError(t, err, ErrNotExist)
	}
	// What is no directory is no state dir, also behind a link.
	if err := errors.Join(os.WriteFile(filepath.Join(root, "file"), nil, 0o600), os.Symlink("a", filepath.Join(root, "link"))); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"file", "link"} {
		_, err = Create(root, id)
		wantError(t, err, ErrExist)
		if other, err := Open(root, id); err == nil {
			other.Close()
			t.Errorf("opened %q", id)
		}
	}
	d.Close()
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	create(t, root, "a")
}

func TestSaveLoad(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	d := create(t, root, "a")
	got, err := d.Load()
	wantEqual(t, "before the first save, error", fmt.Sprintf("%+v %v", got, err), fmt.Sprintf("%+v %v", &State{ID: "a"}, nil))
	timeout := 3
	full := &State{
		OCIVersion: "1.2.0", ID: "a", Bundle: "/b", Rootfs: "/b/rootfs",
		Created: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Annotations: map[string]string{"k": "v"}, OwnerUID: 7,
		Ready: true, Init: linux.Process{PID: 12, Start: 1 << 60}, OwnPIDNamespace: true, HasProcess: true,
		Cgroup:  Cgroup{Manager: "cgroupfs", Path: "/x", Paths: map[string]string{"": "/sys/fs/cgroup/x"}},
		Hooks:   specs.Hooks{Poststop: []specs.Hook{{Path: "/h", Args: []string{"h"}, Env: []string{"A=1"}, Timeout: &timeout}}},
		Domains: []string{"a.example"}, Walled: true, Sidecar: linux.Process{PID: 13, Start: 5},
	}
	for _, s := range []*State{{ID: "a"}, full} {
		if err := d.Save(s); err != nil {
			t.Fatal(err)
		}
		reader, err := Open(root, "a")
		if err != nil {
			t.Fatal(err)
		}
		got, err := reader.Load()
		if err != nil {
			t.Fatal(err)
		}
		timeouts := got.Hooks.Poststop
		if len(timeouts) == 1 {
			wantEqual(t, "timeout", *timeouts[0].Timeout, timeout)
			timeouts[0].Timeout = &timeout
		}
		wantEqual(t, "state", got, s)
		reader.Close()
	}
	info, err := os.Stat(filepath.Join(d.Path(), "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "mode", info.Mode(), os.FileMode(0o600))
	if err := os.WriteFile(filepath.Join(d.Path(), "state.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = d.Load()
	if err == nil || !strings.HasPrefix(err.Error(), `parse "`+d.Path()+`/state.json": `) {
		t.Errorf("error %v", err)
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	_, err = d.Load()
	wantError(t, err, ErrNotExist)
}

// TestSaveIsAtomic reads while somebody writes.
func TestSaveIsAtomic(t *testing.T) {
	t.Parallel()
	t.Run("state", func(t *testing.T) { testAtomic(t, (*Dir).Save, (*Dir).Load) })
	t.Run("exec", func(t *testing.T) {
		save := func(d *Dir, s *State) error { return d.SaveExec(s) }
		testAtomic(t, save, func(d *Dir) (*State, error) {
			s := new(State)
			return s, d.LoadExec(s)
		})
	})
}

func testAtomic(t *testing.T, save func(*Dir, *State) error, load func(*Dir) (*State, error)) {
	t.Helper()
	root := t.TempDir()
	d := create(t, root, "a")
	states := []*State{
		{ID: "a", Bundle: strings.Repeat("x", 100_000)},
		{ID: "a", Bundle: "y"},
	}
	if err := save(d, states[0]); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var group sync.WaitGroup
	seen := make([]map[int]int, 4)
	for i := range seen {
		seen[i] = make(map[int]int)
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				reader, err := Open(root, "a")
				if err != nil {
					t.Error(err)
					return
				}
				s, err := load(reader)
				reader.Close()
				if err != nil {
					t.Error(err)
					return
				}
				seen[i][len(s.Bundle)]++
			}
		})
	}
	for n := range 100 {
		if err := save(d, states[n%2]); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	group.Wait()
	for _, lengths := range seen {
		for length := range lengths {
			if length != 1 && length != 100_000 {
				t.Errorf("a state with %d of its bytes", length)
			}
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	none, err := List(filepath.Join(root, "none"))
	wantEqual(t, "no root, error", fmt.Sprint(none, err), fmt.Sprint([]string(nil), nil))
	none, err = List(root)
	wantEqual(t, "empty, error", fmt.Sprint(none, err), fmt.Sprint([]string(nil), nil))
	for _, id := range []string{"b", "a", "c.d"} {
		create(t, root, id)
	}
	err = errors.Join(
		os.Mkdir(filepath.Join(root, ".cache"), 0o700),
		os.Mkdir(filepath.Join(root, "not an id"), 0o700),
		os.WriteFile(filepath.Join(root, "file"), nil, 0o600),
		os.Symlink("a", filepath.Join(root, "link")),
	)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := List(root)
	wantEqual(t, "ids, error", fmt.Sprint(ids, err), fmt.Sprint([]string{"a", "b", "c.d"}, nil))
	if _, err := List(filepath.Join(root, "file")); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("error %v", err)
	}
}
