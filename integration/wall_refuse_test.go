package integration

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// TestWallCannotEnforce has networks around which no wall can be built.
// Create must say so and leave nothing; the same bundle without the
// annotation runs.
func TestWallCannotEnforce(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	for name, network := range map[string]func(l *lab) edit{
		"host network":          func(*lab) edit { return withoutNamespace(specs.NetworkNamespace) },
		"host network, by path": func(*lab) edit { return withNamespace(specs.NetworkNamespace, "/proc/self/ns/net") },
		"host network, by another's path": func(*lab) edit {
			return withNamespace(specs.NetworkNamespace, "/proc/1/ns/net")
		},
		"host mounts": func(*lab) edit { return withoutNamespace(specs.MountNamespace) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, rt)
			choose := network(l)
			id := l.newID()
			b := l.bundle(id, sh("exit 0"), choose, domains(allowedName))
			pidFile := filepath.Join(l.dir, "pid")
			r := l.call("create", "--bundle", b.dir, "--pid-file", pidFile, id)
			l.wantFail(r, "cannot enforce domains")
			for _, misread := range []string{"permission denied", "operation not permitted", "no such file", "not found"} {
				if strings.Contains(r.stderr, misread) {
					t.Errorf("stderr %q holds %q, which podman would misread", r.stderr, misread)
				}
			}
			if _, err := os.Stat(pidFile); err == nil {
				t.Error("there is a pid file")
			}
			l.wantGone(id)
			for _, p := range processes() {
				if isSidecar(p) && strings.Contains(p.cmdline, filepath.Join(l.root, id)) {
					t.Errorf("sidecar %d", p.pid)
				}
			}
			equal(t, "output without the annotation", l.output("echo ok", choose), "ok")
		})
	}
}

// pinnedNetwork makes a network namespace by a shell script in it, and binds
// it to a file.
func (l *lab) pinnedNetwork(script string) string {
	l.t.Helper()
	pinned := filepath.Join(l.dir, "netns")
	writeFile(l.t, pinned, "", 0o644)
	l.helper("unshare", "--net="+pinned, "sh", "-c", script)
	l.t.Cleanup(func() { _ = unix.Unmount(pinned, unix.MNT_DETACH) })
	return pinned
}

// TestWallClosedNamespaceByPath is a namespace that an engine made and that
// has nothing but lo, down as it is born.
func TestWallClosedNamespaceByPath(t *testing.T) {
	rt := eggrunOnly(t)
	l, s := newLab(t, rt), newServer(t)
	pinned := l.pinnedNetwork("true")
	got := l.output("/probe connect 127.0.0.1:3128 "+allowedName+":"+s.httpsPort, withProbe, domains(s.domains()), withNamespace(specs.NetworkNamespace, pinned))
	contains(t, "CONNECT", got, "HTTP/1.1 200 ")
}

// TestNewInterface is an engine that opens the namespace between create and
// start, as buildah does with its own, or by a hook, as Docker did. The wall
// does not care.
func TestNewInterface(t *testing.T) {
	l, c := newLab(t, eggrunOnly(t)), newCanary(t)
	const script = `ip link add eggtest4 type veth peer name eggtest5 && ip address add 10.214.0.1/24 dev eggtest4 && ip link set eggtest4 up && ip link set eggtest5 up && ip route add default via 10.214.0.9`
	tryOut := probe("dial", net.JoinHostPort(canaryIPv4, c.port))
	late := l.create(tryOut, domains(allowedName))
	l.helper("nsenter", "--net=/proc/"+itoa(late.pid)+"/ns/net", "sh", "-c", script)
	late.start()
	_, stdout, _ := late.finishOutput()
	contains(t, "interface before start", stdout, "dial fail")
	const hook = `pid=$(sed 's/.*"pid": *\([0-9]*\).*/\1/'); nsenter -t $pid -n sh -c '` + script + `'`
	r := l.run(tryOut, domains(allowedName), withHooks(func(hooks *specs.Hooks) {
		hooks.CreateRuntime = []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", hook}, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}}
	}))
	contains(t, "interface by a hook ("+r.stderr+")", r.stdout, "dial fail")
	equal(t, "visits", c.visits.Load(), 0)
}

// TestWallSockets has a socket of a host process in a volume, as GitHub's
// runner mounts docker.sock: a way to the host without any network.
func TestWallSockets(t *testing.T) {
	rt := eggrunOnly(t)
	l, c := newLab(t, rt), newCanary(t)
	dir := makeDir(t, filepath.Join(l.dir, "sockets", "deep"))
	c.stream(t, "unix", filepath.Join(dir, "s"))
	for what, mount := range map[string]specs.Mount{
		"socket":    {Destination: "/run/docker.sock", Type: "bind", Source: filepath.Join(dir, "s"), Options: []string{"bind"}},
		"directory": {Destination: "/volume", Type: "bind", Source: filepath.Dir(dir), Options: []string{"rbind", "ro"}},
	} {
		path := map[string]string{"socket": "/run/docker.sock", "directory": "/volume/deep/s"}[what]
		equal(t, what+" without a policy", l.run(probe("dial", path), addMounts(mount)).stdout, "dial ok\n")
		before := c.visits.Load()
		r := l.run(probe("dial", path), addMounts(mount), domains(allowedName))
		if r.code == 0 {
			contains(t, what, r.stdout, "dial fail")
		} else {
			contains(t, what, r.stderr, "cannot enforce")
		}
		equal(t, "visits by "+what, c.visits.Load(), before)
	}
}

// TestWallRefusesUnclearPolicies: what is not understood allows nothing and
// starts nothing.
func TestWallRefusesUnclearPolicies(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	for _, tt := range []struct {
		name       string
		key, value string
		want       string
	}{
		{"unknown key", "eggrun.foo", "x", "eggrun.foo"},
		{"misspelt key", "eggrun.domain", allowedName, "eggrun.domain"},
		{"key in capitals", "Eggrun.Domains", allowedName, "Eggrun.Domains"},
		{"URL", "eggrun.domains", "https://" + allowedName + "/", "eggrun.domains"},
		{"port out of range", "eggrun.domains", allowedName + ":65536", "eggrun.domains"},
		{"port zero", "eggrun.domains", allowedName + ":0", "eggrun.domains"},
		{"wildcard in the middle", "eggrun.domains", "www.*.test", "eggrun.domains"},
		{"wildcard alone with a dot", "eggrun.domains", "*.", "eggrun.domains"},
		{"empty label", "eggrun.domains", "allowed..test", "eggrun.domains"},
		{"one bad of two", "eggrun.domains", allowedName + " bad/name", "eggrun.domains"},
		{"control character", "eggrun.domains", "allowed.test\x00.evil.test", "eggrun.domains"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, rt)
			id := l.newID()
			b := l.bundle(id, sh("exit 0"), annotate(tt.key, tt.value))
			l.wantFail(l.call("create", "--bundle", b.dir, id), tt.want)
			l.wantGone(id)
		})
	}
	t.Run("other annotations", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, rt)
		got := l.output("echo ok", annotate("io.podman.annotations.init", "FALSE"), annotate("eggrunner.example", "x"), annotate("com.eggrun.domains", "x"))
		equal(t, "output", got, "ok")
	})
}
