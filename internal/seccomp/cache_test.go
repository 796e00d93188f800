//go:build cgo

package seccomp

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"eggrun/internal/need"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// counter compiles a filter of its own and counts how often it is asked to.
type counter struct {
	filter Filter
	calls  int
}

func (c *counter) compile() (*Filter, error) {
	c.calls++
	return &c.filter, nil
}

func newCounter() *counter {
	return &counter{filter: Filter{Program: []byte("12345678abcdefgh"), Flags: unix.SECCOMP_FILTER_FLAG_LOG}}
}

// ask asks for the same profile as always.
func (c *counter) ask(t *testing.T, dir string) {
	t.Helper()
	f, err := cached(dir, "test", &specs.LinuxSeccomp{DefaultAction: specs.ActAllow}, c.compile)
	if err != nil || !bytes.Equal(f.Program, c.filter.Program) || f.Flags != c.filter.Flags {
		t.Fatalf("cached = %+v, %v, want %+v", f, err, c.filter)
	}
}

// theEntry returns the path of the only file in dir.
func theEntry(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v, want one entry", entries, err)
	}
	return filepath.Join(dir, entries[0].Name())
}

func TestCacheHit(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "on", "demand")
	c := newCounter()
	c.ask(t, dir)
	c.ask(t, dir)
	if c.calls != 1 {
		t.Errorf("compiled %d times, want once", c.calls)
	}
	for path, want := range map[string]os.FileMode{dir: os.ModeDir | 0o700, theEntry(t, dir): 0o600} {
		if fi, err := os.Stat(path); err != nil || fi.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, fi.Mode(), err, want)
		}
	}
}

func TestCacheOff(t *testing.T) {
	t.Parallel()
	c := newCounter()
	c.ask(t, "")
	c.ask(t, "")
	if c.calls != 2 {
		t.Errorf("compiled %d times, want twice", c.calls)
	}
}

func TestCacheCompileError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	want := errors.New("no")
	for range 2 {
		f, err := cached(dir, "test", &specs.LinuxSeccomp{}, func() (*Filter, error) { return nil, want })
		if f != nil || !errors.Is(err, want) {
			t.Errorf("cached = %v, %v", f, err)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("%v is kept", entries)
	}
}

func TestCacheRepairsEntry(t *testing.T) {
	t.Parallel()
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[at] ^= 1; return b }
	}
	tests := []struct {
		name   string
		damage func([]byte) []byte
	}{
		{"magic", flip(0)},
		{"hash", flip(len(cacheMagic))},
		{"flags", flip(hashEnd)},
		{"program", flip(headerLen + 3)},
		{"cut off", func(b []byte) []byte { return b[:len(b)-1] }},
		{"one instruction less", func(b []byte) []byte { return b[:len(b)-insnSize] }},
		{"only a header", func(b []byte) []byte { return b[:headerLen] }},
		{"half a header", func(b []byte) []byte { return b[:10] }},
		{"empty", func([]byte) []byte { return nil }},
		{"longer", func(b []byte) []byte { return append(b, 0) }},
		{"huge", func(b []byte) []byte { return append(b, make([]byte, 1<<20)...) }},
		{"well hashed but no program", func([]byte) []byte { return encodeEntry(&Filter{Program: []byte("123")}) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := newCounter()
			c.ask(t, dir)
			path := theEntry(t, dir)
			entry, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, tt.damage(entry), 0o600); err != nil {
				t.Fatal(err)
			}
			c.ask(t, dir)
			if c.calls != 2 {
				t.Errorf("compiled %d times, want twice", c.calls)
			}
			c.ask(t, dir)
			if c.calls != 2 || theEntry(t, dir) != path {
				t.Error("the entry is not repaired")
			}
		})
	}
}

// TestCacheUntrusted has an entry in the cache that somebody else could have
// written, and expects it not to be used.
func TestCacheUntrusted(t *testing.T) {
	t.Parallel()
	const nobody = 65534
	replace := func(t *testing.T, path string, with func(old string) error) {
		t.Helper()
		old := path + ".old"
		if err := errors.Join(os.Rename(path, old), with(old)); err != nil {
			t.Fatal(err)
		}
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name     string
		root     bool
		distrust func(t *testing.T, dir, entry string)
	}{
		{"directory of somebody else", true, func(t *testing.T, dir, _ string) { must(t, os.Chown(dir, nobody, -1)) }},
		{"directory writable by the group", false, func(t *testing.T, dir, _ string) { must(t, os.Chmod(dir, 0o770)) }},
		{"directory writable by all", false, func(t *testing.T, dir, _ string) { must(t, os.Chmod(dir, 0o777|os.ModeSticky)) }},
		{"directory is a link", false, func(t *testing.T, dir, _ string) {
			replace(t, dir, func(old string) error { return os.Symlink(old, dir) })
		}},
		{"directory is a file", false, func(t *testing.T, dir, _ string) {
			replace(t, dir, func(string) error { return os.WriteFile(dir, nil, 0o600) })
		}},
		{"entry of somebody else", true, func(t *testing.T, _, entry string) { must(t, os.Chown(entry, nobody, -1)) }},
		{"entry writable by all", false, func(t *testing.T, _, entry string) { must(t, os.Chmod(entry, 0o666)) }},
		{"entry is a link", false, func(t *testing.T, _, entry string) {
			replace(t, entry, func(old string) error { return os.Symlink(old, entry) })
		}},
		{"entry is a fifo", false, func(t *testing.T, _, entry string) {
			replace(t, entry, func(string) error { return unix.Mkfifo(entry, 0o600) })
		}},
		{"entry is a directory", false, func(t *testing.T, _, entry string) {
			replace(t, entry, func(string) error { return os.Mkdir(entry, 0o700) })
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.root {
				need.Root(t)
			}
			dir := filepath.Join(t.TempDir(), "cache")
			c := newCounter()
			c.ask(t, dir)
			c.ask(t, dir)
			if c.calls != 1 {
				t.Fatal("control: the entry is not used to begin with")
			}
			tt.distrust(t, dir, theEntry(t, dir))
			c.ask(t, dir)
			if c.calls != 2 {
				t.Errorf("compiled %d times, want twice", c.calls)
			}
		})
	}
}

func TestCacheCannotWrite(t *testing.T) {
	t.Parallel()
	c := newCounter()
	c.ask(t, "/proc/self/fdinfo/none/here")
	c.ask(t, "/dev/null")
	if c.calls != 2 {
		t.Errorf("compiled %d times, want twice", c.calls)
	}
}

func TestCacheKey(t *testing.T) {
	t.Parallel()
	base := func() *specs.LinuxSeccomp {
		return &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{{Names: []string{"read"}, Action: specs.ActAllow}}}
	}
	key := func(kind string, change func(*specs.LinuxSeccomp)) string {
		p := base()
		change(p)
		k, err := cacheKey(kind, p)
		if err != nil || len(k) != 64 {
			t.Fatalf("key %q, %v", k, err)
		}
		return k
	}
	same := func(*specs.LinuxSeccomp) {}
	if first, second := key("profile", same), key("profile", same); first != second {
		t.Error("equal profiles have different keys")
	}
	if key("profile", same) == key("guard", same) {
		t.Error("a profile has the key of the guard")
	}
	if key("profile", func(p *specs.LinuxSeccomp) { p.ListenerPath, p.ListenerMetadata = "/a", "b" }) != key("profile", same) {
		t.Error("the agent is a part of the key")
	}
	seen := map[string]string{key("profile", same): "the profile itself"}
	for name, change := range map[string]func(*specs.LinuxSeccomp){
		"errno 0":      func(p *specs.LinuxSeccomp) { p.DefaultErrnoRet = ptr(uint(0)) },
		"empty flags":  func(p *specs.LinuxSeccomp) { p.Flags = []specs.LinuxSeccompFlag{} },
		"a flag":       func(p *specs.LinuxSeccomp) { p.Flags = []specs.LinuxSeccompFlag{flagTSYNC} },
		"architecture": func(p *specs.LinuxSeccomp) { p.Architectures = []specs.Arch{specs.ArchX86} },
		"name":         func(p *specs.LinuxSeccomp) { p.Syscalls[0].Names[0] = "write" },
		"argument":     func(p *specs.LinuxSeccomp) { p.Syscalls[0].Args = []specs.LinuxSeccompArg{{Op: specs.OpEqualTo}} },
		"argument value": func(p *specs.LinuxSeccomp) {
			p.Syscalls[0].Args = []specs.LinuxSeccompArg{{Op: specs.OpEqualTo, ValueTwo: 1}}
		},
	} {
		k := key("profile", change)
		if other, ok := seen[k]; ok {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[k] = name
	}
}

// TestCompileUsesCache plants a filter that no profile compiles to.
func TestCompileUsesCache(t *testing.T) {
	t.Parallel()
	plant := func(t *testing.T, dir string) Filter {
		t.Helper()
		planted := newCounter().filter
		if err := os.WriteFile(theEntry(t, dir), encodeEntry(&planted), 0o600); err != nil {
			t.Fatal(err)
		}
		return planted
	}
	for name, get := range map[string]func(dir string) (*Filter, error){
		"Compile": func(dir string) (*Filter, error) {
			return Compile(denying(specs.LinuxSyscall{Names: []string{"mount"}, Action: specs.ActErrno}), dir)
		},
		"Guard": Guard,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			first, err := get(dir)
			if err != nil {
				t.Fatal(err)
			}
			second, err := get(dir)
			if err != nil || !bytes.Equal(first.Program, second.Program) || first.Flags != second.Flags {
				t.Errorf("from the cache: %+v, %v, want %+v", second, err, first)
			}
			planted := plant(t, dir)
			if f, err := get(dir); err != nil || !bytes.Equal(f.Program, planted.Program) {
				t.Errorf("got %+v, %v, want what was planted", f, err)
			}
		})
	}
}

func TestCacheConcurrently(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			c := newCounter()
			f, err := cached(dir, "test", &specs.LinuxSeccomp{}, c.compile)
			if err != nil || !bytes.Equal(f.Program, c.filter.Program) {
				t.Errorf("cached = %+v, %v", f, err)
			}
		})
	}
	wg.Wait()
	theEntry(t, dir)
}
