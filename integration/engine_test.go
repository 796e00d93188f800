package integration

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// engine replays what an engine calls, word for word. The state is where the
// runtime keeps it by default, for most engines give no --root.
type engine struct {
	*lab
	id     string
	bundle string
}

// newEngine makes a bundle as podman 4.3.1 writes it.
func (l *lab) newEngine(script string) engine {
	l.t.Helper()
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		l.t.Fatal(err)
	}
	e := engine{lab: l, id: hex.EncodeToString(random), bundle: makeDir(l.t, filepath.Join(l.dir, "userdata"))}
	makeRootfs(l.t, filepath.Join(l.dir, "rootfs"))
	for _, name := range []string{"hosts", ".containerenv", "hostname"} {
		writeFile(l.t, filepath.Join(e.bundle, name), name+"\n", 0o644)
	}
	makeDir(l.t, filepath.Join(e.bundle, "shm"))
	e.write(script)
	return e
}

func (e engine) write(script string) {
	e.t.Helper()
	config := strings.NewReplacer(
		"@BUNDLE@", e.bundle, "@ROOTFS@", filepath.Join(e.dir, "rootfs"),
		"@CGROUP@", suite.cgroups.cgroupsPath(filepath.Base(e.dir), "libpod-"+e.id), "@HOSTNAME@", e.id[:12], "@SCRIPT@", script,
	).Replace(readFile(e.t, "testdata/podman-4.3.1-config.json"))
	if controllers("pids")() != nil {
		config = strings.Replace(config, `"limit": 2048`, `"limit": -1`, 1)
	}
	writeFile(e.t, filepath.Join(e.bundle, "config.json"), config, 0o644)
}

// podmanEnv is all that podman gives to start; kill and delete do not even
// get PATH.
var podmanEnv = []string{"XDG_RUNTIME_DIR="}

func (e engine) direct(env []string, args ...string) result {
	e.t.Helper()
	return e.invoke(invocation{globals: []string{}, args: args, env: env, onlyEnv: true})
}

// conmonCreate is create as conmon 2.1.6 calls it.
func (e engine) conmonCreate(log string) (result, string) {
	e.t.Helper()
	pidFile := filepath.Join(e.bundle, "pidfile")
	r := e.invoke(invocation{
		globals: []string{"--log-format=json", "--log", log},
		args:    []string{"create", "--bundle", e.bundle, "--pid-file", pidFile, e.id},
		env:     []string{"_OCI_SYNCPIPE=3", "_OCI_STARTPIPE=4"},
		dir:     e.bundle,
	})
	return r, pidFile
}

func (e engine) readPID(pidFile string) int {
	e.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(readFile(e.t, pidFile)))
	if err != nil {
		e.t.Fatal(err)
	}
	return pid
}

// unknown checks that the default root holds nothing of the container.
func (e engine) unknown() {
	e.t.Helper()
	r := e.direct(podmanEnv, "state", e.id)
	if r.code != 1 || !strings.Contains(r.stderr, "does not exist") {
		e.t.Errorf("state in the end: exit %d, stderr %q", r.code, r.stderr)
	}
	if left, _ := filepath.Glob("/run/*/" + e.id); len(left) > 0 {
		e.t.Errorf("left behind: %v", left)
	}
}

func TestPodmanSequence(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		e := l.newEngine("trap 'echo stopping; exit 3' TERM; cat /etc/hosts /run/.containerenv; hostname; while :; do sleep 1000 & wait $!; done")
		log := filepath.Join(e.bundle, "oci-log")
		r, pidFile := e.conmonCreate(log)
		l.wantSilent(r)
		equal(t, "log of create", readIfThere(t, log), "")
		pid := e.readPID(pidFile)
		l.wantSilent(e.direct(append(podmanEnv, "PATH="+os.Getenv("PATH")), "start", e.id))
		eventually(t, "output", func() bool {
			return readFile(t, r.outFile) == "hosts\n.containerenv\n"+e.id[:12]+"\n"
		})
		l.wantSilent(e.direct(podmanEnv, "kill", e.id, "15"))
		equal(t, "exit status", suite.reaper.status(t, pid), 3)
		l.wantSilent(e.direct(podmanEnv, "delete", "--force", e.id))
		e.unknown()
		if r := e.direct(podmanEnv, "delete", "--force", e.id); r.code != 0 {
			t.Errorf("second delete --force: exit %d: %s", r.code, r.stderr)
		}
	})
}

// TestPodmanStop is stop of a container that ignores TERM, and restart: the
// same id again at once.
func TestPodmanStop(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		e := l.newEngine("trap '' TERM; echo ready; while :; do sleep 1000; done")
		for range 2 {
			r, pidFile := e.conmonCreate(filepath.Join(e.bundle, "oci-log"))
			l.wantSilent(r)
			pid := e.readPID(pidFile)
			l.wantSilent(e.direct(podmanEnv, "start", e.id))
			eventually(t, "output", func() bool { return readFile(t, r.outFile) == "ready\n" })
			l.wantSilent(e.direct(podmanEnv, "kill", e.id, "15"))
			l.wantSilent(e.direct(podmanEnv, "kill", e.id, "9"))
			equal(t, "exit status", suite.reaper.status(t, pid), 128+9)
			l.wantSilent(e.direct(podmanEnv, "delete", "--force", e.id))
			if err := os.Remove(pidFile); err != nil {
				t.Fatal(err)
			}
		}
		e.unknown()
	})
}

// TestPodmanCreateFails: podman reads the whole log as one JSON object.
func TestPodmanCreateFails(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		e := l.newEngine("exit 0")
		config := filepath.Join(e.bundle, "config.json")
		writeFile(t, config, strings.Replace(readFile(t, config), `"/bin/sh"`, `"nosuchprogram"`, 1), 0o644)
		log := filepath.Join(e.bundle, "oci-log")
		r, pidFile := e.conmonCreate(log)
		equal(t, "exit status", r.code, 1)
		var one record
		if err := json.Unmarshal([]byte(readFile(t, log)), &one); err != nil {
			t.Errorf("log: %v in %q", err, readFile(t, log))
		}
		for what, text := range map[string]string{"log": one.Msg, "stderr": r.stderr} {
			contains(t, what, text, `"nosuchprogram": executable file not found in $PATH`)
		}
		if _, err := os.Stat(pidFile); err == nil {
			t.Error("there is a pid file")
		}
		if r := e.direct(podmanEnv, "delete", "--force", e.id); r.code != 0 {
			t.Errorf("delete --force: exit %d: %s", r.code, r.stderr)
		}
		e.unknown()
	})
}

func TestBuildahSequence(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		e := l.newEngine("echo built; exit 4")
		e.id = "buildah-buildah" + e.id[:9]
		pidFile := filepath.Join(e.bundle, "pid")
		call := func(args ...string) result {
			return e.invoke(invocation{globals: []string{}, args: args, dir: e.bundle})
		}
		r := call("create", "--bundle", e.bundle, "--pid-file", pidFile, e.id)
		l.wantSilent(r)
		pid := e.readPID(pidFile)
		l.wantSilent(call("start", e.id))
		eventually(t, "state stopped", func() bool {
			answer := call("state", e.id)
			l.wantOK(answer)
			equal(t, "stderr of state", answer.stderr, "")
			var s state
			if err := json.Unmarshal([]byte(answer.stdout), &s); err != nil {
				t.Fatal(err)
			}
			if s.Status != "running" && s.Status != "stopped" {
				t.Fatalf("status %q is fatal to buildah", s.Status)
			}
			return s.Status == "stopped"
		})
		equal(t, "exit status", suite.reaper.status(t, pid), 4)
		equal(t, "output", readFile(t, r.outFile), "built\n")
		l.wantSilent(call("delete", e.id))
		e.unknown()
	})
}

func TestContainerdSequence(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		e := l.newEngine("echo ready; exec sleep 1000")
		log := filepath.Join(e.bundle, "log.json")
		call := func(args ...string) result {
			return e.invoke(invocation{globals: []string{"--root", l.root, "--log", log, "--log-format", "json"}, args: args, dir: e.bundle})
		}
		pidFile := filepath.Join(e.bundle, "init.pid")
		l.wantSilent(call("create", "--bundle", e.bundle, "--pid-file", pidFile, e.id))
		pid := e.readPID(pidFile)
		l.wantSilent(call("start", e.id))
		l.wantOK(call("state", e.id))
		l.wantSilent(call("kill", e.id, "9"))
		equal(t, "exit status", suite.reaper.status(t, pid), 128+9)
		contains(t, "kill of a dead one", call("kill", e.id, "9").stderr, "container not running")
		l.wantOK(call("kill", "--all", e.id, "9"))
		l.wantSilent(call("delete", e.id))
		if r := call("delete", "--force", e.id); r.code != 0 {
			t.Errorf("delete --force after delete: exit %d: %s", r.code, r.stderr)
		}
		contains(t, "kill of an unknown one", call("kill", e.id, "9").stderr, "does not exist")
		for line := range strings.Lines(readIfThere(t, log)) {
			var one record
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Errorf("log line %q: %v", line, err)
			}
			if _, err := time.Parse(time.RFC3339, one.Time); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestCRIOSequence has the = forms, a signal by name, and state in between.
func TestCRIOSequence(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		e := l.newEngine("echo ready; exec sleep 1000")
		call := func(args ...string) result {
			return e.invoke(invocation{globals: []string{"--root", l.root}, args: args})
		}
		pidFile := filepath.Join(e.bundle, "pidfile")
		l.wantSilent(e.invoke(invocation{globals: []string{"--root=" + l.root}, args: []string{"create", "--bundle", e.bundle, "--pid-file", pidFile, e.id}}))
		pid := e.readPID(pidFile)
		for _, want := range []string{"created", "running", "stopped"} {
			answer := call("state", e.id)
			contains(t, "state", strings.ReplaceAll(answer.stdout, " ", ""), `"status":"`+want+`"`)
			switch want {
			case "created":
				l.wantSilent(call("start", e.id))
			case "running":
				l.wantSilent(call("kill", e.id, "KILL"))
				equal(t, "exit status", suite.reaper.status(t, pid), 128+9)
			}
		}
		l.wantSilent(call("delete", "--force", e.id))
	})
}

// TestBuildkitSequence runs in the foreground with --keep.
func TestBuildkitSequence(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		e := l.newEngine("echo built; exit 6")
		log := filepath.Join(e.bundle, "log.json")
		r := e.invoke(invocation{globals: []string{"--log", log, "--log-format", "json"}, args: []string{"run", "--bundle", e.bundle, "--keep", e.id}})
		equal(t, "exit status ("+r.stderr+")", r.code, 6)
		equal(t, "output", r.stdout, "built\n")
		l.wantSilent(e.direct(podmanEnv, "delete", e.id))
		e.unknown()
	})
}

// TestDockerWrapper is the shell script that dockerd writes for runtimeArgs.
func TestDockerWrapper(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		script := filepath.Join(l.dir, "wrapper")
		writeFile(t, script, "#!/bin/sh\n"+l.rt.path+" --debug=false $@\n", 0o755)
		wrapped := *l
		wrapped.rt.path = script
		id := l.newID()
		b := l.bundle(id, sh("echo ok"))
		r := wrapped.call("run", "--bundle", b.dir, id)
		l.calls = wrapped.calls
		equal(t, "output ("+r.stderr+")", r.stdout, "ok\n")
		equal(t, "exit status", r.code, 0)
	})
}
