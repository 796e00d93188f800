package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// TestAttackFakeProc covers the container's /proc/sys with files of the
// attacker: sysctls must reach the kernel all the same (CVE-2025-52881).
func TestAttackFakeProc(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	fake := makeDir(t, filepath.Join(l.dir, "fake"))
	if err := os.MkdirAll(filepath.Join(fake, "net/ipv4"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(fake, "net/ipv4/ip_forward"), "attacker's", 0o666)
	sysctl := func(spec *specs.Spec) { spec.Linux.Sysctl = map[string]string{"net.ipv4.ip_forward": "1"} }
	c := l.create(sh("exec sleep 1000"), sysctl, addMounts(
		specs.Mount{Destination: "/proc/sys", Source: fake, Options: []string{"bind"}}))
	// The control: the container does see the fake.
	root := fmt.Sprintf("/proc/%d/root/proc/sys/net/ipv4/ip_forward", c.pid)
	equal(t, "the container's view", readFile(t, root), "attacker's")
	out := l.output("cat /proc/sys/net/ipv4/ip_forward", withNamespace(specs.NetworkNamespace, fmt.Sprintf("/proc/%d/ns/net", c.pid)))
	equal(t, "the kernel's value", out, "1")
	equal(t, "the fake", readFile(t, filepath.Join(fake, "net/ipv4/ip_forward")), "attacker's")
}

// TestAttackPasswd: /etc/passwd of the image is read for HOME
// (CVE-2026-135844).
func TestAttackPasswd(t *testing.T) {
	t.Parallel()
	withoutHome := func(spec *specs.Spec) { spec.Process.Env = []string{"PATH=/bin"} }
	for name, make := range map[string]func(path string) error{
		"fifo":      func(path string) error { return unix.Mkfifo(path, 0o644) },
		"device":    func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) },
		"huge":      func(path string) error { return os.Truncate(path, 1<<40) },
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"link":      func(path string) error { return os.Symlink("/proc/self/fd/0", path) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, eggrunOnly(t))
			id := l.newID()
			b := l.bundle(id, sh("echo $HOME"), withoutHome)
			path := filepath.Join(b.rootfs, "etc/passwd")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if name == "huge" {
				writeFile(t, path, "", 0o644)
			}
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			// It ends, and does not take the memory of the host.
			r := l.invoke(invocation{args: []string{"run", "--bundle", b.dir, id}})
			if r.code == 0 {
				equal(t, "HOME", r.stdout, "/\n")
			}
		})
	}
	// The control: a real one is read.
	l := newLab(t, eggrunOnly(t))
	equal(t, "HOME", l.output("echo $HOME", withoutHome), "/root")
}

// TestAttackCopyUp: tmpcopyup copies links as links (CVE-2026-133553).
func TestAttackCopyUp(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	bait := l.bait()
	writeFile(t, filepath.Join(l.dir, "secret"), "secret", 0o600)
	id := l.newID()
	b := l.bundle(id, sh("cat /data/file /data/sub/file; readlink /data/link; readlink /data/secret; cat /data/secret"), addMounts(
		specs.Mount{Destination: "/data", Type: "tmpfs", Source: "tmpfs", Options: []string{"tmpcopyup"}}))
	data := makeDir(t, filepath.Join(b.rootfs, "data"))
	writeFile(t, filepath.Join(data, "file"), "copied ", 0o644)
	writeFile(t, filepath.Join(makeDir(t, filepath.Join(data, "sub")), "file"), "deep\n", 0o644)
	bait.link(filepath.Join(data, "link"), "made")
	if err := os.Symlink(filepath.Join(l.dir, "secret"), filepath.Join(data, "secret")); err != nil {
		t.Fatal(err)
	}
	r := l.invoke(invocation{args: []string{"run", "--bundle", b.dir, id}})
	equal(t, "output", r.stdout, "copied deep\n"+filepath.Join(bait.dir, "made")+"\n"+filepath.Join(l.dir, "secret")+"\n")
	bait.untouched()
}

// TestAttackReadonlyRoot: a read-only root is one from the first instruction
// on, also where the image has a fake /proc (CVE-2026-115521).
func TestAttackReadonlyRoot(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	withoutProc := func(spec *specs.Spec) {
		spec.Root.Readonly = true
		spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths = nil, nil
		spec.Mounts = spec.Mounts[1:] // /proc is the first
	}
	id := l.newID()
	b := l.bundle(id, sh("touch /made 2>/dev/null && echo written || echo refused"), withoutProc)
	self := filepath.Join(b.rootfs, "proc/self")
	if err := os.MkdirAll(filepath.Join(self, "fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := l.invoke(invocation{args: []string{"run", "--bundle", b.dir, id}})
	equal(t, "write", r.stdout, "refused\n")
	// The control: without the flag it is written.
	equal(t, "write", l.output("touch /made && echo written"), "written")
}

// TestAttackCgroups: without a cgroup namespace an unprivileged user's container
// sees cgroups of his that are not its own (CVE-2023-25809).
func TestAttackCgroups(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	writable := func(spec *specs.Spec) {
		spec.Linux.CgroupsPath = filepath.Join(l.cgroup, "attack")
		withoutNamespace(specs.CgroupNamespace)(spec)
		for i := range spec.Mounts {
			if m := &spec.Mounts[i]; m.Type == "cgroup" {
				m.Options = []string{"nosuid", "noexec", "nodev"}
			}
		}
	}
	const script = "cd /sys/fs/cgroup; [ -d pids ] && cd pids; mkdir made 2>/dev/null && rmdir made && echo written || echo refused"
	run := func(rootless string) string {
		id := l.newID()
		r := l.invoke(invocation{
			globals: []string{"--root", l.root, "--rootless", rootless, "--cgroup-manager", "cgroupfs"},
			args:    []string{"run", "--bundle", l.bundle(id, sh(script), writable).dir, id},
		})
		return r.stdout
	}
	equal(t, "rootless", run("true"), "refused\n")
	// The control: root gets what the engine asks for.
	equal(t, "root", run("false"), "written\n")
}
