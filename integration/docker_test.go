package integration

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDocker drives each runtime through a docker daemon of the test's own.
func TestDocker(t *testing.T) {
	needRoot(t)
	needPrograms(t, "dockerd", "containerd", "docker", "iptables")
	t.Parallel()
	d := newDocker(t)
	for name, test := range map[string]func(t *testing.T, d *docker){
		"life":           dockerLife,
		"exec":           dockerExec,
		"everyday":       dockerEveryday,
		"limits":         dockerLimits,
		"joined":         dockerJoined,
		"health":         dockerHealth,
		"published port": dockerPublished,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, rt := range []string{suite.runtime.name, "control"} {
				if rt == "control" && suite.control.path == "" {
					continue
				}
				t.Run(rt, func(t *testing.T) {
					t.Parallel()
					test(t, d.as(t, rt))
				})
			}
		})
	}
}

// needPrograms is for what is not in every system.
func needPrograms(t *testing.T, names ...string) {
	t.Helper()
	need(t, strings.Join(names, ", "), func() error {
		for _, name := range names {
			if _, err := exec.LookPath(name); err != nil {
				return err
			}
		}
		return nil
	})
}

// docker is a client of a daemon that has a containerd, images and networks of
// its own.
type docker struct {
	t   *testing.T
	lab *lab
	// socket is where the daemon listens.
	socket string
	// runtime is what containers are made with, suffix ends their names.
	runtime, suffix string
	server          *server
}

// walledRuntime is a name of the runtime under test, where it sees a policy file.
const walledRuntime = "walled"

// newDocker starts a daemon. By default it makes containers with the runtime
// under test as it sees a policy file, and BuildKit, which looks for runc in the
// PATH, finds the same. The runtime's own name, and "control", stand for it and for
// runc without.
func newDocker(t *testing.T) *docker {
	t.Helper()
	l := newLab(t, suite.runtime)
	run := filepath.Join("/run", filepath.Base(l.dir)) // for short names of sockets
	d := &docker{t: t, lab: l, socket: filepath.Join(run, "docker.sock"), server: newServer(t)}
	if l.rt.isEggrun() {
		l.underPolicy(fmt.Sprintf("[default]\ndomains = [\"%s\"]\n", strings.ReplaceAll(d.server.domains(), " ", `", "`)), "true")
	}
	runtimes := map[string]any{suite.runtime.name: runtimePath(suite.runtime.path), walledRuntime: runtimePath(l.rt.path)}
	if suite.control.path != "" {
		runtimes["control"] = runtimePath(suite.control.path)
	}
	delete(runtimes, "runc") // the daemon's own
	config, err := json.Marshal(map[string]any{
		"data-root": filepath.Join(l.dir, "data"), "exec-root": run, "pidfile": filepath.Join(run, "docker.pid"),
		"hosts": []string{"unix://" + d.socket}, "storage-driver": "overlay2", "cgroup-parent": suite.cgroups.parent(filepath.Base(l.dir)),
		"exec-opts": []string{"native.cgroupdriver=" + string(suite.cgroups.manager)},
		// Others have bridges here too, whose packets are not to be dropped.
		"iptables": false, "bip": "172.31.200.1/24",
		"runtimes": runtimes, "default-runtime": walledRuntime,
	})
	if err != nil {
		t.Fatal(err)
	}
	first := makeDir(t, filepath.Join(l.dir, "path"))
	if err := os.Symlink(l.rt.path, filepath.Join(first, "runc")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(l.dir, "daemon.json"), string(config), 0o600)
	t.Cleanup(func() { // above the steps of builds, as under runc
		for _, folder := range cgroupFolders(filepath.Join(l.cgroup, "buildkit")) {
			_ = unix.Rmdir(folder)
		}
	})
	l.serve(exec.Command("dockerd", "--config-file", filepath.Join(l.dir, "daemon.json")), first)
	eventually(t, "docker daemon", func() bool { return d.call("version").code == 0 })
	rootfs := filepath.Join(l.dir, "rootfs")
	makeRootfs(t, rootfs)
	tarball := filepath.Join(l.dir, "busybox.tar")
	pack(t, rootfs, tarball)
	d.ok("import", "--change", `CMD ["/bin/sh"]`, tarball, dockerImage)
	return d
}

// dockerImage is busybox with /bin/sh as its command.
const dockerImage = "busybox:test"

func runtimePath(path string) map[string]string { return map[string]string{"path": path} }

// serve runs a daemon until the end of the test, with dir first in its PATH.
func (l *lab) serve(cmd *exec.Cmd, dir string) {
	l.t.Helper()
	name := filepath.Base(cmd.Path)
	out := l.createFile(filepath.Join(l.dir, name+".log"))
	cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + l.dir, "TMPDIR=" + l.dir}
	cmd.Stdout, cmd.Stderr = out, out
	if err := suite.reaper.start(cmd); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		tooLong := time.AfterFunc(patience, func() { _ = cmd.Process.Signal(unix.SIGKILL) })
		if err := suite.reaper.wait(cmd); !tooLong.Stop() {
			l.t.Errorf("%s did not end: %v", name, err)
		}
		if l.t.Failed() {
			l.t.Logf("%s: %s", name, tail(readIfThere(l.t, out.Name())))
		}
	})
}

// tail is the end of a long text.
func tail(text string) string { return text[max(0, len(text)-2<<10):] }

// as is a client for one test, with a runtime. In the end its containers are
// removed.
func (d *docker) as(t *testing.T, runtime string) *docker {
	t.Helper()
	c := &docker{t: t, lab: d.lab, socket: d.socket, runtime: runtime, server: d.server}
	c.suffix = strings.ToLower(strings.NewReplacer("/", "-", " ", "-", "_", "-").Replace(t.Name()))
	t.Cleanup(c.removeContainers)
	return c
}

// removeContainers removes those of the test.
func (d *docker) removeContainers() {
	if ids := strings.Fields(d.ok("ps", "-aq", "--filter", "name="+d.suffix+"$")); len(ids) > 0 {
		d.ok(append([]string{"rm", "-f"}, ids...)...)
	}
}

// dockerClient is Debian's, which has a builder of its own until version 23.
func dockerClient() string {
	const packaged = "/usr/bin/docker"
	if _, err := os.Stat(packaged); err == nil {
		return packaged
	}
	return "docker"
}

func (d *docker) call(args ...string) result {
	d.t.Helper()
	return d.callWith("", nil, args...)
}

// callWith runs the client with the input, and with more of an environment.
func (d *docker) callWith(stdin string, env []string, args ...string) result {
	d.t.Helper()
	cmd := exec.Command(dockerClient(), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.lab.dir, "DOCKER_HOST=unix://" + d.socket}, env...)
	cmd.Dir = d.lab.dir
	cmd.Stdin = strings.NewReader(stdin)
	return callProgram(d.t, cmd)
}

// callProgram runs a program to its end and returns how that was.
func callProgram(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := suite.reaper.start(cmd); err != nil {
		t.Fatal(err)
	}
	tooLong := time.AfterFunc(2*patience, func() { _ = cmd.Process.Signal(unix.SIGKILL) })
	err := suite.reaper.wait(cmd)
	if !tooLong.Stop() {
		t.Errorf("%v: did not end within %v", cmd.Args, 2*patience)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return result{args: cmd.Args, code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

// must returns the output of what must have succeeded.
func (r result) must(t *testing.T) string {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("%v: exit %d, stdout %q, stderr %q", r.args, r.code, r.stdout, r.stderr)
	}
	return strings.TrimRight(r.stdout, "\r\n")
}

func (d *docker) ok(args ...string) string {
	d.t.Helper()
	return d.call(args...).must(d.t)
}

// name is that of a container of the test.
func (d *docker) name(short string) string { return short + "-" + d.suffix }

// runArgs are docker run with the test's runtime, and without a network unless
// args name one.
func (d *docker) runArgs(args ...string) []string {
	command := []string{"run", "--runtime", cmp.Or(d.runtime, walledRuntime)}
	if !strings.Contains(strings.Join(args, " "), "--network") {
		command = append(command, "--network", "none")
	}
	return append(command, args...)
}

// runOnce runs a container to its end.
func (d *docker) runOnce(args ...string) result {
	d.t.Helper()
	return d.call(d.runArgs(append([]string{"--rm"}, args...)...)...)
}

// output is that of a shell script, which must exit 0, in a container with the
// options.
func (d *docker) output(script string, options ...string) string {
	d.t.Helper()
	return d.runOnce(append(options, dockerImage, "sh", "-c", script)...).must(d.t)
}

// detach starts a container in the background and returns its name.
func (d *docker) detach(short string, args ...string) string {
	d.t.Helper()
	d.ok(d.runArgs(append([]string{"-d", "--name", d.name(short)}, args...)...)...)
	return d.name(short)
}

// inspect returns a field of a container.
func (d *docker) inspect(name, field string) string {
	d.t.Helper()
	return d.ok("inspect", "--format", "{{"+field+"}}", name)
}

func dockerLife(t *testing.T, d *docker) {
	equal(t, "exit status", d.runOnce(dockerImage, "sh", "-c", "exit 7").code, 7)
	missing := d.runOnce(dockerImage, "nosuchprogram")
	equal(t, "exit status of a missing program", missing.code, 127)
	contains(t, "missing program", missing.stderr, `"nosuchprogram": executable file not found in $PATH`)
	equal(t, "exit status of a directory", d.runOnce(dockerImage, "/etc").code, 126)
	contains(t, "terminal", d.runOnce("-t", dockerImage, "tty").must(t), "/dev/pts/0")

	name := d.detach("one", "--init", dockerImage, "sh", "-c", "trap 'exit 5' TERM; echo ready; while :; do sleep 1; done")
	ready := func() { eventually(t, "output", func() bool { return d.ok("logs", name) == "ready" }) }
	ready()
	d.ok("stop", "-t", "20", name)
	equal(t, "exit status of stop", d.inspect(name, ".State.ExitCode"), "5")
	d.ok("start", name)
	d.ok("restart", "-t", "0", name)
	d.ok("kill", "-s", "KILL", name)
	eventually(t, "end", func() bool { return d.inspect(name, ".State.Status") == "exited" })
	equal(t, "exit status of kill", d.inspect(name, ".State.ExitCode"), "137")
	d.ok("start", name)
	d.ok("rm", "-f", name)
}

func dockerExec(t *testing.T, d *docker) {
	name := d.detach("one", dockerImage, "sleep", "1000")
	equal(t, "output", d.ok("exec", "-e", "X=1", "-u", "1000:1000", "-w", "/tmp", name, "sh", "-c", "id -u; id -g; pwd; echo $X"), "1000\n1000\n/tmp\n1")
	equal(t, "exit status", d.call("exec", name, "sh", "-c", "exit 3").code, 3)
	contains(t, "terminal", d.ok("exec", "-t", name, "tty"), "/dev/pts/0")
	equal(t, "input", d.callWith("typed\n", nil, "exec", "-i", name, "cat").must(t), "typed")
	missing := d.call("exec", name, "nosuchprogram")
	if missing.code != 126 && missing.code != 127 { // 127 from docker 27 on
		t.Errorf("missing program: exit %d", missing.code)
	}
	contains(t, "missing program", missing.stdout+missing.stderr, `"nosuchprogram": executable file not found in $PATH`)
	eventually(t, "sleep in top", func() bool { return strings.Contains(d.ok("top", name), "sleep 1000") })
	d.ok("pause", name)
	equal(t, "paused", d.inspect(name, ".State.Status"), "paused")
	d.ok("unpause", name)
	equal(t, "resumed", d.ok("exec", name, "echo", "in"), "in")
	d.ok("cp", filepath.Join(d.lab.dir, "daemon.json"), name+":/copied")
	contains(t, "diff", d.ok("diff", name), "A /copied")
}

func dockerEveryday(t *testing.T, d *docker) {
	dir := makeDir(t, filepath.Join(d.lab.dir, d.name("volume")))
	writeFile(t, filepath.Join(dir, "file"), "shared\n", 0o644)
	got := d.output("id -u; hostname; cat /data/file; touch /data/x 2>/dev/null || echo read-only; ulimit -n; grep -E 'CapEff|NoNewPrivs' /proc/self/status | cut -f2; cat /proc/sys/net/ipv4/ip_forward; ls /dev/myzero; cat /proc/self/oom_score_adj",
		"--user", "1000", "--hostname", "web1", "-v", dir+":/data:ro", "--read-only", "--tmpfs", "/run", "--ulimit", "nofile=100:100",
		"--cap-drop", "all", "--security-opt", "no-new-privileges", "--sysctl", "net.ipv4.ip_forward=1", "--device", "/dev/zero:/dev/myzero", "--oom-score-adj", "100")
	equal(t, "output", got, "1000\nweb1\nshared\nread-only\n100\n0000000000000000\n1\n1\n/dev/myzero\n100")
	equal(t, "network host", d.output("readlink /proc/self/ns/net", "--network", "host"), procLink(t, 1, "ns/net"))
}

// dockerLimits has docker read the statistics, which it does by the cgroup, and
// change the limits.
func dockerLimits(t *testing.T, d *docker) {
	needControllers(t, "memory", "pids", "cpu")
	name := d.detach("one", "--memory", "50m", "--pids-limit", "50", "--cpus", "0.5", dockerImage, "sleep", "1000")
	contains(t, "stats", d.ok("stats", "--no-stream", "--format", "{{.MemUsage}} {{.PIDs}}", name), "/ 50MiB 1")
	d.ok("update", "--memory", "60m", "--memory-swap", "60m", "--pids-limit", "77", name)
	contains(t, "stats after update", d.ok("stats", "--no-stream", "--format", "{{.MemUsage}}", name), "/ 60MiB")
	path := suite.cgroups.below(filepath.Base(d.lab.dir), "docker", d.inspect(name, ".Id"))
	equal(t, "pids limit after update", cgroupFile(t, path, "pids", "pids.max", "pids.max"), "77")

	// Docker's shim may hear of the end before it hears why, and then never tells.
	eventually(t, "out of memory", func() bool {
		eater := d.detach("eater", "--memory", "10m", "--memory-swap", "10m", dockerImage, "sh", "-c", "sleep 1; tail /dev/zero")
		eventually(t, "end", func() bool { return d.inspect(eater, ".State.Status") == "exited" })
		killed := d.inspect(eater, ".State.OOMKilled")
		d.ok("rm", eater)
		return killed == "true"
	})
}

func dockerJoined(t *testing.T, d *docker) {
	first := d.detach("first", "--ipc", "shareable", dockerImage, "sleep", "1000")
	pid := d.inspect(first, ".State.Pid")
	got := d.output("cd /proc/self/ns; for n in net pid ipc; do readlink $n; done", "--network", "container:"+first, "--pid", "container:"+first, "--ipc", "container:"+first)
	var want []string
	for _, kind := range []string{"net", "pid", "ipc"} {
		want = append(want, procLinkText(t, pid, "ns/"+kind))
	}
	equal(t, "namespaces", got, strings.Join(want, "\n"))
}

// dockerHealth: docker's health checks are execs.
func dockerHealth(t *testing.T, d *docker) {
	name := d.detach("one", "--health-cmd", "test -e /tmp/well", "--health-interval", "100ms", "--health-retries", "1", dockerImage, "sleep", "1000")
	for _, status := range []string{"unhealthy", "healthy"} {
		eventually(t, status, func() bool { return d.inspect(name, ".State.Health.Status") == status })
		d.ok("exec", name, "touch", "/tmp/well")
	}
}

func dockerPublished(t *testing.T, d *docker) {
	name := d.detach("web", "--network", "bridge", "-p", "127.0.0.1::8080", dockerImage, "sh", "-c", serveWord("published"))
	wantPage(t, strings.Fields(d.ok("port", name, "8080"))[0], "published")
}
