package integration

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// mountsFile writes a file for the verb mounts.
func (l *lab) mountsFile(mounts ...specs.Mount) string {
	l.t.Helper()
	data, err := json.Marshal(mounts)
	if err != nil {
		l.t.Fatal(err)
	}
	path := filepath.Join(l.dir, "mounts.json")
	writeFile(l.t, path, string(data), 0o644)
	return path
}

// changeMounts calls "mounts add" or "mounts remove".
func (c *container) changeMounts(verb string, mounts ...specs.Mount) result {
	c.t.Helper()
	return c.call("mounts", verb, c.id, c.mountsFile(mounts...))
}

// volume makes a directory on the host with a file in it, and its bind mount.
func (l *lab) volume(target string, options ...string) specs.Mount {
	dir := makeDir(l.t, filepath.Join(l.dir, "volume"))
	writeFile(l.t, filepath.Join(dir, "file"), "text\n", 0o644)
	return specs.Mount{Destination: target, Type: "bind", Source: dir, Options: append(options, "bind")}
}

// TestMounts adds mounts to a running container, with and without a user
// namespace, and removes them.
func TestMounts(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string][]edit{
		"plain":          nil,
		"user namespace": {withUserNamespace},
		"read-only root": {func(spec *specs.Spec) { spec.Root.Readonly = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, eggrunOnly(t))
			id := l.newID()
			b := l.bundle(id, append([]edit{sh("echo up; exec sleep 1000")}, edits...)...)
			makeDir(t, filepath.Join(b.rootfs, "mnt"))
			if name == "user namespace" {
				chownTree(t, b.rootfs, 100000)
			}
			c := l.createIn(b, id, invocation{})
			c.start()
			c.wantOutput("up\n")
			tmpfs := specs.Mount{Destination: "/mnt/sub", Type: "tmpfs", Source: "tmpfs", Options: []string{"ro", "size=64k"}}
			if name != "read-only root" {
				tmpfs.Destination = "/new/sub"
			}
			l.wantSilent(c.changeMounts("add", specs.Mount{Destination: "/mnt", Type: "tmpfs", Source: "tmpfs"}, tmpfs))
			l.wantSilent(c.changeMounts("add", l.volume("/mnt", "ro", "nosuid")))
			equal(t, "file", c.execOutput("cat /mnt/file"), "text")
			contains(t, "write", c.execOutput("echo x 2>&1 >/mnt/file || true"), "Read-only file system")
			if name != "read-only root" {
				contains(t, "write", c.execOutput("echo x 2>&1 >/new/sub/file || true"), "Read-only file system")
			}
			mountinfo := c.execOutput("cat /proc/self/mountinfo")
			contains(t, "mountinfo", mountinfo, " /mnt ro,nosuid")
			l.wantSilent(c.changeMounts("remove", specs.Mount{Destination: "/mnt"}))
			if after := c.execOutput("cat /proc/self/mountinfo"); strings.Contains(after, " /mnt ro,nosuid") {
				t.Errorf("still mounted: %s", after)
			}
			l.wantSilent(c.changeMounts("remove", specs.Mount{Destination: "/mnt"}, tmpfs))
			if after := c.execOutput("cat /proc/self/mountinfo"); strings.Contains(after, " /mnt") || strings.Contains(after, "/sub") {
				t.Errorf("still mounted: %s", after)
			}
			c.kill("KILL")
			c.wait()
			c.delete()
		})
	}
}

// TestMountsAttack: nothing of the host changes, and what a container has put
// in the way of a mount leads nowhere.
func TestMountsAttack(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	host := makeDir(t, filepath.Join(l.dir, "host"))
	c := l.runDetached(sh("mkdir -p " + host + "; ln -s " + host + " /trap; ln -s /proc/kcore /mask; mkdir /dir; echo up; exec sleep 1000"))
	c.wantOutput("up\n")
	l.wantSilent(c.changeMounts("add", l.volume("/trap/made")))
	equal(t, "in the container", c.execOutput("cat "+host+"/made/file"), "text")
	entries, err := os.ReadDir(host)
	if err != nil || len(entries) > 0 {
		t.Errorf("on the host: %v, %v; want nothing", entries, err)
	}
	for target, why := range map[string]string{
		"/trap/made":  "too many levels of symbolic links",
		"/mask":       "too many levels of symbolic links",
		"/proc/kcore": "is a masked or read-only path of the container",
		"/dir":        "nothing is mounted there",

		"/none": "no such file or directory",
	} {
		l.wantFail(c.changeMounts("remove", specs.Mount{Destination: target}), "unmount \""+target+"\": "+why)
	}
	c.kill("KILL")
	c.wait()
	l.wantFail(c.changeMounts("add", l.volume("/mnt")), "container not running")
	c.delete()
}

// TestMountsErrors: each is one line and changes nothing.
func TestMountsErrors(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	c := l.create(sh("true"))
	valid := l.mountsFile(l.volume("/mnt"))
	broken := filepath.Join(l.dir, "broken")
	writeFile(t, broken, `{"destination":"/mnt"}`, 0o600)
	empty := filepath.Join(l.dir, "empty")
	writeFile(t, empty, "[]", 0o600)
	for want, args := range map[string][]string{
		`"change": want add or remove`:                   {"change", c.id, valid},
		"no such file or directory":                      {"add", c.id, filepath.Join(l.dir, "none")},
		"want an array as in config.json":                {"add", c.id, broken},
		"empty, want at least one":                       {"add", c.id, empty},
		"mounts add none-such: container does not exist": {"add", "none-such", valid},
		"can't be added to a container that exists":      {"add", c.id, l.file("cgroup", specs.Mount{Destination: "/mnt", Type: "cgroup"})},
		"create it on the host or drop the volume":       {"add", c.id, l.file("source", specs.Mount{Destination: "/mnt", Type: "bind", Source: "/none/such"})},
		`fsopen nonesuch: no such device`:                {"add", c.id, l.file("type", specs.Mount{Destination: "/mnt", Type: "nonesuch", Source: "x"})},
	} {
		l.wantFail(l.call(append([]string{"mounts"}, args...)...), want)
	}
	c.delete()
}

// file is mountsFile under another name.
func (l *lab) file(name string, mounts ...specs.Mount) string {
	path := l.mountsFile(mounts...)
	to := filepath.Join(l.dir, name+".json")
	writeFile(l.t, to, readFile(l.t, path), 0o600)
	return to
}

// TestWallMounts: a socket of the host can't be added to a container with a
// policy; without one it can.
func TestWallMounts(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	path := filepath.Join(l.dir, "socket")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	socket := specs.Mount{Destination: "/socket", Type: "bind", Source: path, Options: []string{"bind"}}
	plain := l.runDetached(sh("exec sleep 1000"))
	l.wantSilent(plain.changeMounts("add", socket))
	equal(t, "without a policy", plain.execOutput("test -S /socket && echo socket"), "socket")
	walled := l.runDetached(sh("exec sleep 1000"), domains("allowed.test"))
	l.wantFail(walled.changeMounts("add", socket), "cannot enforce domains", "a socket of the host")
	equal(t, "with a policy", walled.execOutput("ls -d /socket 2>/dev/null || echo none"), "none")
}
