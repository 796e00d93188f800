package linux

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"eggrun/internal/need"

	"golang.org/x/sys/unix"
)

// overwrite does what CVE-2019-5736 did: it gets hold of /proc/PID/exe of a
// process that runs exe, waits for its end, and writes to the file.
func overwrite(t *testing.T, exe *os.File) error {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	child := spawn(t, SpawnRequest{
		Exe:  exe,
		Argv: []string{"block", strconv.Itoa(int(read.Fd()))},
		Env:  append(os.Environ(), childEnv+"=block"),
		Keep: []*os.File{read},
	})
	held, err := os.OpenFile(fmt.Sprintf("/proc/%d/exe", child.PID), unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	same, err := SameFile(held, exe)
	wantEqual(t, "runs the given file, error", fmt.Sprint(same, err), "true <nil>")
	end(t, child)
	path := fmt.Sprintf("/proc/self/fd/%d", held.Fd())
	if err := unix.Chmod(path, 0o777); err != nil && !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.EPERM) {
		t.Errorf("chmod: %v", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt([]byte("#!"), 0)
	return errors.Join(err, f.Truncate(2))
}

// copiedSelf is this program in a file that can be written.
func copiedSelf(t *testing.T) *os.File {
	t.Helper()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	path := filepath.Join(t.TempDir(), "copy")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(f, self)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	exe, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { exe.Close() })
	return exe
}

func needOverlay(t *testing.T) {
	t.Helper()
	need.That(t, "overlay file systems", func() error {
		f, err := overlaySelf(t.TempDir())
		if err == nil {
			f.Close()
		}
		return err
	})
}

func TestSealedSelf(t *testing.T) {
	need.Root(t)
	if err := overwrite(t, copiedSelf(t)); err != nil {
		t.Errorf("the attack on a plain copy: %v, want success", err)
	}
	before, err := os.Stat("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		make func() (*os.File, error)
		want error
	}{
		{"overlay", func() (*os.File, error) { return overlaySelf(t.TempDir()) }, unix.EROFS},
		{"memfd", UnreadableSelf, unix.EPERM},
		{"whichever", func() (*os.File, error) { return SealedSelf(t.TempDir()) }, unix.EROFS},
		{"no overlay possible", func() (*os.File, error) { return SealedSelf("/none/such") }, unix.EPERM},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if errors.Is(tt.want, unix.EROFS) {
				needOverlay(t)
			}
			exe, err := tt.make()
			if err != nil {
				t.Fatal(err)
			}
			defer exe.Close()
			flags, err := unix.FcntlInt(exe.Fd(), unix.F_GETFD, 0)
			wantEqual(t, "flags, error", fmt.Sprint(flags, err), fmt.Sprint(unix.FD_CLOEXEC, nil))
			if err := overwrite(t, exe); !errors.Is(err, tt.want) {
				t.Errorf("the attack: %v, want %v", err, tt.want)
			}
		})
	}
	after, err := os.Stat("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "own mode, size", fmt.Sprint(after.Mode(), after.Size()), fmt.Sprint(before.Mode(), before.Size()))
	wantNoChild(t)
}

// TestSealedSelfOddPath needs the overlay to cope with what lowerdir gives a
// meaning, and with a file of its own name in the other layer.
func TestSealedSelfOddPath(t *testing.T) {
	if os.Getenv(childEnv) == "TestSealedSelfOddPath" {
		other := os.Getenv("OTHER_LAYER")
		exe, err := overlaySelf(other)
		if err != nil {
			t.Fatal(err)
		}
		defer exe.Close()
		var fromLayer, own unix.Stat_t
		if err := errors.Join(unix.Fstat(int(exe.Fd()), &fromLayer), unix.Stat("/proc/self/exe", &own)); err != nil {
			t.Fatal(err)
		}
		wantEqual(t, "size", fromLayer.Size, own.Size)
		return
	}
	need.Root(t)
	needOverlay(t)
	dir := filepath.Join(t.TempDir(), `a:b\c,d=e f`)
	other := filepath.Join(t.TempDir(), `other:layer`)
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(other, 0o755)); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "self")
	if err := errors.Join(os.WriteFile(path, program, 0o755), os.WriteFile(filepath.Join(other, "self"), nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-test.v", "-test.run=^TestSealedSelfOddPath$")
	cmd.Env = append(os.Environ(), childEnv+"=TestSealedSelfOddPath", "OTHER_LAYER="+other)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}
