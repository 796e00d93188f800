package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestLifecycle walks a container through all states and looks at what state
// says in each.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		before := time.Now().Add(-time.Second)
		c := l.create(sh("echo hello; exec sleep 1000"), annotate("com.example.key", "a value"))
		checkState(c, "created", before)
		equal(t, "parent of init", findProcess(t, c.pid).ppid, os.Getpid())
		equal(t, "session of init", findProcess(t, c.pid).session, c.pid)
		equal(t, "output before start", c.stdout(), "")

		c.start()
		c.wantOutput("hello\n")
		checkState(c, "running", before)

		c.kill("KILL")
		equal(t, "exit status", c.wait(), 128+9)
		checkState(c, "stopped", before)

		c.delete()
		l.wantGone(c.id)
	})
}

func checkState(c *container, status string, before time.Time) {
	c.t.Helper()
	s := c.state()
	equal(c.t, "status", s.Status, status)
	equal(c.t, "id", s.ID, c.id)
	equal(c.t, "bundle", s.Bundle, c.bundle.dir)
	equal(c.t, "rootfs", s.Rootfs, c.bundle.rootfs)
	equal(c.t, "annotation", s.Annotations["com.example.key"], "a value")
	if s.OCIVersion == "" {
		c.t.Error("ociVersion is empty")
	}
	want := c.pid
	if status == "stopped" {
		want = 0
	}
	equal(c.t, "pid", s.PID, want)
	created, err := time.Parse(time.RFC3339Nano, s.Created)
	if err != nil || created.Before(before) || created.After(time.Now()) {
		c.t.Errorf("created: %q (%v), want a time of this test", s.Created, err)
	}
}

func TestRelativeBundle(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		id := l.newID()
		b := l.bundle(id, sh("exit 3"))
		for _, in := range []invocation{
			{args: []string{"create", "--bundle", "bundle-" + id, "--pid-file", "pid", id}, dir: l.dir},
			{args: []string{"create", "--pid-file", "../pid", id}, dir: b.dir},
		} {
			l.wantSilent(l.invoke(in))
			c := &container{lab: l, id: id, bundle: b}
			equal(t, "bundle", c.state().Bundle, b.dir)
			equal(t, "rootfs", c.state().Rootfs, b.rootfs)
			if _, err := os.Stat(filepath.Join(l.dir, "pid")); err != nil {
				t.Error(err)
			}
			l.wantSilent(l.call("start", id))
			c.wantStatus("stopped")
			c.delete()
		}
	})
}

// TestDuplicateID also checks that the second create harms nothing of the
// first container.
func TestDuplicateID(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.runDetached(sh("exec sleep 1000"))
		other := l.bundle("other", sh("exit 0"))
		r := l.call("create", "--bundle", other.dir, "--pid-file", filepath.Join(l.dir, "other.pid"), c.id)
		l.wantFail(r, "container with given ID already exists")
		if _, err := os.Stat(filepath.Join(l.dir, "other.pid")); err == nil {
			t.Error("a create that failed wrote a pid file")
		}
		equal(t, "status of the first", c.state().Status, "running")
		c.kill("KILL")
		c.wait()
		l.wantFail(l.call("run", "--bundle", other.dir, c.id), "container with given ID already exists")
		c.delete()
	})
}

// TestIDIsFreeAfterDelete is podman restart: the same name again at once.
func TestIDIsFreeAfterDelete(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		id := l.newID()
		b := l.bundle(id, sh("exit 7"))
		for range 3 {
			c := l.createIn(b, id, invocation{})
			c.start()
			equal(t, "exit status", c.wait(), 7)
			c.delete()
		}
	})
}

func TestUnknownID(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		for _, verb := range [][]string{{"state"}, {"start"}, {"kill"}, {"delete"}} {
			l.wantFail(l.call(append(verb, "nosuch")...), "container does not exist")
		}
		r := l.call("kill", "nosuch", "9")
		l.wantFail(r, "container does not exist")
		r = l.call("delete", "--force", "nosuch")
		if r.code != 0 {
			t.Errorf("delete --force of an unknown container: exit %d: %s", r.code, r.stderr)
		}
	})
}

func TestWrongState(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.create(sh("exec sleep 1000"))
		c.start()
		l.wantFail(l.call("start", c.id), l.rt.pick("container is running", "already running"))
		l.wantFail(l.call("delete", c.id), l.rt.pick("container is running", "not stopped"))
		equal(t, "status after the refusals", c.state().Status, "running")

		c.kill("KILL")
		c.wait()
		l.wantFail(l.call("start", c.id), l.rt.pick("container is stopped", "has stopped"))
		l.wantFail(l.call("kill", c.id, "TERM"), "container not running")
		l.wantFail(l.call("kill", c.id), "container not running")
		c.delete()
	})
}

// TestInitDiesBeforeStart is an OOM kill, or an engine that gives up, between
// create and start.
func TestInitDiesBeforeStart(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.create(sh("exit 0"))
		c.kill("KILL")
		equal(t, "exit status", c.wait(), 128+9)
		c.wantStatus("stopped")
		l.wantFail(l.call("start", c.id), l.rt.pick("container is stopped", "has stopped"))
		c.delete()
	})
}

// TestDeleteCreated is podman rm of a container that was never started.
func TestDeleteCreated(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		plain := l.create(sh("exit 0"))
		plain.delete()
		l.wantGone(plain.id)
		equal(t, "exit status of init", plain.wait(), 128+9)

		forced := l.create(sh("exit 0"))
		l.wantSilent(l.call("delete", "--force", forced.id))
		l.wantGone(forced.id)
	})
}

func TestDeleteForceRunning(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.runDetached(sh("trap '' TERM INT HUP; sleep 1000 & wait"))
		l.wantSilent(l.call("delete", "--force", c.id))
		equal(t, "exit status", c.wait(), 128+9)
		l.wantGone(c.id)
	})
}

// TestConfigEditsAreIgnored holds the rule that create applies config.json
// and nobody reads it again.
func TestConfigEditsAreIgnored(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.create(sh("echo first"))
		c.bundle.write(t, l.config(c.id, sh("echo second")))
		c.start()
		code, stdout, _ := c.finishOutput()
		equal(t, "exit status", code, 0)
		equal(t, "output", stdout, "first\n")

		gone := l.create(sh("echo first"))
		if err := os.Remove(filepath.Join(gone.bundle.dir, "config.json")); err != nil {
			t.Fatal(err)
		}
		gone.start()
		code, stdout, _ = gone.finishOutput()
		equal(t, "exit status", code, 0)
		equal(t, "output", stdout, "first\n")
	})
}

// TestOCIVersionIsNeverRefused is about runtimes that broke every podman on a
// CI image because they knew the version string only of their own time.
func TestOCIVersionIsNeverRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		for _, version := range []string{"1.0.0", "1.0.2-dev", "1.3.0", "9.9.9"} {
			got := l.output("echo ok", func(spec *specs.Spec) { spec.Version = version })
			equal(t, "output with ociVersion "+version, got, "ok")
		}
	})
}

// TestNoProcess: config.json may do without a process until start; runc wants
// it at create.
func TestNoProcess(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		id := l.newID()
		b := l.bundle(id, func(spec *specs.Spec) { spec.Process = nil })
		r := l.call("create", "--bundle", b.dir, id)
		if r.code == 0 {
			r = l.call("start", id)
		}
		l.wantFail(r, "process")
		l.wantOK(l.call("delete", "--force", id))
		l.wantGone(id)
	})
}

// TestConcurrentContainers creates containers side by side under one root.
func TestConcurrentContainers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		var started []*exec.Cmd
		var finish []func() result
		for i := range 6 {
			id := l.newID()
			b := l.bundle(id, sh(fmt.Sprintf("exit %d", i)))
			cmd, r, logFile := l.command(invocation{args: []string{"run", "--bundle", b.dir, id}})
			if err := suite.reaper.start(cmd); err != nil {
				t.Fatal(err)
			}
			started = append(started, cmd)
			finish = append(finish, func() result { return l.finish(cmd, r, logFile) })
		}
		for i := range started {
			r := finish[i]()
			equal(t, fmt.Sprintf("exit status of container %d (%s)", i, r.stderr), r.code, i)
		}
	})
}
