package integration

import (
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// capNetAdmin prints bits 12 to 15 of the capabilities that a program can get,
// of which the first is NET_ADMIN, and how many filters it has.
const capNetAdmin = "sed -n 's/^CapBnd:.*\\(.\\)...$/\\1/p; s/^Seccomp_filters:.//p' /proc/self/status"

// TestJoinDeadSidecar joins a network namespace whose sidecar was killed, without
// a request and with more rights than its members have: they must not get a
// companion that could undo their wall. Its sidecar serves them all.
func TestJoinDeadSidecar(t *testing.T) {
	l, s := newLab(t, eggrunOnly(t)), newServer(t)
	sleep := sh("echo up; exec sleep 1000")
	first := l.runDetached(withProbe, s.withAuthority(), domains(s.domains()), sleep)
	first.wantOutput("up\n")
	network := "/proc/" + itoa(first.pid) + "/ns/net"
	joins := both(withNamespace(specs.NetworkNamespace, network), addCapabilities("CAP_NET_ADMIN"))
	equal(t, "control: in a namespace without a policy", l.output(capNetAdmin, addCapabilities("CAP_NET_ADMIN")), "1\n0")

	dead := l.oneSidecar(first)
	if err := unix.Kill(dead.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantEnd(l.t, dead)
	other := l.runDetached(domains(allowedName), sleep) // prunes what is left of sidecars
	l.wantSilent(l.call("delete", "--force", other.id))
	r := l.run(sh("exit 0"), joins, domains("other.test"))
	equal(t, "exit status with another policy", r.code, 1)
	contains(t, "stderr with another policy", r.stderr, "[other.test]")
	equal(t, "without a request", l.output(capNetAdmin, joins), "0\n1")

	later := l.runDetached(joins, sleep)
	later.wantOutput("up\n")
	fetch := func() string {
		return l.call("exec", first.id, "/probe", "fetch", "https://"+allowedName+":"+s.httpsPort+"/").stdout
	}
	contains(t, "the first one, by the new sidecar", fetch(), "200 OK")
	l.wantSilent(l.call("delete", "--force", later.id))
	contains(t, "after the later one's end", fetch(), "200 OK")
	l.wantSilent(l.call("delete", "--force", first.id))
}

// TestOwnPlaces mounts the directories in which eggrun keeps the control sockets
// of sidecars, by which a policy can be replaced, and what it runs in a container.
// The control sees there what is somebody's.
func TestOwnPlaces(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	walled := l.sleeper(domains(allowedName))
	for source, look := range map[string]string{
		"/run/eggrun":                                  "netns",
		"/run/eggrun/netns":                            "",
		l.root:                                         walled.id,
		filepath.Dir(l.root):                           filepath.Base(l.root),
		filepath.Join(l.root, walled.id):               "state.json",
		filepath.Join(l.root, ".cache"):                "",
		l.root + "/" + walled.id + "/../":              walled.id,
		filepath.Join(l.root, walled.id, "state.json"): "",
	} {
		mount := addMounts(specs.Mount{Destination: "/host", Source: source, Options: []string{"bind"}})
		contains(t, "control, "+source, l.output("ls -a /host", mount), look)
		id := l.newID()
		b := l.bundle(id, sh("exit 0"), mount, domains(allowedName))
		l.wantFail(l.call("create", "--bundle", b.dir, id), "cannot enforce domains", `mount "`)
		l.wantGone(id)
	}
	near := makeDir(t, filepath.Join(l.dir, "near"))
	equal(t, "a directory beside them", l.output("echo ok", domains(allowedName), addMounts(specs.Mount{Destination: "/host", Source: near, Options: []string{"bind"}})), "ok")
}

// TestJoinRuler asks for a policy in the network namespace of a container that
// has none, and the right to take any wall down. Of one without that right
// nothing is to be feared.
func TestJoinRuler(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	exec := l.sleeper()
	exec.execDetached(invocation{}, []string{"--process", exec.processFile(sh("sleep 600"), privileged)})
	for _, tt := range []struct {
		other  *container
		refuse bool
	}{{l.sleeper(), false}, {l.sleeper(addCapabilities("CAP_NET_ADMIN")), true}, {exec, true}} {
		joins := withNamespace(specs.NetworkNamespace, "/proc/"+itoa(tt.other.pid)+"/ns/net")
		if !tt.refuse {
			equal(t, "without NET_ADMIN", l.output("echo ok", joins, domains(allowedName)), "ok")
			continue
		}
		id := l.newID()
		b := l.bundle(id, sh("exit 0"), joins, domains(allowedName))
		l.wantFail(l.call("create", "--bundle", b.dir, id), "cannot enforce domains", "container "+tt.other.id, "NET_ADMIN")
		l.wantGone(id)
		equal(t, "control: without a policy", l.output("echo ok", joins), "ok")
	}
}

// TestExecBesidePolicy executes, with rights over the network, in a container that
// was in its namespace before one with a policy came.
func TestExecBesidePolicy(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	w := l.newWorld(true)
	guest := l.sleeper(withProbe, w.network())
	tamper := func() string { return guest.processOutput(args("/probe", "table", "mine"), privileged) }
	equal(t, "control", tamper(), "table ok")
	walled := l.sleeper(w.network(), domains(allowedName))
	equal(t, "beside a policy", tamper(), "table fail: operation not permitted")
	l.wantSilent(l.call("delete", "--force", walled.id))
	equal(t, "when that is gone", tamper(), "table ok")
}

// TestOverlaySockets shows the container a directory of the host with a socket by
// an overlay: nobody listens there. The control is the directory itself.
func TestOverlaySockets(t *testing.T) {
	l, c := newLab(t, eggrunOnly(t)), newCanary(t)
	lower, upper, work := makeDir(t, filepath.Join(l.dir, "lower")), makeDir(t, filepath.Join(l.dir, "upper")), makeDir(t, filepath.Join(l.dir, "work"))
	c.stream(t, "unix", filepath.Join(lower, "s"))
	dial := both(probe("dial", "/volume/s"), domains(allowedName))
	direct := addMounts(specs.Mount{Destination: "/volume", Type: "bind", Source: lower, Options: []string{"bind"}})
	equal(t, "control", l.run(dial, direct, annotate("eggrun.allow-sockets", lower)).stdout, "dial ok\n")
	before := c.visits.Load()
	overlay := addMounts(specs.Mount{Destination: "/volume", Type: "overlay", Source: "overlay", Options: []string{"lowerdir=" + lower + ",upperdir=" + upper + ",workdir=" + work}})
	r := l.run(dial, overlay)
	contains(t, "by an overlay ("+r.stderr+")", r.stdout, "dial fail")
	equal(t, "visits", c.visits.Load(), before)
}
