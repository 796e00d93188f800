package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// domains gives a container an allowlist. The default config has a network
// namespace of its own, which nobody opens.
func domains(list string) edit { return annotate("eggrun.domains", list) }

// withProbe binds the probe into the container.
func withProbe(spec *specs.Spec) {
	addMounts(specs.Mount{Destination: "/probe", Type: "bind", Source: probePath(), Options: []string{"bind", "ro"}})(spec)
}

func probe(command ...string) edit {
	return both(withProbe, args(append([]string{"/probe"}, command...)...))
}

// attack is a container that tries every way out, with more capabilities than
// engines give, the host's network namespace as a file, and the canary as its
// name server.
func (l *lab) attack(c *canary) edit {
	l.t.Helper()
	resolv := filepath.Join(l.dir, "resolv.conf")
	writeFile(l.t, resolv, "nameserver "+canaryIPv4+"\n", 0o644)
	pinned := filepath.Join(l.dir, "hostnet")
	if _, err := os.Stat(pinned); err != nil {
		writeFile(l.t, pinned, "", 0o644)
		if err := unix.Mount("/proc/self/ns/net", pinned, "", unix.MS_BIND, ""); err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() { _ = unix.Unmount(pinned, unix.MNT_DETACH) })
	}
	bind := func(source, target string) specs.Mount {
		return specs.Mount{Destination: target, Type: "bind", Source: source, Options: []string{"bind"}}
	}
	return both(
		probe("out", canaryIPv4, canaryIPv6, c.port, c.unixName, "/hostnet"),
		addMounts(bind(resolv, "/etc/resolv.conf"), bind(pinned, "/hostnet")),
		addCapabilities("CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_SYS_ADMIN"),
	)
}

// tries reads what probe out printed.
func tries(t *testing.T, r result) map[string]string {
	t.Helper()
	found := map[string]string{}
	for line := range strings.Lines(r.stdout) {
		name, outcome, _ := strings.Cut(strings.TrimSpace(line), " ")
		found[name] = outcome
	}
	if r.code != 0 || len(found) != 14 {
		t.Fatalf("probe: exit %d, stdout %q, stderr %q; want 14 tries", r.code, r.stdout, r.stderr)
	}
	return found
}

// TestOpenNetworkReachesCanary is the control of [TestWall]: the same program
// on the host's network gets out by every way, with either runtime.
func TestOpenNetworkReachesCanary(t *testing.T) {
	needRoot(t)
	for _, rt := range []runtimeUnderTest{suite.runtime, suite.control} {
		if rt.path == "" {
			continue
		}
		t.Run(rt.name, func(t *testing.T) {
			l, c := newLab(t, rt), newCanary(t)
			for name, outcome := range tries(t, l.run(l.attack(c), withoutNamespace(specs.NetworkNamespace))) {
				equal(t, name, outcome, "ok")
			}
			if c.visits.Load() < 10 {
				t.Errorf("canary: %d visits, want one from most tries", c.visits.Load())
			}
		})
	}
}

// TestWall tries every way out of a container with a policy.
func TestWall(t *testing.T) {
	l, c := newLab(t, eggrunOnly(t)), newCanary(t)
	for _, list := range []string{allowedName, ""} {
		for name, outcome := range tries(t, l.run(l.attack(c), domains(list))) {
			if !strings.HasPrefix(outcome, "fail") {
				t.Errorf("domains %q: %s: %s, want fail", list, name, outcome)
			}
		}
		equal(t, "visits of the canary", c.visits.Load(), 0)
	}
}

// TestWallHostPIDNamespace takes a socket of the host's network from a process
// that the container sees. It may be refused; it must not work. Without a
// policy, it does.
func TestWallHostPIDNamespace(t *testing.T) {
	l, c := newLab(t, eggrunOnly(t)), newCanary(t)
	thief := both(probe("steal", c.port), withoutNamespace(specs.PIDNamespace), addCapabilities(allCapabilities...))
	contains(t, "without a policy", l.run(thief).stdout, "steal ok")
	eventually(t, "visit of the thief", func() bool { return c.visits.Load() > 0 })
	before := c.visits.Load()
	r := l.run(thief, domains(allowedName))
	if r.code != 0 {
		contains(t, "stderr", r.stderr, "cannot enforce domains")
	} else {
		contains(t, "with a policy", r.stdout, "steal fail")
	}
	equal(t, "visits", c.visits.Load(), before)
}

// allCapabilities are what the thief needs to look into pid 1 of the suite,
// which has them all but SYS_RESOURCE.
var allCapabilities = strings.Fields(`CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID CAP_KILL CAP_SETGID CAP_SETUID
	CAP_SETPCAP CAP_NET_ADMIN CAP_NET_RAW CAP_SYS_CHROOT CAP_SYS_PTRACE CAP_SYS_ADMIN CAP_SETFCAP`)

// TestWallIsOnlyForPolicies: without the annotation no sidecar, no variables,
// no filter, no listener.
func TestWallIsOnlyForPolicies(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	c := l.create(probe("dial", "127.0.0.1:3128"), addEnv("HTTPS_PROXY=http://engine.example:1"))
	if sidecars := l.sidecars(c); len(sidecars) > 0 {
		t.Errorf("sidecars: %v", sidecars)
	}
	c.start()
	_, stdout, _ := c.finishOutput()
	contains(t, "dial of the proxy's port", stdout, "dial fail")
	equal(t, "variables", l.output("env | grep -i proxy; grep ^Seccomp: /proc/self/status | cut -f2", addEnv("HTTPS_PROXY=http://engine.example:1")), "HTTPS_PROXY=http://engine.example:1\n0")
}

// sidecars returns the sidecars of a container.
func (l *lab) sidecars(c *container) []process { return sidecarsOf(c.pid) }

// sidecarsOf returns those of a container's init: they hold a pidfd of it.
func sidecarsOf(pid int) []process {
	var found []process
	for _, p := range processes() {
		if isSidecar(p) && slices.Contains(watched(p), pid) {
			found = append(found, p)
		}
	}
	return found
}

// watched returns the live processes that a process holds pidfds of.
func watched(p process) []int {
	var pids []int
	infos, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", p.pid))
	for _, info := range infos {
		text, _ := os.ReadFile(info)
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, "Pid:\t"); ok {
				if pid, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && pid > 0 {
					pids = append(pids, pid)
				}
			}
		}
	}
	return pids
}

func isSidecar(p process) bool {
	fields := strings.Fields(p.cmdline)
	return len(fields) > 1 && fields[1] == "sidecar" && !slices.Contains(fields, "--kill")
}

func (l *lab) oneSidecar(c *container) process {
	l.t.Helper()
	found := l.sidecars(c)
	if len(found) != 1 {
		l.t.Fatalf("sidecars of %s: %v, want one", c.id, found)
	}
	return found[0]
}

// TestSidecar looks at the process that is left beside a container.
func TestSidecar(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	c := l.createWith(invocation{stdout: write, extraFiles: []*os.File{write}}, sh("exec sleep 1000"), domains(allowedName))
	_ = write.Close()
	sidecar := l.oneSidecar(c)
	equal(t, "parent", sidecar.ppid, os.Getpid())
	equal(t, "session", sidecar.session, sidecar.pid)
	for _, want := range []string{"CapInh:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n", "CapBnd:\t0000000000000000\n", "CapAmb:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
		contains(t, "status", procFile(t, sidecar.pid, "status"), want)
	}
	equal(t, "working directory", procLink(t, sidecar.pid, "cwd"), "/")
	equal(t, "environment", strings.Trim(procFile(t, sidecar.pid, "environ"), "\x00"), "")
	// Its root has no /dev any more.
	for fd, target := range descriptors(t, sidecar.pid) {
		if strings.HasPrefix(target, l.dir) || fd <= 2 && target != "/null" {
			t.Errorf("descriptor %d of the sidecar: %s", fd, target)
		}
	}
	equal(t, "network namespace", procLink(t, sidecar.pid, "ns/net"), procLink(t, os.Getpid(), "ns/net"))
	if strings.Contains(sidecar.cgroup, l.cgroup) {
		t.Errorf("the sidecar is in the container's cgroup: %s", sidecar.cgroup)
	}
	c.start()
	c.kill("KILL")
	c.wait()
	// The container has ended: nobody may hold its pipe now, or conmon waits.
	if rest, err := readAll(read); err != nil || rest != "" {
		t.Errorf("pipe: %q (%v)", rest, err)
	}
	wantEnd(l.t, sidecar)
	c.delete()
}

func wantEnd(t *testing.T, sidecar process) {
	t.Helper()
	eventually(t, fmt.Sprintf("end of sidecar %d", sidecar.pid), func() bool {
		for _, p := range processes() {
			if p.pid == sidecar.pid {
				return false
			}
		}
		return true
	})
}

// TestSidecarEnds in each way that a container may go, also without delete.
func TestSidecarEnds(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	for name, end := range map[string]func(l *lab, c *container){
		"program exits":          func(_ *lab, c *container) { c.start(); c.wait() },
		"killed before start":    func(_ *lab, c *container) { c.kill("KILL"); c.wait() },
		"delete of created":      func(_ *lab, c *container) { c.delete() },
		"delete force running":   func(l *lab, c *container) { c.start(); l.wantSilent(l.call("delete", "--force", c.id)) },
		"init killed by outside": func(_ *lab, c *container) { c.start(); _ = unix.Kill(c.pid, unix.SIGKILL); c.wait() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, rt)
			script := "exit 0"
			if strings.Contains(name, "running") {
				script = "exec sleep 1000"
			}
			c := l.create(sh(script), domains(allowedName))
			sidecar := l.oneSidecar(c)
			end(l, c)
			wantEnd(l.t, sidecar)
		})
	}
}

// TestDeadSidecarMeansNoNetwork kills the sidecar: connects are refused at
// once, they do not hang, and the canary stays alone.
func TestDeadSidecarMeansNoNetwork(t *testing.T) {
	rt := eggrunOnly(t)
	l, s := newLab(t, rt), newServer(t)
	target := allowedName + ":" + s.httpsPort
	c := l.create(withProbe, sh("/probe connect 127.0.0.1:3128 "+target+" </dev/null; read line; /probe connect 127.0.0.1:3128 "+target), domains(s.domains()))
	sidecar := l.oneSidecar(c)
	c.delete()
	wantEnd(l.t, sidecar)

	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close(); _ = write.Close() }()
	c = l.createIn(c.bundle, c.id, invocation{stdin: read})
	sidecar = l.oneSidecar(c)
	c.start()
	c.wantOutput("HTTP/1.1 200 ")
	if err := unix.Kill(sidecar.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wantEnd(l.t, sidecar)
	if _, err := write.WriteString("go on\n"); err != nil {
		t.Fatal(err)
	}
	c.wantOutput("\nrefused\n")
	equal(t, "exit status", c.wait(), 0)
	c.delete()
}

// TestKilledCreate ends create by SIGKILL at each stage that can be seen from
// outside; delete --force must then clear up, and nothing may live on.
func TestKilledCreate(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	for _, policy := range []bool{false, true} {
		for name, reached := range map[string]func(l *lab, id string) bool{
			"at once": func(*lab, string) bool { return true },
			"state dir": func(l *lab, id string) bool {
				_, err := os.Stat(filepath.Join(l.root, id))
				return err == nil
			},
			"cgroup": func(l *lab, _ string) bool { return len(cgroupDirs(l.cgroup)) > 0 },
			"init in the cgroup": func(l *lab, _ string) bool {
				for _, p := range processes() {
					if strings.Contains(p.cgroup, l.cgroup+"/") {
						return true
					}
				}
				return false
			},
			"pid file": func(l *lab, _ string) bool {
				_, err := os.Stat(filepath.Join(l.dir, "pid"))
				return err == nil
			},
		} {
			t.Run(fmt.Sprintf("%s, policy %v", name, policy), func(t *testing.T) {
				t.Parallel()
				l := newLab(t, rt)
				id := l.newID()
				b := l.bundle(id, sh("exit 0"))
				if policy {
					b.write(t, l.config(id, sh("exit 0"), domains(allowedName)))
				}
				cmd, r, _ := l.command(invocation{args: []string{"create", "--bundle", b.dir, "--pid-file", filepath.Join(l.dir, "pid"), id}})
				if err := suite.reaper.start(cmd); err != nil {
					t.Fatal(err)
				}
				eventually(t, name, func() bool { return reached(l, id) || hasEnded(cmd.Process.Pid) })
				_ = cmd.Process.Kill()
				_ = l.finish(cmd, r, "")
				if r := l.call("delete", "--force", id); r.code != 0 {
					t.Errorf("delete --force: exit %d: %s", r.code, r.stderr)
				}
				l.wantGone(id)
			})
		}
	}
}

func hasEnded(pid int) bool {
	for _, p := range processStates() {
		if p.pid == pid {
			return p.state == 'Z'
		}
	}
	return true
}

func readAll(file *os.File) (string, error) {
	var text strings.Builder
	_, err := file.WriteTo(&text)
	return text.String(), err
}

// probePath is where the outer process built testdata/probe.
func probePath() string { return filepath.Join(filepath.Dir(suite.dir), "probe") }
