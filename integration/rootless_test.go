package integration

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// rootlessUser is a normal user who is logged in: with subordinate ids, a
// service manager of its own, and a cgroup that is delegated to it.
type rootlessUser struct {
	uid     uint32
	manager managerName
	runDir  string // XDG_RUNTIME_DIR
}

// extraGroup is one that the user is in beside its own.
const extraGroup = 4242

// loggedIn is that user of the guests of make test-vm.
func loggedIn(manager managerName) *rootlessUser {
	return &rootlessUser{uid: 1000, manager: manager, runDir: "/run/user/1000"}
}

// isThere tells whether the machine has such a user.
func (u *rootlessUser) isThere() error {
	if suite.cgroups.manager != systemd {
		return errors.New("EGGRUN_TEST_CGROUPS is not systemd")
	}
	_, err := os.Stat(filepath.Join(u.runDir, "bus"))
	return err
}

// own makes it the owner of a file.
func (u *rootlessUser) own(t *testing.T, path string) {
	t.Helper()
	if err := os.Chown(path, int(u.uid), int(u.uid)); err != nil {
		t.Fatal(err)
	}
}

// become has the user run a command, in a scope of its service manager whose
// cgroup it may use.
func (u *rootlessUser) become(cmd *exec.Cmd) {
	scope := []string{"systemd-run", "--quiet", "--user", "--scope", "--collect", "--property=Delegate=yes", "--"}
	if path, err := exec.LookPath(scope[0]); err == nil {
		cmd.Path = path
	}
	cmd.Args = append(scope, cmd.Args...)
	cmd.Env = append(cmd.Env, "HOME=/home/tester", "XDG_RUNTIME_DIR="+u.runDir, "DBUS_SESSION_BUS_ADDRESS=unix:path="+u.runDir+"/bus",
		"PODMAN_IGNORE_CGROUPSV1_WARNING=1")
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: u.uid, Gid: u.uid, Groups: []uint32{extraGroup}}
}

// notForUsers are cases of [TestPodman] that need what only root has, and why.
var notForUsers = map[string]string{
	"device":         "device rules are eBPF programs, which only root may load",
	"user namespace": "asks for ids of the host that are not the user's",
	// What podman itself refuses to a user, or words in another way.
	"policy, refused":          "device cgroup rules and host devices",
	"policy, everyday options": "asks for ids of the host that are not the user's",
}

// notOnV1 are cases for which podman wants cgroups that users do not have with v1.
var notOnV1 = []string{"memory", "stats", "stats with a limit", "update", "out of memory", "pause", "remove paused", "commit", "copy while it runs"}

// TestRootlessPodman has a normal user do what [TestPodman] has root do, with
// either cgroup manager, and what only such a user asks for.
func TestRootlessPodman(t *testing.T) {
	needRoot(t)
	for _, manager := range []managerName{systemd, cgroupfs} {
		t.Run(string(manager), func(t *testing.T) {
			user := loggedIn(manager)
			need(t, "a user with a service manager", user.isThere)
			if !isCgroup2() && manager == systemd {
				need(t, "cgroup v2, without which users cannot manage cgroups", func() error { return errors.New("cgroup v1") })
			}
			store := newPodmanStore(t, user)
			t.Cleanup(func() { // ends the process that keeps podman's user namespace
				(&podman{t: t, store: store, rt: suite.runtime, dir: store.dir}).ok("system", "migrate")
			})
			t.Run("cases", func(t *testing.T) {
				for _, tt := range slices.Concat(podmanCases(), rootlessCases()) {
					if _, ok := notForUsers[tt.name]; ok || !isCgroup2() && slices.Contains(notOnV1, tt.name) {
						continue
					}
					t.Run(tt.name, func(t *testing.T) {
						t.Parallel()
						if tt.need != nil {
							need(t, tt.needs, tt.need)
						}
						store.each(t, tt.run)
					})
				}
			})
		})
	}
}

// TestRootlessExecUser has the user's service manager, which moves the user's own
// processes only, put one into the cgroup that is to be another user's.
func TestRootlessExecUser(t *testing.T) {
	needRoot(t)
	user := loggedIn(systemd)
	need(t, "a user with a service manager", user.isThere)
	if !isCgroup2() {
		need(t, "cgroup v2, without which users cannot manage cgroups", func() error { return errors.New("cgroup v1") })
	}
	l := plainLab(t, eggrunOnly(t), user.uid)
	call := func(args ...string) result {
		return l.invoke(invocation{
			globals: []string{"--root", l.root, "--systemd-cgroup"}, args: args,
			env: []string{"XDG_RUNTIME_DIR=" + user.runDir, "DBUS_SESSION_BUS_ADDRESS=unix:path=" + user.runDir + "/bus"},
		})
	}
	id := l.newID()
	b := l.plainBundle(id, sh("exec sleep 1000"), mapping(specs.LinuxIDMapping{ContainerID: 0, HostID: user.uid, Size: 1},
		specs.LinuxIDMapping{ContainerID: 1, HostID: 100000, Size: 65536}))
	l.wantSilent(call("run", "--detach", "--bundle", b.dir, id))
	for _, uid := range []string{"0", "33"} {
		r := call("exec", "--user", uid, id, "sh", "-c", "id -u; cat /proc/1/cgroup /proc/self/cgroup | grep 0:: | uniq | wc -l")
		equal(t, "user and cgroups ("+r.stderr+")", r.stdout, uid+"\n1\n")
	}
	l.wantSilent(call("delete", "--force", id))
}

// rootlessCases are those for normal users alone.
func rootlessCases() []podmanCase {
	return []podmanCase{
		{name: "user", run: func(t *testing.T, p *podman) {
			equal(t, "root", p.output("id -u; awk '{print $1, $2, $3}' /proc/self/uid_map"), "0\n0 1000 1\n1 100000 65536")
			equal(t, "keep-id", p.output("id -u; id -g", "--userns", "keep-id"), "1000\n1000")
			equal(t, "another", p.output("id -u", "--user", "33"), "33")
		}},
		{name: "groups", run: func(t *testing.T, p *podman) {
			// Groups that are not mapped show as nobody's.
			equal(t, "without", p.output("id -G"), "0")
			equal(t, "kept", p.output("id -G", "--group-add", "keep-groups"), "0 65534")
		}},
		{name: "cgroup", run: func(t *testing.T, p *podman) {
			id := p.detach(image, "sleep", "1000")
			pid, err := strconv.Atoi(p.ok("inspect", "--format", "{{.State.Pid}}", id))
			if err != nil {
				t.Fatal(err)
			}
			if isCgroup2() {
				contains(t, "cgroup", cgroupOf(t, pid, ""), "/user.slice/user-1000.slice/user@1000.service/")
				contains(t, "cgroup", cgroupOf(t, pid, ""), id)
			}
		}},
		{name: "policy", run: func(t *testing.T, p *podman) {
			if !p.rt.isEggrun() {
				return
			}
			const script = `p=${https_proxy#http://}; p=${p%/}; printf 'CONNECT refused.test:443 HTTP/1.1\r\nHost: refused.test:443\r\n\r\n' | nc ${p%:*} ${p##*:}`
			got := p.output(script, "--annotation", "eggrun.domains=allowed.test")
			contains(t, "refusal", got, "403")
			equal(t, "without", p.output("env | grep -c -i https_proxy || true"), "0")
		}},
	}
}
