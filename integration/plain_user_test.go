package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Users without privileges: one with subordinate ids, one without.
const (
	withSubIDs    = 12345
	withoutSubIDs = 12346
	nameless      = 12347 // not in /etc/passwd
	firstSubID    = 700000
)

// addUsers makes them known. /etc is the suite's own.
var addUsers = sync.OnceValue(func() error {
	subIDs := fmt.Sprintf("eggtest:%d:65536\n", firstSubID)
	for path, line := range map[string]string{
		"/etc/passwd": fmt.Sprintf("eggtest:x:%d:%d::/tmp:/bin/sh\neggsingle:x:%d:%d::/tmp:/bin/sh\n", withSubIDs, withSubIDs, withoutSubIDs, withoutSubIDs),
		"/etc/subuid": subIDs, "/etc/subgid": subIDs,
	} {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		_, err = f.WriteString(line)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
})

// plainLab is a lab in which everything belongs to a user without privileges.
func plainLab(t *testing.T, rt runtimeUnderTest, uid uint32) *lab {
	t.Helper()
	if err := addUsers(); err != nil {
		t.Fatal(err)
	}
	l := newLab(t, rt)
	l.as = uid
	// Where the checkout is need not be his.
	path := filepath.Join(l.dir, filepath.Base(l.rt.path))
	writeFile(t, path, readFile(t, l.rt.path), 0o755)
	l.rt.path = path
	chownTree(t, l.dir, int(uid))
	return l
}

// plainBundle is a bundle of that user, with one id or with all of his.
func (l *lab) plainBundle(id string, edits ...edit) bundle {
	l.t.Helper()
	b := l.bundle(id, append([]edit{dropMounts("/sys", "/sys/fs/cgroup"), func(spec *specs.Spec) { spec.Linux.CgroupsPath, spec.Linux.Resources = "", nil }}, edits...)...)
	chownTree(l.t, b.dir, int(l.as))
	return b
}

func mapping(mappings ...specs.LinuxIDMapping) edit {
	return func(spec *specs.Spec) {
		withoutTTYGroup(spec)
		withNamespace(specs.UserNamespace, "")(spec)
		spec.Linux.UIDMappings, spec.Linux.GIDMappings = mappings, mappings
	}
}

// withoutTTYGroup is for those who have no gid 5.
func withoutTTYGroup(spec *specs.Spec) {
	for i := range spec.Mounts {
		spec.Mounts[i].Options = slices.DeleteFunc(spec.Mounts[i].Options, func(option string) bool { return option == "gid=5" })
	}
}

// TestPlainUser lets a user without privileges make a container, alone.
func TestPlainUser(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		uid  uint32
		edit edit
		want string // uid_map as seen from the host, and who made the file
	}{
		{"one id", withoutSubIDs, mapping(specs.LinuxIDMapping{ContainerID: 0, HostID: withoutSubIDs, Size: 1}), "0 12346 1, 12346"},
		{"many ids", withSubIDs, both(mapping(specs.LinuxIDMapping{ContainerID: 0, HostID: withSubIDs, Size: 1},
			specs.LinuxIDMapping{ContainerID: 1, HostID: firstSubID, Size: 65536}), asUser(5, 6)), "0 12345 1 1 700000 65536, 700004"},
		{"no namespace of its own", withSubIDs, asUser(5, 6), "0 12345 1 1 700000 65536, 700004"},
		{"no name", nameless, mapping(specs.LinuxIDMapping{ContainerID: 0, HostID: nameless, Size: 1}), "0 12347 1, 12347"},
		{"no ids at all", withoutSubIDs, withoutTTYGroup, "0 12346 1, 12346"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := plainLab(t, eggrunOnly(t), tt.uid)
			id := l.newID()
			b := l.plainBundle(id, sh("touch /tmp/made; echo up; exec sleep 1000"), tt.edit)
			c := l.createIn(b, id, invocation{})
			equal(t, "state", c.state().Status, "created")
			c.start()
			c.wantOutput("up\n")
			var stat unix.Stat_t
			if err := unix.Stat(filepath.Join(b.rootfs, "tmp/made"), &stat); err != nil {
				t.Fatal(err)
			}
			uidMap := strings.Join(strings.Fields(readFile(t, fmt.Sprintf("/proc/%d/uid_map", c.pid))), " ")
			equal(t, "uid_map, owner", fmt.Sprintf("%s, %d", uidMap, stat.Uid), tt.want)
			equal(t, "exec", c.execOutput("cat /proc/1/comm; exit 0"), "sleep")
			equal(t, "status of exec", c.exec(nil, "/bin/sh", "-c", "exit 7").code, 7)
			file, err := os.Open(c.processFile(args("/bin/echo", "by a descriptor"), withoutTTYGroup, func(spec *specs.Spec) { spec.Process.User = specs.User{} }))
			if err != nil {
				t.Fatal(err)
			}
			r := c.invoke(invocation{args: []string{"exec", "--process", "/proc/self/fd/3", id}, extraFiles: []*os.File{file}})
			equal(t, "process ("+r.stderr+")", r.stdout, "by a descriptor\n")
			file.Close()
			l.wantSilent(c.changeMounts("add", specs.Mount{Destination: "/home", Type: "tmpfs", Source: "tmpfs"}))
			contains(t, "mounts", c.execOutput("cat /proc/mounts"), " /home tmpfs")
			c.kill("KILL")
			c.wait()
			c.delete()
		})
	}
}

// TestPlainUserForeground passes on signals and the exit status.
func TestPlainUserForeground(t *testing.T) {
	t.Parallel()
	l := plainLab(t, eggrunOnly(t), withSubIDs)
	id := l.newID()
	l.wantForwarded(id, l.plainBundle(id, sh(trapTerm)))
}

// TestPlainUserForeign: ids that are somebody else's are refused.
func TestPlainUserForeign(t *testing.T) {
	t.Parallel()
	l := plainLab(t, eggrunOnly(t), withSubIDs)
	id := l.newID()
	b := l.plainBundle(id, sh("true"), mapping(specs.LinuxIDMapping{ContainerID: 0, HostID: 100, Size: 1}))
	l.wantFail(l.call("create", "--bundle", b.dir, id), "host id 100 is not the caller's; see /etc/subuid and /etc/subgid")
	l.wantGone(id)
}

// TestPlainUserGroups: a bundle that only a group of the user's may read, which
// the container is not in all the same.
func TestPlainUserGroups(t *testing.T) {
	t.Parallel()
	l := plainLab(t, eggrunOnly(t), withSubIDs)
	id := l.newID()
	b := l.plainBundle(id, sh("id -G"))
	if err := errors.Join(os.Chown(b.dir, 0, extraGroup), os.Chmod(b.dir, 0o750)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		groups []uint32
		want   string
	}{
		{nil, ": permission denied\n"},
		{[]uint32{extraGroup}, "0\n"},
	} {
		cmd, r, log := l.command(invocation{args: []string{"run", "--bundle", b.dir, id}})
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: withSubIDs, Gid: withSubIDs, Groups: tt.groups}}
		if err := suite.reaper.start(cmd); err != nil {
			t.Fatal(err)
		}
		r = l.finish(cmd, r, log)
		contains(t, fmt.Sprintf("output with groups %v", tt.groups), r.stdout+r.stderr, tt.want)
	}
}

// TestPlainUserWall: the wall stands without any privilege.
func TestPlainUserWall(t *testing.T) {
	t.Parallel()
	l := plainLab(t, eggrunOnly(t), withSubIDs)
	id := l.newID()
	b := l.plainBundle(id, sh("env | grep -c 127.0.0.1:3128; wget -q -O - http://denied.test/ 2>&1 || true"), domains("allowed.test"))
	state := makeDir(t, filepath.Join(l.dir, "state"))
	chownTree(t, state, withSubIDs)
	r := l.invoke(invocation{args: []string{"run", "--bundle", b.dir, id}, env: []string{"XDG_STATE_HOME=" + state}})
	contains(t, "output ("+r.stderr+")", r.stdout, "403")
	l.wantGone(id)
}
