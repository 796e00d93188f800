package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// TestMountOrder needs mountinfo to have the mounts in the order of config.json.
// Since Linux 6.8 it goes by when they were made, not by when they were attached,
// and those that are shared are made elsewhere.
func TestMountOrder(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		bind := func(target string, options ...string) specs.Mount {
			return specs.Mount{Destination: target, Type: "bind", Source: makeDir(t, filepath.Join(l.dir, "volume")), Options: append(options, "bind")}
		}
		tmpfs := func(target string) specs.Mount {
			return specs.Mount{Destination: target, Type: "tmpfs", Source: "tmpfs"}
		}
		got := l.output(`sed -n 's|.* \(/mnt/[a-z]*\) .*|\1|p' /proc/self/mountinfo`,
			addMounts(bind("/mnt/z"), tmpfs("/mnt/y"), bind("/mnt/x", "shared"), bind("/mnt/b"), tmpfs("/mnt/a"), tmpfs("/mnt/w"), bind("/mnt/c")))
		equal(t, "mount points", got, "/mnt/z\n/mnt/y\n/mnt/x\n/mnt/b\n/mnt/a\n/mnt/w\n/mnt/c")
	})
}

// TestMountOptions mounts something at /mnt and looks at the line of
// /proc/self/mountinfo, or at what a write does.
func TestMountOptions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		mount   specs.Mount
		options string // wanted among the options of the mount
		super   string // wanted among those of the file system
		script  string // instead of mountinfo
		want    string
	}{
		{name: "tmpfs", mount: specs.Mount{Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "noexec", "size=64k", "mode=700"}}, options: "rw,nosuid,nodev,noexec", super: "size=64k"},
		{name: "tmpfs mode", mount: specs.Mount{Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=1770"}}, script: "stat -c %a /mnt", want: "1770"},
		{name: "tmpfs read-only", mount: specs.Mount{Type: "tmpfs", Source: "tmpfs", Options: []string{"ro"}}, options: "ro"},
		{name: "tmpfs strictatime", mount: specs.Mount{Type: "tmpfs", Source: "tmpfs", Options: []string{"strictatime"}}, options: "rw"},
		{name: "proc", mount: specs.Mount{Type: "proc", Source: "proc", Destination: "/proc"}, script: "readlink /proc/self/exe", want: "/bin/busybox"},
		{name: "sysfs", mount: specs.Mount{Type: "sysfs", Source: "sysfs", Options: []string{"ro", "nosuid"}}, options: "ro,nosuid"},
		{name: "mqueue", mount: specs.Mount{Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "nodev", "noexec"}}, options: "rw,nosuid,nodev,noexec"},
		{name: "devpts", mount: specs.Mount{Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}}, script: "ls /mnt", want: "ptmx"},
		{name: "bind", mount: specs.Mount{Type: "bind", Options: []string{"bind"}}, script: "cat /mnt/file; echo new >/mnt/new && echo written", want: "text\nwritten"},
		{name: "bind without a type", mount: specs.Mount{Options: []string{"rbind"}}, script: "cat /mnt/file", want: "text"},
		{name: "bind of none", mount: specs.Mount{Type: "none", Options: []string{"bind"}}, script: "cat /mnt/file", want: "text"},
		{name: "bind read-only", mount: specs.Mount{Type: "bind", Options: []string{"bind", "ro"}}, options: "ro"},
		{name: "rbind read-only write", mount: specs.Mount{Type: "bind", Options: []string{"rbind", "ro"}}, script: "echo new 2>&1 >/mnt/new || cat /mnt/file", want: "/bin/sh: can't create /mnt/new: Read-only file system\ntext"},
		{name: "bind with flags", mount: specs.Mount{Type: "bind", Options: []string{"bind", "nosuid", "nodev", "noexec"}}, options: "rw,nosuid,nodev,noexec"},
		{name: "tmpfs with the mode of what it hides", mount: specs.Mount{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs"}, super: "mode=777"},
		{name: "bind noatime", mount: specs.Mount{Type: "bind", Options: []string{"bind", "noatime"}}, options: "noatime"},
		{name: "missing target", mount: specs.Mount{Destination: "/a/b/c", Type: "bind", Options: []string{"bind"}}, script: "cat /a/b/c/file", want: "text"},
		{name: "deep tmpfs target", mount: specs.Mount{Destination: "/a/b/c", Type: "tmpfs", Source: "tmpfs"}, script: "touch /a/b/c/x; ls /a/b/c", want: "x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				if strings.HasPrefix(tt.name, "tmpfs with") && !l.rt.isEggrun() {
					return // runc since 1.4
				}
				mount := tt.mount
				if mount.Destination == "" {
					mount.Destination = "/mnt"
				}
				if mount.Source == "" {
					mount.Source = makeDir(t, filepath.Join(l.dir, "volume"))
					writeFile(t, filepath.Join(mount.Source, "file"), "text\n", 0o644)
				}
				script := tt.script
				if script == "" {
					script = "grep ' " + mount.Destination + " ' /proc/self/mountinfo"
				}
				got := l.output(script, addMounts(mount))
				if tt.script != "" {
					equal(t, "output", got, tt.want)
					return
				}
				fields := strings.Fields(got)
				wantOptions(t, "mount", fields[5], tt.options)
				wantOptions(t, "file system", fields[len(fields)-1], tt.super)
			})
		})
	}
}

func wantOptions(t *testing.T, what, got, want string) {
	t.Helper()
	for option := range strings.SplitSeq(want, ",") {
		if option != "" && !strings.Contains(","+got+",", ","+option+",") {
			t.Errorf("options of the %s: %q lacks %q", what, got, option)
		}
	}
}

// TestRootReadonly also checks that mounts on a read-only root stay writable.
func TestRootReadonly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		volume := makeDir(t, filepath.Join(l.dir, "volume"))
		readonly := func(spec *specs.Spec) { spec.Root.Readonly = true }
		got := l.output("echo x 2>&1 >/file; echo x >/vol/file && echo ok; echo x >/dev/shm/file && echo ok", readonly,
			addMounts(specs.Mount{Destination: "/vol", Type: "bind", Source: volume, Options: []string{"rbind"}}))
		equal(t, "output", got, "/bin/sh: can't create /file: Read-only file system\nok\nok")
		equal(t, "output with a writable root", l.output("echo x >/file && echo ok"), "ok")
	})
}

// TestBindFile binds files, onto an existing one and onto none, as podman
// does with /etc/hosts and /run/.containerenv.
func TestBindFile(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		source := filepath.Join(l.dir, "source")
		writeFile(t, source, "bound\n", 0o644)
		for _, target := range []string{"/etc/hosts", "/run/missing/.containerenv"} {
			got := l.output("cat "+target, addMounts(specs.Mount{Destination: target, Type: "bind", Source: source, Options: []string{"bind", "rprivate"}}))
			equal(t, "content of "+target, got, "bound")
		}
		socket := filepath.Join(l.dir, "socket")
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
			t.Fatal(err)
		}
		got := l.output("test -S /socket && echo socket", addMounts(specs.Mount{Destination: "/socket", Type: "bind", Source: socket, Options: []string{"bind"}}))
		equal(t, "bind of a socket", got, "socket")
	})
}

// TestMountTargetsStayInside has the image place links, absolute ones and
// climbing ones, where the runtime mounts: nothing may appear on the host.
func TestMountTargetsStayInside(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, link string }{
		{"absolute", "%s"},
		{"climbing", "../../../../../../../../../../../%s"},
		{"magic", "/proc/self/root/%s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				outside := makeDir(t, filepath.Join(l.dir, "outside"))
				id := l.newID()
				volume := makeDir(t, filepath.Join(l.dir, "volume"))
				writeFile(t, filepath.Join(volume, "marker"), "", 0o644)
				b := l.bundle(id, sh("exec sleep 1000"), addMounts(specs.Mount{Destination: "/link/sub", Type: "bind", Source: volume, Options: []string{"bind"}}))
				if err := os.Symlink(strings.Replace(tt.link, "%s", outside, 1), filepath.Join(b.rootfs, "link")); err != nil {
					t.Fatal(err)
				}
				r := l.call("create", "--bundle", b.dir, id)
				entries, err := os.ReadDir(outside)
				if err != nil || len(entries) > 0 {
					t.Errorf("outside the root file system: %v (%v), want nothing", entries, err)
				}
				if r.code != 0 {
					return // refusing is as good
				}
				if all := strings.Join(mounts(), "\n"); strings.Contains(all, outside) {
					t.Errorf("mount on the host: %s", all)
				}
				l.wantSilent(l.call("delete", "--force", id))
			})
		})
	}
}

// TestProcMustBeARealDirectory is CVE-2019-19921: with /proc a link into a
// volume, the runtime would write its labels into files of the image.
func TestProcMustBeARealDirectory(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		id := l.newID()
		b := l.bundle(id, sh("exit 0"))
		proc := filepath.Join(b.rootfs, "proc")
		if err := os.Remove(proc); err != nil {
			t.Fatal(err)
		}
		makeDir(t, filepath.Join(b.rootfs, "elsewhere"))
		if err := os.Symlink("elsewhere", proc); err != nil {
			t.Fatal(err)
		}
		l.wantFail(l.call("create", "--bundle", b.dir, id), "/proc")
		l.wantGone(id)
	})
}

// TestPropagation sees whether mounts that the host makes later reach the
// container, and the other way.
func TestPropagation(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		option         string
		inward, onward bool
	}{
		{"rprivate", false, false}, {"private", false, false}, {"rslave", true, false}, {"slave", true, false}, {"rshared", true, true}, {"shared", true, true},
	} {
		t.Run(tt.option, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				volume := l.mountTmpfs("volume")
				if err := unix.Mount("", volume, "", unix.MS_SHARED, ""); err != nil {
					t.Fatal(err)
				}
				makeDir(t, filepath.Join(volume, "in"))
				makeDir(t, filepath.Join(volume, "out"))
				rootPropagation := func(spec *specs.Spec) { spec.Linux.RootfsPropagation = "rslave" }
				if strings.HasSuffix(tt.option, "shared") {
					rootPropagation = func(spec *specs.Spec) { spec.Linux.RootfsPropagation = "shared" }
				}
				c := l.create(sh("mount -t tmpfs inner /vol/out; test -e /vol/in/marker && echo came in; echo done; exec sleep 1000"),
					addMounts(specs.Mount{Destination: "/vol", Type: "bind", Source: volume, Options: []string{"rbind", tt.option}}),
					rootPropagation, addCapabilities("CAP_SYS_ADMIN"))
				l.mountTmpfs("volume/in")
				writeFile(t, filepath.Join(volume, "in/marker"), "", 0o644)
				c.start()
				c.wantOutput("done\n")
				equal(t, "host's mount came in", strings.Contains(c.stdout(), "came in"), tt.inward)
				equal(t, "container's mount came out", strings.Contains(strings.Join(mounts(), "\n"), volume+"/out"), tt.onward)
				l.wantSilent(l.call("delete", "--force", c.id))
			})
		})
	}
}

// mountTmpfs mounts a tmpfs in the lab until the test ends.
func (l *lab) mountTmpfs(name string) string {
	l.t.Helper()
	path := makeDir(l.t, filepath.Join(l.dir, name))
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, ""); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { l.unmount(path) })
	return path
}

func (l *lab) unmount(path string) {
	// A container's mount that came out lies on top of it.
	_ = unix.Unmount(filepath.Join(path, "out"), unix.MNT_DETACH)
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		l.t.Errorf("unmount %s: %v", path, err)
	}
}

// TestRecursiveReadonly makes what lies below a volume read-only too, which
// plain ro does not.
func TestRecursiveReadonly(t *testing.T) {
	t.Parallel()
	for option, want := range map[string]string{"ro": "written", "rro": "refused"} {
		t.Run(option, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				volume := l.mountTmpfs("volume")
				l.mountTmpfs("volume/sub")
				got := l.output("echo x 2>/dev/null >/vol/sub/file && echo written || echo refused",
					addMounts(specs.Mount{Destination: "/vol", Type: "bind", Source: volume, Options: []string{"rbind", option}}))
				equal(t, "write below the volume", got, want)
			})
		})
	}
}

// TestTmpcopyup fills a tmpfs with what the image has there.
func TestTmpcopyup(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		got := l.output("cat /etc/group; echo x >/etc/new; mount | grep -c ' /etc '",
			addMounts(specs.Mount{Destination: "/etc", Type: "tmpfs", Source: "tmpfs", Options: []string{"tmpcopyup"}}))
		equal(t, "output", got, "root:x:0:\ntester:x:1000:\n1")
	})
}

// TestLaterMountsCover mounts in the order of config.json.
func TestLaterMountsCover(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		first, second := makeDir(t, filepath.Join(l.dir, "first")), makeDir(t, filepath.Join(l.dir, "second"))
		writeFile(t, filepath.Join(first, "a"), "", 0o644)
		writeFile(t, filepath.Join(second, "b"), "", 0o644)
		bind := func(source, target string) specs.Mount {
			return specs.Mount{Destination: target, Type: "bind", Source: source, Options: []string{"bind"}}
		}
		equal(t, "contents", l.output("ls /mnt", addMounts(bind(first, "/mnt"), bind(second, "/mnt"))), "b")
		equal(t, "contents", l.output("ls /mnt/sub", addMounts(specs.Mount{Destination: "/mnt", Type: "tmpfs", Source: "t"}, bind(second, "/mnt/sub"))), "b")
	})
}

// TestBindFlagsOfSource binds what the host has mounted with flags of its own.
// They stay where config.json names none, and go where it names others, unless
// the container's root may not take them away: then it can't later, either.
func TestBindFlagsOfSource(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)) // runc since 1.2
	source := hostMount(t, l, unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOSYMFOLLOW)
	bind := func(options ...string) edit {
		return addMounts(specs.Mount{Destination: "/mnt", Type: "bind", Source: source, Options: append([]string{"bind"}, options...)})
	}
	flags := func(edits ...edit) string {
		line := strings.Fields(l.output("grep ' /mnt ' /proc/self/mountinfo", edits...))
		return line[5]
	}
	equal(t, "without any", flags(bind()), "ro,nodev,relatime,nosymfollow")
	equal(t, "with others", flags(bind("nosuid")), "rw,nosuid,relatime")
	equal(t, "with another's reverse", flags(bind("exec")), "rw,relatime")

	const remount = "mount -o remount,bind,rw /mnt 2>/dev/null; grep ' /mnt ' /proc/self/mountinfo | cut -d' ' -f6"
	mounter := both(sh(remount), addCapabilities("CAP_SYS_ADMIN"))
	inUserNS := func(edits ...edit) string {
		id := l.newID()
		b := l.bundle(id, append(edits, idMappings)...)
		chownTree(t, b.rootfs, 100000)
		r := l.call("run", "--bundle", b.dir, id)
		if r.code != 0 {
			t.Fatalf("exit %d: %s", r.code, r.stderr)
		}
		return strings.TrimSpace(r.stdout)
	}
	equal(t, "in a user namespace", inUserNS(mounter, bind("nosuid")), "ro,nosuid,nodev,relatime")
	equal(t, "in a user namespace, asked for", inUserNS(mounter, bind("rw", "dev")), "ro,nodev,relatime")
	// The control: its own flags it may change.
	own := specs.Mount{Destination: "/mnt", Type: "bind", Source: makeDir(t, filepath.Join(l.dir, "own")), Options: []string{"bind", "ro"}}
	equal(t, "in a user namespace, of config.json", inUserNS(mounter, addMounts(own)), "rw,relatime")
}

// hostMount binds a directory of the lab onto itself with those flags.
func hostMount(t *testing.T, l *lab, flags uintptr) string {
	t.Helper()
	dir := makeDir(t, filepath.Join(l.dir, "mounted"))
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestBindFromRootfs has sources below the root file system, by the host's path:
// what was mounted there before is part of them.
func TestBindFromRootfs(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)) // runc since 1.2
	volume := makeDir(t, filepath.Join(l.dir, "volume"))
	writeFile(t, filepath.Join(volume, "file"), "text\n", 0o644)
	for name, edits := range map[string]edit{"plain": func(*specs.Spec) {}, "user namespace": idMappings} {
		id := l.newID()
		b := l.bundle(id)
		chownTree(t, b.rootfs, 100000)
		b.write(t, l.config(id, sh("cat /again/file; ls "+b.rootfs+" 2>/dev/null; exit 0"), edits, addMounts(
			specs.Mount{Destination: "/mnt", Type: "bind", Source: volume, Options: []string{"bind"}},
			specs.Mount{Destination: b.rootfs + "/again", Type: "bind", Source: b.rootfs + "/mnt", Options: []string{"rbind"}})))
		r := l.call("run", "--bundle", b.dir, id)
		equal(t, "output, "+name+" ("+r.stderr+")", r.stdout, "text\n")
	}
}

// TestMountThroughDanglingLink makes what the link leads to.
func TestMountThroughDanglingLink(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)) // runc since 1.3
	file, dir := filepath.Join(l.dir, "file"), makeDir(t, filepath.Join(l.dir, "dir"))
	writeFile(t, file, "text\n", 0o644)
	writeFile(t, filepath.Join(dir, "x"), "in it\n", 0o644)
	id := l.newID()
	b := l.bundle(id)
	for link, target := range map[string]string{"etc/link": "/tmp/made", "jump": "/tmp/not/yet", "etc/deep": "../jump/there/file", "etc/dir": "/var/climb/../../../../../madedir"} {
		if err := os.Symlink(target, filepath.Join(b.rootfs, link)); err != nil {
			t.Fatal(err)
		}
	}
	bind := func(source, target string) specs.Mount {
		return specs.Mount{Destination: target, Type: "bind", Source: source, Options: []string{"bind"}}
	}
	b.write(t, l.config(id, sh("cat /tmp/made /tmp/not/yet/there/file /madedir/x"), addMounts(bind(file, "/etc/link"), bind(file, "/etc/deep"), bind(dir, "/etc/dir"))))
	r := l.call("run", "--bundle", b.dir, id)
	equal(t, "output ("+r.stderr+")", r.stdout, "text\ntext\nin it\n")
}
