package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// The tests of this file attack the runtime the way past CVEs did. The rootfs
// and the volumes belong to the attacker; a bait is a place on the host that
// must stay as it is. The control of each test shows that whoever follows the
// attacker's names arrives at the bait.

// bait is a directory on the host, outside every bundle.
type bait struct {
	t   *testing.T
	dir string
}

func (l *lab) bait() bait {
	return bait{l.t, makeDir(l.t, filepath.Join(l.dir, "bait"))}
}

// link makes path, in the attacker's hands, a link to a name in the bait.
func (b bait) link(path, name string) {
	b.t.Helper()
	if err := os.RemoveAll(path); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(b.dir, name), path); err != nil {
		b.t.Fatal(err)
	}
	// The control: by name, the host's bait is what is found there.
	target, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		b.t.Fatal(err)
	}
	if read, err := os.Readlink(filepath.Join(target, filepath.Base(path))); err != nil || filepath.Dir(read) != b.dir && read != b.dir {
		b.t.Fatalf("the bait is not where %s leads: %s, %v", path, read, err)
	}
}

// untouched checks that nothing was made in the bait.
func (b bait) untouched() {
	b.t.Helper()
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, entry := range entries {
		b.t.Errorf("made on the host: %s", entry.Name())
	}
}

// refusedOrHarmless creates the container, which may be refused; either way
// the bait must stay as it is.
func (l *lab) refusedOrHarmless(b bait, bundle bundle, more ...string) result {
	l.t.Helper()
	id := l.newID()
	r := l.invoke(invocation{args: append([]string{"create", "--bundle", bundle.dir}, append(more, id)...)})
	b.untouched()
	return r
}

// withoutDevMount leaves /dev to the image.
func withoutDevMount(spec *specs.Spec) {
	var mounts []specs.Mount
	for _, m := range spec.Mounts {
		if !strings.HasPrefix(m.Destination, "/dev") {
			mounts = append(mounts, m)
		}
	}
	spec.Mounts = mounts
}

// TestAttackProgram: what runs as the container's first process is not the
// host's file, and cannot be written (CVE-2019-5736).
func TestAttackProgram(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	c := l.create(sh("exec sleep 1000"))
	exe := fmt.Sprintf("/proc/%d/exe", c.pid)
	inside, err := os.Stat(exe)
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Stat(l.rt.path)
	if err != nil {
		t.Fatal(err)
	}
	if os.SameFile(inside, host) {
		t.Error("init runs from the host's file")
	}
	before := readFile(t, l.rt.path)
	for _, flags := range []int{os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC} {
		f, err := os.OpenFile(exe, flags, 0)
		if err == nil {
			_ = f.Close()
			t.Errorf("open %s with %#x: writable", exe, flags)
		}
		if errors.Is(err, syscall.ETXTBSY) {
			t.Errorf("open with %#x: only busy, writable when init has ended", flags)
		}
	}
	if readFile(t, l.rt.path) != before {
		t.Error("the host's program has changed")
	}
	// The control: the same open of a file that is not sealed works.
	plain := filepath.Join(l.dir, "plain")
	writeFile(t, plain, before, 0o755)
	f, err := os.OpenFile(plain, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}

// TestAttackProcIsLink: a procfs that is not on an ordinary directory would
// let the image choose where later writes go (CVE-2019-16884, 2019-19921).
func TestAttackProcIsLink(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"proc", "sys"} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, eggrunOnly(t))
			b := l.bundle("proc", quiet)
			l.bait().link(filepath.Join(b.rootfs, dir), "")
			r := l.refusedOrHarmless(bait{t, filepath.Join(l.dir, "bait")}, b)
			l.wantFail(r, "ordinary directory")
		})
	}
}

// TestAttackDevIsLink: nodes and links are made below /dev, wherever that leads
// (CVE-2026-41579, 2026-47766).
func TestAttackDevIsLink(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	bait := l.bait()
	b := l.bundle("dev", quiet, withoutDevMount)
	bait.link(filepath.Join(b.rootfs, "dev"), "")
	l.wantFail(l.refusedOrHarmless(bait, b), "link")
}

// TestAttackDeviceIsLink: a default device that is a link or another file
// (CVE-2025-31133, 2026-88265).
func TestAttackDeviceIsLink(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	bait := l.bait()
	b := l.bundle("null", quiet, withoutDevMount)
	bait.link(filepath.Join(b.rootfs, "dev/null"), "null")
	if r := l.refusedOrHarmless(bait, b); r.code == 0 {
		t.Error("created, with a link for /dev/null")
	}
}

// TestAttackConsoleIsLink: the terminal is bound on /dev/console
// (CVE-2025-52565, 2026-88264).
func TestAttackConsoleIsLink(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	bait := l.bait()
	terminal := func(spec *specs.Spec) {
		spec.Process.Terminal = true
		withoutDevMount(spec)
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"newinstance", "ptmxmode=0666"}})
	}
	b := l.bundle("console", quiet, terminal)
	bait.link(filepath.Join(b.rootfs, "dev/console"), "console")
	socket := l.listenConsole("console")
	if r := l.refusedOrHarmless(bait, b, "--console-socket", socket.path); r.code == 0 {
		t.Error("created, with a link for /dev/console")
	}
}

// TestAttackMountPoint: targets of mounts are looked up in the rootfs alone
// (CVE-2021-30465), and what is made for them is made there (CVE-2024-45310).
func TestAttackMountPoint(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	bait := l.bait()
	volume := makeDir(t, filepath.Join(l.dir, "volume"))
	b := l.bundle("target", sh("exec true"), addMounts(
		specs.Mount{Destination: "/volume", Source: volume, Options: []string{"rbind"}},
		specs.Mount{Destination: "/volume/link/deep/down", Type: "tmpfs", Source: "tmpfs"},
		specs.Mount{Destination: "/volume/up/down", Type: "tmpfs", Source: "tmpfs"},
		specs.Mount{Destination: "/etc/link/file", Source: filepath.Join(b0(l), "file"), Options: []string{"bind"}},
	))
	bait.link(filepath.Join(volume, "link"), "")
	if err := os.Symlink("../../../../../../../../../.."+bait.dir, filepath.Join(volume, "up")); err != nil {
		t.Fatal(err)
	}
	bait.link(filepath.Join(b.rootfs, "etc/link"), "")
	l.refusedOrHarmless(bait, b)
	for _, mount := range mounts() {
		if strings.Contains(mount, bait.dir) {
			t.Errorf("mounted on the host: %s", mount)
		}
	}
}

// b0 makes a host directory with a file to bind.
func b0(l *lab) string {
	dir := makeDir(l.t, filepath.Join(l.dir, "source"))
	writeFile(l.t, filepath.Join(dir, "file"), "x", 0o644)
	return dir
}

// TestAttackRacingVolume exchanges a directory of a shared volume for a link to
// the host while containers are made whose mount points lie below it
// (CVE-2021-30465, 2024-45310, 2025-52881).
func TestAttackRacingVolume(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	bait := l.bait()
	volume := makeDir(t, filepath.Join(l.dir, "volume"))
	real, link := filepath.Join(volume, "x"), filepath.Join(volume, "y")
	makeDir(t, real)
	bait.link(link, "")
	stop, swapped := make(chan struct{}), make(chan int)
	go func() {
		swaps := 0
		for ; ; swaps++ {
			select {
			case <-stop:
				swapped <- swaps
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, real, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	}()
	edits := []edit{sh("exec true"), addMounts(
		specs.Mount{Destination: "/volume", Source: volume, Options: []string{"rbind"}},
		specs.Mount{Destination: "/volume/x/deep/down", Type: "tmpfs", Source: "tmpfs"},
		specs.Mount{Destination: "/volume/x/file", Source: filepath.Join(b0(l), "file"), Options: []string{"bind"}},
	)}
	const tries = 40
	for range tries {
		id := l.newID()
		l.invoke(invocation{args: []string{"run", "--bundle", l.bundle(id, edits...).dir, id}})
		bait.untouched()
	}
	close(stop)
	// The control: the names did change under way.
	if swaps := <-swapped; swaps < 10*tries {
		t.Errorf("only %d exchanges during %d runs", swaps, tries)
	}
	for _, mount := range mounts() {
		if strings.Contains(mount, bait.dir) {
			t.Errorf("mounted on the host: %s", mount)
		}
	}
}

// TestAttackCwd: a working directory in /proc/self/fd could be a directory of
// the host that the runtime has open (CVE-2024-21626).
func TestAttackCwd(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	inCwd := func(cwd string) edit {
		return func(spec *specs.Spec) { spec.Process.Cwd = cwd }
	}
	for fd := range 40 {
		for _, dir := range []string{"/proc/self/fd/%d", "/proc/1/fd/%d", "/proc/self/fd/%d/../.."} {
			cwd := fmt.Sprintf(dir, fd)
			r := l.run(sh("pwd; ls -a"), inCwd(cwd))
			if r.code == 0 && strings.Contains(r.stdout, "bundle-") {
				t.Errorf("cwd %s: shows the host: %q", cwd, r.stdout)
			}
			if r.code == 0 && fd > 2 && !strings.Contains(cwd, "..") {
				t.Errorf("cwd %s: entered: %q", cwd, r.stdout)
			}
		}
	}
	// The control: it is not /proc that is refused.
	equal(t, "pwd", l.output("pwd", inCwd("/proc/1/task")), "/proc/1/task")
}

// TestAttackProgramPath: nor may the program be found through one.
func TestAttackProgramPath(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	for fd := 3; fd < 40; fd++ {
		for _, path := range []string{
			fmt.Sprintf("/proc/self/fd/%d", fd),
			fmt.Sprintf("/proc/self/fd/%d/bin/busybox", fd),
			fmt.Sprintf("/proc/1/fd/%d/../../bin/busybox", fd),
		} {
			if r := l.run(args(path, "sh", "-c", "echo entered")); r.code == 0 {
				t.Errorf("program %s: %q", path, r.stdout)
			}
		}
	}
	// The control: what is really there is found.
	if r := l.run(args("/proc/self/root/bin/busybox", "true")); r.code != 0 {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
}
