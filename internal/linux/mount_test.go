package linux

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mountInfo is what /proc/self/mountinfo says of one mount.
type mountInfo struct {
	options     []string
	propagation string // "shared", "master", "shared master", "unbindable" or ""
	fstype      string
}

// mountAt returns the topmost mount at path; ok is false where there is none.
func mountAt(t *testing.T, path string) (m mountInfo, ok bool) {
	t.Helper()
	for line := range strings.Lines(procFile(t, "thread-self", "mountinfo")) {
		fields := strings.Fields(line)
		if fields[4] != path {
			continue
		}
		end := slices.Index(fields, "-")
		var kinds []string
		for _, tag := range fields[6:end] {
			kind, _, _ := strings.Cut(tag, ":")
			kinds = append(kinds, kind)
		}
		m = mountInfo{options: strings.Split(fields[5], ","), propagation: strings.Join(kinds, " "), fstype: fields[end+1]}
		ok = true
	}
	return m, ok
}

func wantOptions(t *testing.T, path string, want ...string) {
	t.Helper()
	m, ok := mountAt(t, path)
	if !ok {
		t.Errorf("no mount at %q", path)
		return
	}
	for _, option := range []string{"ro", "nosuid", "nodev", "noexec"} {
		wantEqual(t, path+" is "+option, slices.Contains(m.options, option), slices.Contains(want, option))
	}
}

// privateDir returns an empty tmpfs in which no mount is seen by anybody else.
// Only for a child that has a mount namespace of its own.
func privateDir(t *testing.T) string {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mountTmpfs(t, dir, 0)
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// mountTmpfs makes dir and mounts a tmpfs on it, with a file "marker".
func mountTmpfs(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", flags, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "marker"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func openPath(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func makeDir(t *testing.T, path string) *os.File {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return openPath(t, path)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func wantPathError(t *testing.T, err error, op, path string, errno error) {
	t.Helper()
	var pathErr *os.PathError
	if !errors.As(err, &pathErr) || !errors.Is(err, errno) || pathErr.Op != op || pathErr.Path != path {
		t.Errorf("error %v, want %s %s: %v", err, op, path, errno)
	}
}

func TestCloneTree(t *testing.T) {
	if !isolated(t, unix.CLONE_NEWNS) {
		return
	}
	dir := privateDir(t)
	source := filepath.Join(dir, "source")
	mountTmpfs(t, source, unix.MS_NOSUID|unix.MS_NODEV)
	mountTmpfs(t, filepath.Join(source, "below"), unix.MS_NOEXEC)
	if err := os.Symlink("source", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		name      string
		recursive bool
		clone     func(recursive bool) (*os.File, error)
	}{
		{"one", false, func(r bool) (*os.File, error) { return CloneTree(source, r) }},
		{"all", true, func(r bool) (*os.File, error) { return CloneTree(source, r) }},
		{"link", false, func(r bool) (*os.File, error) { return CloneTree(filepath.Join(dir, "link"), r) }},
		{"handle", false, func(r bool) (*os.File, error) { return CloneTreeAt(openPath(t, source), r) }},
		{"handle, all", true, func(r bool) (*os.File, error) { return CloneTreeAt(openPath(t, source), r) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tree, err := tt.clone(tt.recursive)
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			flags, err := unix.FcntlInt(tree.Fd(), unix.F_GETFD, 0)
			wantEqual(t, "flags, error", fmt.Sprint(flags, err), fmt.Sprint(unix.FD_CLOEXEC, nil))
			target := filepath.Join(dir, fmt.Sprint("target", i))
			if err := MoveMount(tree, makeDir(t, target)); err != nil {
				t.Fatal(err)
			}
			wantOptions(t, target, "nosuid", "nodev")
			wantEqual(t, "its file", exists(filepath.Join(target, "marker")), true)
			wantEqual(t, "file below", exists(filepath.Join(target, "below/marker")), tt.recursive)
			if tt.recursive {
				wantOptions(t, filepath.Join(target, "below"), "noexec")
			}
		})
	}
	t.Run("file", func(t *testing.T) {
		tree, err := CloneTreeAt(openPath(t, file), false)
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		// A directory and a file don't go together, either way round.
		err = MoveMount(tree, makeDir(t, filepath.Join(dir, "directory")))
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("file on a directory: %v", err)
		}
		target := filepath.Join(dir, "empty")
		if err := os.WriteFile(target, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := MoveMount(tree, openPath(t, target)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(target)
		wantEqual(t, "text, error", fmt.Sprintf("%s %v", text, err), "text <nil>")
		elsewhere := openPath(t, fmt.Sprintf("/proc/%d/root/dev/null", spawn(t, SpawnRequest{New: unix.CLONE_NEWNS}).PID))
		wantPathError(t, MoveMount(tree, elsewhere), "move_mount", elsewhere.Name(), unix.EINVAL)
	})
	t.Run("closed before it is attached", func(t *testing.T) {
		tree, err := CloneTree(source, true)
		if err != nil {
			t.Fatal(err)
		}
		inside := openPath(t, fmt.Sprintf("/proc/self/fd/%d/below", tree.Fd()))
		tree.Close()
		err = MoveMount(inside, makeDir(t, filepath.Join(dir, "late")))
		wantErrno(t, err, unix.EINVAL)
	})
	_, err := CloneTree("/none/such", false)
	wantPathError(t, err, "open_tree", "/none/such", unix.ENOENT)
}

func TestNewMount(t *testing.T) {
	if !isolated(t, unix.CLONE_NEWNS) {
		return
	}
	dir := privateDir(t)
	target := filepath.Join(dir, "target")
	const attr = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_RDONLY
	tree, err := NewMount("tmpfs", "its name", []string{"size=64k", "mode=0710", "noswap"}, attr)
	if err == nil {
		err = MoveMount(tree, makeDir(t, target))
	}
	if err != nil {
		t.Fatal(err)
	}
	wantOptions(t, target, "nosuid", "noexec", "ro")
	info, err := os.Stat(target)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "mode", info.Mode().Perm(), os.FileMode(0o710))
	var stat unix.Statfs_t
	if err := unix.Statfs(target, &stat); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "size", int64(stat.Blocks)*stat.Bsize, 64<<10)
	if mounts := procFile(t, "self", "mounts"); !strings.Contains(mounts, `its\040name `+target+" tmpfs ") {
		t.Errorf("no source in /proc/mounts:\n%s", mounts)
	}
	for _, tt := range []struct {
		fstype  string
		data    []string
		errno   unix.Errno
		message string
	}{
		{"nosuchfs", nil, unix.ENODEV, "fsopen nosuchfs: no such device"},
		{"tmpfs", []string{"mode=700", "bogus=1"}, unix.EINVAL, "mount tmpfs (bogus=1): invalid argument (tmpfs: Unknown parameter 'bogus')"},
		{"tmpfs", []string{"bogus"}, unix.EINVAL, "mount tmpfs (bogus): invalid argument (tmpfs: Unknown parameter 'bogus')"},
		{"tmpfs", []string{"size=x"}, unix.EINVAL, "mount tmpfs (size=x): invalid argument (tmpfs: Bad value for 'size')"},
	} {
		before := openFDs(t, "self")
		_, err := NewMount(tt.fstype, "x", tt.data, 0)
		wantErrno(t, err, tt.errno)
		wantEqual(t, "text", fmt.Sprint(err), tt.message)
		wantEqual(t, "descriptors", openFDs(t, "self"), before)
	}
}

// TestSetMountAttr needs flags that nobody names to stay.
func TestSetMountAttr(t *testing.T) {
	if !isolated(t, unix.CLONE_NEWNS) {
		return
	}
	dir := privateDir(t)
	top := filepath.Join(dir, "top")
	mountTmpfs(t, top, unix.MS_NOSUID|unix.MS_NODEV)
	below := filepath.Join(top, "below")
	mountTmpfs(t, below, unix.MS_NOEXEC)
	f := openPath(t, top)
	set := func(set, clear uint64, recursive bool) {
		t.Helper()
		if err := SetMountAttr(f, set, clear, recursive); err != nil {
			t.Error(err)
		}
	}
	set(unix.MOUNT_ATTR_RDONLY, 0, false)
	wantOptions(t, top, "nosuid", "nodev", "ro")
	wantOptions(t, below, "noexec")
	wantErrno(t, os.WriteFile(filepath.Join(top, "new"), nil, 0o644), unix.EROFS)
	set(unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID, 0, true)
	wantOptions(t, below, "noexec", "nosuid", "ro")
	set(unix.MOUNT_ATTR_NOEXEC, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV, false)
	wantOptions(t, top, "nosuid", "noexec")
	wantOptions(t, below, "noexec", "nosuid", "ro")
	// What is no mount's root has no flags of its own.
	sub := makeDir(t, filepath.Join(top, "directory"))
	wantPathError(t, SetMountAttr(sub, unix.MOUNT_ATTR_RDONLY, 0, false), "mount_setattr", sub.Name(), unix.EINVAL)
	wantPathError(t, SetMountAttr(f, 1<<40, 0, false), "mount_setattr", top, unix.EINVAL)
}

func TestSetPropagation(t *testing.T) {
	if !isolated(t, unix.CLONE_NEWNS) {
		return
	}
	dir := privateDir(t)
	top := filepath.Join(dir, "top")
	mountTmpfs(t, top, 0)
	below := filepath.Join(top, "below")
	mountTmpfs(t, below, 0)
	f := openPath(t, top)
	for _, tt := range []struct {
		name                string
		propagation         uint64
		wantTop, wantBelow2 string
	}{
		{"shared", unix.MS_SHARED, "shared", ""},
		{"rshared", unix.MS_SHARED | unix.MS_REC, "shared", "shared"},
		// Alone in their groups they are nobody's slaves.
		{"slave", unix.MS_SLAVE, "", "shared"},
		{"unbindable", unix.MS_UNBINDABLE, "unbindable", "shared"},
		{"runbindable", unix.MS_UNBINDABLE | unix.MS_REC, "unbindable", "unbindable"},
		{"private", unix.MS_PRIVATE, "", "unbindable"},
		{"rprivate", unix.MS_PRIVATE | unix.MS_REC, "", ""},
	} {
		if err := SetPropagation(f, tt.propagation); err != nil {
			t.Fatal(err)
		}
		m, _ := mountAt(t, top)
		wantEqual(t, tt.name+": top", m.propagation, tt.wantTop)
		m, _ = mountAt(t, below)
		wantEqual(t, tt.name+": below", m.propagation, tt.wantBelow2)
	}
	wantPathError(t, SetPropagation(f, unix.MS_SHARED|unix.MS_PRIVATE), "mount_setattr", top, unix.EINVAL)
	// With a peer a slave has a master.
	if err := SetPropagation(f, unix.MS_SHARED); err != nil {
		t.Fatal(err)
	}
	tree, err := CloneTree(top, false)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	copied := filepath.Join(dir, "copy")
	if err := errors.Join(SetPropagation(tree, unix.MS_SLAVE), MoveMount(tree, makeDir(t, copied))); err != nil {
		t.Fatal(err)
	}
	m, _ := mountAt(t, copied)
	wantEqual(t, "slave of a peer", m.propagation, "master")
}

// TestPivotRoot goes to a new root whose old one has peers elsewhere: nothing
// may be unmounted there, and the new root keeps its propagation.
func TestPivotRoot(t *testing.T) {
	if !isolated(t, unix.CLONE_NEWNS) {
		return
	}
	dir := privateDir(t)
	// The "host" is the child that isolated started; the container is the
	// thread below, in a copy of its mount namespace.
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	before := procFile(t, "thread-self", "mountinfo")
	onThread(t, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			return err
		}
		rootfs := filepath.Join(dir, "rootfs")
		if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		mountTmpfs(t, rootfs, 0)
		mountTmpfs(t, filepath.Join(rootfs, "below"), 0)
		if err := SetPropagation(openPath(t, filepath.Join(rootfs, "below")), unix.MS_SHARED); err != nil {
			return err
		}
		proc := makeDir(t, filepath.Join(rootfs, "proc"))
		tree, err := CloneTree("/proc", false)
		if err == nil {
			err = MoveMount(tree, proc)
		}
		if err != nil {
			return err
		}
		wantPathError(t, PivotRoot(openPath(t, filepath.Join(rootfs, "proc/self"))), "pivot_root", filepath.Join(rootfs, "proc/self"), unix.EINVAL)
		if err := PivotRoot(openPath(t, rootfs)); err != nil {
			return err
		}
		cwd, err := os.Getwd()
		wantEqual(t, "working directory, error", fmt.Sprint(cwd, " ", err), "/ <nil>")
		entries, err := os.ReadDir("/")
		wantEqual(t, "entries of the new root, error", fmt.Sprint(entries, err), "[d below/ - marker d proc/] <nil>")
		wantEqual(t, "number of mounts", strings.Count(procFile(t, "thread-self", "mountinfo"), "\n"), 3)
		m, _ := mountAt(t, "/below")
		wantEqual(t, "propagation of what is below", m.propagation, "shared")
		return nil
	})
	wantEqual(t, "mounts of the host", procFile(t, "thread-self", "mountinfo"), before)
}
