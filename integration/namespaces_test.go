package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// procName is the name of a namespace in /proc/PID/ns.
var procName = map[specs.LinuxNamespaceType]string{
	specs.PIDNamespace: "pid", specs.NetworkNamespace: "net", specs.MountNamespace: "mnt", specs.IPCNamespace: "ipc",
	specs.UTSNamespace: "uts", specs.UserNamespace: "user", specs.CgroupNamespace: "cgroup", specs.TimeNamespace: "time",
}

// TestNewNamespaces asks for all of them.
func TestNewNamespaces(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.create(sh("exec sleep 1000"), withNamespace(specs.CgroupNamespace, ""))
		for _, kind := range []specs.LinuxNamespaceType{specs.PIDNamespace, specs.NetworkNamespace, specs.MountNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.CgroupNamespace} {
			if procLink(t, c.pid, "ns/"+procName[kind]) == procLink(t, os.Getpid(), "ns/"+procName[kind]) {
				t.Errorf("init is in the caller's %s namespace", kind)
			}
		}
		equal(t, "user namespace", procLink(t, c.pid, "ns/user"), procLink(t, os.Getpid(), "ns/user"))
		l.wantSilent(l.call("delete", "--force", c.id))
	})
}

// TestSharedNamespaces leaves out each namespace in turn: init must be in
// the caller's.
func TestSharedNamespaces(t *testing.T) {
	t.Parallel()
	for _, kind := range []specs.LinuxNamespaceType{specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace} {
		t.Run(string(kind), func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				unmountable := func(spec *specs.Spec) { // mqueue and sysfs belong to the namespace
					spec.Hostname = ""
					dropMounts("/dev/mqueue", "/sys", "/sys/fs/cgroup")(spec)
				}
				c := l.create(sh("exit 0"), withoutNamespace(kind), unmountable)
				equal(t, "namespace", procLink(t, c.pid, "ns/"+procName[kind]), procLink(t, os.Getpid(), "ns/"+procName[kind]))
				c.delete()
			})
		})
	}
}

// TestHostMounts has no mount namespace, left out or named by the caller's: the
// container's mounts are on the host while it is there, in its root file system
// only, and take nothing along that was mounted there before. runc leaves them.
func TestHostMounts(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	for name, namespace := range map[string]edit{
		"none":    withoutNamespace(specs.MountNamespace),
		"by path": withNamespace(specs.MountNamespace, "/proc/self/ns/mnt"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, rt)
			id := l.newID()
			b := l.bundle(id, sh("echo text >/file; cat /file; ls /; exec sleep 1000"), namespace)
			rootfs := filepath.Join(b.dir, "rootfs")
			if err := unix.Mount(rootfs, rootfs, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(rootfs, unix.MNT_DETACH) })
			before := mountsIn(b.dir)
			c := l.createIn(b, id, invocation{})
			equal(t, "namespace", procLink(t, c.pid, "ns/mnt"), procLink(t, os.Getpid(), "ns/mnt"))
			equal(t, "root", procLink(t, c.pid, "root"), rootfs)
			if during := mountsIn(b.dir); len(during) < len(before)+2 || !strings.Contains(strings.Join(during, "\n"), " "+rootfs+"/proc ") {
				t.Errorf("mounts: %q", during)
			}
			c.start()
			c.wantOutput("text\nbin")
			if r := l.call("exec", id, "/bin/sh", "-c", "cat /file; ls /"); !strings.HasPrefix(r.stdout, "text\nbin") {
				t.Errorf("exec: %q, %q", r.stdout, r.stderr)
			}
			c.kill("KILL")
			c.wait()
			c.delete()
			equal(t, "mounts after delete", strings.Join(mountsIn(b.dir), "\n"), strings.Join(before, "\n"))
			equal(t, "file", readFile(t, filepath.Join(rootfs, "file")), "text\n")
		})
	}
	t.Run("root of the host", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, rt)
		id := l.newID()
		b := l.bundle(id, sh("exit 0"), withoutNamespace(specs.MountNamespace), func(spec *specs.Spec) { spec.Root.Path = "/" })
		l.wantFail(l.call("create", "--bundle", b.dir, id), `rootfs "/"`, "mount namespace")
		l.wantGone(id)
	})
}

// mountsIn returns those of the suite's mounts that are at or below dir.
func mountsIn(dir string) []string {
	var in []string
	for _, line := range mounts() {
		if strings.Contains(line, dir) {
			in = append(in, line)
		}
	}
	return in
}

func dropMounts(targets ...string) edit {
	return func(spec *specs.Spec) {
		kept := spec.Mounts[:0]
		for _, mount := range spec.Mounts {
			if !strings.Contains(" "+strings.Join(targets, " ")+" ", " "+mount.Destination+" ") {
				kept = append(kept, mount)
			}
		}
		spec.Mounts = kept
	}
}

// TestJoinNamespaces is podman --network container:X and a pod: a second
// container joins the namespaces of a first one by path.
func TestJoinNamespaces(t *testing.T) {
	t.Parallel()
	for _, kinds := range [][]specs.LinuxNamespaceType{
		{specs.NetworkNamespace}, {specs.IPCNamespace}, {specs.UTSNamespace}, {specs.PIDNamespace},
		{specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.PIDNamespace},
	} {
		t.Run(fmt.Sprint(kinds), func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				first := l.runDetached(sh("echo up; exec sleep 1000"))
				first.wantOutput("up\n")
				edits := []edit{sh("ps | grep -c '[s]leep 1000'; exec sleep 2000"), noHostname}
				for _, kind := range kinds {
					edits = append(edits, withNamespace(kind, fmt.Sprintf("/proc/%d/ns/%s", first.pid, procName[kind])))
				}
				second := l.create(edits...)
				for _, kind := range kinds {
					name := "ns/" + procName[kind]
					equal(t, "namespace "+string(kind), procLink(t, second.pid, name), procLink(t, first.pid, name))
				}
				if !strings.Contains(fmt.Sprint(kinds), "network") && procLink(t, second.pid, "ns/net") == procLink(t, first.pid, "ns/net") {
					t.Error("the network namespace, which was not asked for, is shared")
				}
				second.start()
				want := "0\n"
				if strings.Contains(fmt.Sprint(kinds), "pid") {
					want = "1\n"
				}
				second.wantOutput(want)
				second.kill("KILL")
				equal(t, "exit status of the second", second.wait(), 128+9)
				second.delete()
				equal(t, "status of the first", first.state().Status, "running")
				l.wantSilent(l.call("delete", "--force", first.id))
			})
		})
	}
}

func noHostname(spec *specs.Spec) { spec.Hostname = "" }

// idMappings maps the container's ids from 100000 up.
func idMappings(spec *specs.Spec) {
	withNamespace(specs.UserNamespace, "")(spec)
	mapping := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
	spec.Linux.UIDMappings, spec.Linux.GIDMappings = mapping, mapping
}

func TestUserNamespace(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		id := l.newID()
		b := l.bundle(id, sh("cat /proc/self/uid_map; id; touch /made; exec sleep 1000"), idMappings)
		chownTree(t, b.rootfs, 100000)
		c := l.createIn(b, id, invocation{})
		c.start()
		c.wantOutput("uid=0(root) gid=0(root)")
		contains(t, "uid_map", strings.Join(strings.Fields(c.stdout()), " "), "0 100000 65536")
		if procLink(t, c.pid, "ns/user") == procLink(t, os.Getpid(), "ns/user") {
			t.Error("init is in the caller's user namespace")
		}
		eventually(t, "file made in the container", func() bool {
			var stat unix.Stat_t
			return unix.Stat(filepath.Join(b.rootfs, "made"), &stat) == nil && stat.Uid == 100000
		})

		joinedID := l.newID()
		joined := l.bundle(joinedID, sh("cat /proc/self/uid_map; id -u"), noHostname)
		chownTree(t, joined.rootfs, 100000)
		spec := l.config(joinedID, sh("cat /proc/self/uid_map; id -u"), noHostname, idMappings)
		for _, kind := range []specs.LinuxNamespaceType{specs.UserNamespace, specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.PIDNamespace} {
			withNamespace(kind, fmt.Sprintf("/proc/%d/ns/%s", c.pid, procName[kind]))(spec)
		}
		joined.write(t, spec)
		r := l.call("run", "--bundle", joined.dir, joinedID)
		equal(t, "exit status of the one that joined ("+r.stderr+")", r.code, 0)
		equal(t, "output of the one that joined", strings.Join(strings.Fields(r.stdout), " "), "0 100000 65536 0")
		l.wantSilent(l.call("delete", "--force", c.id))
	})
}

func chownTree(t *testing.T, dir string, id int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || strings.HasSuffix(path, "/bin/busybox") { // a hard link that all bundles share
			return err
		}
		return os.Lchown(path, id, id)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestNamedNetworkNamespace joins one that an engine has prepared and pinned
// by a bind mount, with an interface in it.
func TestNamedNetworkNamespace(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		pinned := filepath.Join(l.dir, "netns")
		writeFile(t, pinned, "", 0o644)
		l.helper("unshare", "--net="+pinned, "sh", "-c", "ip link set lo up && ip link add eggtest0 type bridge")
		t.Cleanup(func() { _ = unix.Unmount(pinned, unix.MNT_DETACH) })
		got := l.output("ls /sys/class/net; cat /sys/class/net/lo/operstate", withNamespace(specs.NetworkNamespace, pinned))
		contains(t, "interfaces", got, "eggtest0")
		r := l.call("list", "-q")
		l.wantOK(r)
		if _, err := os.Stat(pinned); err != nil {
			t.Errorf("the pinned namespace is gone: %v", err)
		}
		equal(t, "an own network namespace", l.output("ls /sys/class/net"), "lo")
	})
}

// TestLoopbackIsUp in a network namespace that the runtime made.
func TestLoopbackIsUp(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		equal(t, "interfaces that are up", l.output("ifconfig | grep -c 'UP LOOPBACK RUNNING'"), "1")
	})
}

// helper runs a program of the host, which must succeed.
func (l *lab) helper(name string, args ...string) string {
	l.t.Helper()
	cmd := exec.Command(name, args...)
	out, err := suite.reaper.output(cmd)
	if err != nil {
		l.t.Fatalf("%v: %v: %s", cmd.Args, err, out)
	}
	return out
}

// TestInitIsPID1 looks at /proc as the container does.
func TestInitIsPID1(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		equal(t, "pid", l.output("echo $$"), "1")
		pids := strings.Fields(l.output("ls /proc | grep '^[0-9]*$'"))
		for _, text := range pids {
			if pid, err := strconv.Atoi(text); err != nil || pid > 20 {
				t.Errorf("/proc shows process %s of outside", text)
			}
		}
	})
}

func TestHostname(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		before, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "hostname", l.output("hostname", func(spec *specs.Spec) { spec.Hostname = "egg.example" }), "egg.example")
		after, err := os.Hostname()
		if err != nil || after != before {
			t.Errorf("hostname of the host: %q (%v), was %q", after, err, before)
		}
	})
}

func TestDomainname(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		got := l.output("cat /proc/sys/kernel/domainname", func(spec *specs.Spec) { spec.Domainname = "nis.example" })
		equal(t, "domainname", got, "nis.example")
	})
}

func TestTimeNamespace(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		got := l.output("cut -d. -f1 /proc/uptime", withNamespace(specs.TimeNamespace, ""), func(spec *specs.Spec) {
			spec.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{"boottime": {Secs: 1_000_000_000}}
		})
		if seconds, err := strconv.Atoi(got); err != nil || seconds < 1_000_000_000 {
			t.Errorf("uptime: %q, want more than a thousand million seconds", got)
		}
	})
}

func TestSysctl(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		got := l.output("cat /proc/sys/net/ipv4/ip_forward /proc/sys/kernel/shm_rmid_forced /proc/sys/net/ipv4/ping_group_range", func(spec *specs.Spec) {
			spec.Linux.Sysctl = map[string]string{"net.ipv4.ip_forward": "1", "kernel.shm_rmid_forced": "1", "net/ipv4/ping_group_range": "0 5"}
		})
		equal(t, "values", strings.Join(strings.Fields(got), " "), "1 1 0 5")
	})
}
