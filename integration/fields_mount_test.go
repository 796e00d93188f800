package integration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// ownedVolume returns a volume with files of the ids 0 and 1000 and a mount
// below with a file of the id 1000.
func (l *lab) ownedVolume() string {
	l.t.Helper()
	volume := l.mountTmpfs("owned")
	sub := l.mountTmpfs("owned/sub")
	for path, owner := range map[string]int{volume + "/root": 0, volume + "/user": 1000, sub + "/user": 1000} {
		writeFile(l.t, path, "", 0o644)
		if err := os.Lchown(path, owner, owner); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := os.Chmod(volume, 0o777); err != nil {
		l.t.Fatal(err)
	}
	return volume
}

// TestIDMappedMounts looks at the owners of a volume's files. In a user
// namespace nobody is 65534.
func TestIDMappedMounts(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	mappings := func(host uint32) []specs.LinuxIDMapping {
		return []specs.LinuxIDMapping{{ContainerID: 0, HostID: host, Size: 2000}}
	}
	for _, tt := range []struct {
		name       string
		options    []string
		uids, gids []specs.LinuxIDMapping
		ownIDs     bool // in a user namespace
		want       string
	}{
		{"control: user namespace", []string{"rbind"}, nil, nil, true, "65534:65534 65534:65534 65534:65534"},
		{"idmap", []string{"rbind", "idmap"}, nil, nil, true, "0:0 1000:1000 65534:65534"},
		{"ridmap", []string{"rbind", "ridmap"}, nil, nil, true, "0:0 1000:1000 1000:1000"},
		{"control: no user namespace", []string{"rbind"}, nil, nil, false, "0:0 1000:1000 1000:1000"},
		{"mappings", []string{"rbind", "idmap"}, mappings(5000), mappings(6000), false, "5000:6000 6000:7000 1000:1000"},
		{"recursive mappings", []string{"rbind", "ridmap"}, mappings(5000), mappings(6000), false, "5000:6000 6000:7000 6000:7000"},
		{"mappings without an option", []string{"rbind"}, mappings(5000), mappings(6000), false, "5000:6000 6000:7000 1000:1000"},
		{"mappings in a user namespace", []string{"rbind", "ridmap"}, mappings(105000), mappings(106000), true, "5000:6000 6000:7000 6000:7000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, rt)
			volume := specs.Mount{
				Destination: "/vol", Type: "bind", Source: l.ownedVolume(), Options: tt.options,
				UIDMappings: tt.uids, GIDMappings: tt.gids,
			}
			id := l.newID()
			edits := []edit{sh("echo $(stat -c %u:%g /vol/root /vol/user /vol/sub/user)"), addMounts(volume)}
			if tt.ownIDs {
				edits = append(edits, idMappings)
			}
			b := l.bundle(id, edits...)
			if tt.ownIDs {
				chownTree(t, b.rootfs, 100000)
			}
			r := l.call("run", "--bundle", b.dir, id)
			l.wantOK(r)
			equal(t, "owners", r.stdout, tt.want+"\n")
		})
	}
}

// TestIDMappedMountWrites has the container's root write to a volume of the
// host's root.
func TestIDMappedMountWrites(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	volume := l.ownedVolume()
	id := l.newID()
	b := l.bundle(id, sh("touch /vol/new && stat -c %u /vol/new"), idMappings,
		addMounts(specs.Mount{Destination: "/vol", Type: "bind", Source: volume, Options: []string{"bind", "idmap"}}))
	chownTree(t, b.rootfs, 100000)
	r := l.call("run", "--bundle", b.dir, id)
	l.wantOK(r)
	equal(t, "owner inside", r.stdout, "0\n")
	var stat unix.Stat_t
	if err := unix.Stat(filepath.Join(volume, "new"), &stat); err != nil {
		t.Fatal(err)
	}
	equal(t, "owner outside", stat.Uid, 0)
}

// TestIDMappedMountImpossible maps what the kernel cannot map.
func TestIDMappedMountImpossible(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	id := l.newID()
	b := l.bundle(id, sh("exit 0"), idMappings,
		addMounts(specs.Mount{Destination: "/vol", Type: "bind", Source: "/proc/sys", Options: []string{"bind", "idmap"}}))
	chownTree(t, b.rootfs, 100000)
	l.wantFail(l.call("create", "--bundle", b.dir, id), `mount "/proc/sys" on "/vol": id-mapped: invalid argument; its file system cannot map ids`)
	l.wantGone(id)
}

// TestDevicePathTaken has something else where a device is to be: the
// specification wants an error, old runc takes what is there.
func TestDevicePathTaken(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	device := func(major, minor int64) edit {
		return func(spec *specs.Spec) {
			dropMounts("/dev", "/dev/pts", "/dev/shm", "/dev/mqueue")(spec)
			spec.Linux.Devices = append(spec.Linux.Devices, specs.LinuxDevice{Path: "/dev/taken", Type: "c", Major: major, Minor: minor})
			allowDevice(spec, "c", major, minor, "rwm")
		}
	}
	taken := func(make func(path string) error) bundle {
		b := l.bundle(l.newID(), sh("stat -c %t:%T /dev/taken"), device(1, 3))
		if err := make(filepath.Join(b.rootfs, "dev/taken")); err != nil {
			t.Fatal(err)
		}
		return b
	}
	for what, make := range map[string]func(path string) error{
		"a file":             func(path string) error { return os.WriteFile(path, nil, 0o644) },
		"a directory":        func(path string) error { return os.Mkdir(path, 0o755) },
		"a link to a device": func(path string) error { return os.Symlink("null", path) },
		"another device":     func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) },
	} {
		t.Run(what, func(t *testing.T) {
			b := taken(make)
			id := l.newID()
			l.wantFail(l.call("create", "--bundle", b.dir, id), `device "/dev/taken"`)
			l.wantGone(id)
		})
	}
	same := taken(func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) })
	r := l.call("run", "--bundle", same.dir, l.newID())
	l.wantOK(r)
	equal(t, "the same device", r.stdout, "1:3\n")
}

// TestUnified writes keys that only the kernel knows.
func TestUnified(t *testing.T) {
	t.Parallel()
	needRoot(t)
	unified := func(key, value string) edit {
		return func(spec *specs.Spec) {
			spec.Linux.Resources.Unified = map[string]string{key: value}
			spec.Linux.Resources.Devices = nil
		}
	}
	if !isCgroup2() {
		each(t, func(t *testing.T, l *lab) {
			id := l.newID()
			b := l.bundle(id, sh("exit 0"), unified("memory.max", "100000000"))
			l.wantFail(l.call("create", "--bundle", b.dir, id), "unified")
			l.wantGone(id)
		})
		return
	}
	each(t, func(t *testing.T, l *lab) {
		c := l.create(sh("exit 0"), unified("cgroup.max.depth", "7"))
		equal(t, "cgroup.max.depth", cgroupFile(t, l.cgroupOf(c.id), "", "", "cgroup.max.depth"), "7")
		c.delete()
		id := l.newID()
		b := l.bundle(id, sh("exit 0"), unified("nosuch.max", "1"))
		l.wantFail(l.call("create", "--bundle", b.dir, id), "nosuch")
		l.wantGone(id)
	})
}
