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

// criuCheck tells whether criu works on this kernel.
func criuCheck() error {
	out, err := suite.reaper.output(exec.Command("criu", "check"))
	if err != nil {
		err = fmt.Errorf("criu check: %w: %s", err, out)
	}
	return err
}

func criuLab(t *testing.T) *lab {
	t.Helper()
	rt := eggrunOnly(t)
	need(t, "criu", criuCheck)
	return newLab(t, rt)
}

// counting is a program that can be checkpointed, for its streams are files of
// the container, and that shows whether it goes on.
func counting(more string) edit {
	return sh("exec </dev/null >/tmp/log 2>&1; " + more + " i=0; while :; do i=$((i+1)); echo $i >/tmp/new; mv /tmp/new /tmp/count; sleep 0.1; done")
}

// count is how far the program has come.
func (c *container) count() int {
	text, err := os.ReadFile(filepath.Join(c.bundle.rootfs, "tmp/count"))
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// goesOn waits until the program has counted, and was not begun anew.
func (c *container) goesOn(from int) int {
	c.t.Helper()
	eventually(c.t, "count after "+strconv.Itoa(from), func() bool { return c.count() > from })
	return c.count()
}

// images is the directory of the container's images.
func (c *container) images() string { return filepath.Join(c.dir, "images-"+c.id) }

// checkpoint leaves the cgroups to the runtime: criu's own way with them looks at
// all hierarchies of the machine, which others change at the same time.
func (c *container) checkpoint(args ...string) result {
	c.t.Helper()
	return c.call(append([]string{"checkpoint", "--manage-cgroups-mode", "ignore", "--image-path", c.images(), c.id}, args...)...)
}

func restoreArgs(c *container, args ...string) []string {
	return append([]string{"restore", "--manage-cgroups-mode", "ignore", "--image-path", c.images(), "--bundle", c.bundle.dir, c.id}, args...)
}

// restore is what conmon calls.
func (c *container) restore() {
	c.t.Helper()
	pidFile := filepath.Join(c.dir, "restored-"+c.id)
	c.wantSilent(c.call(restoreArgs(c, "--detach", "--pid-file", pidFile)...))
	pid, err := strconv.Atoi(readFile(c.t, pidFile))
	if err != nil {
		c.t.Fatal(err)
	}
	c.pid = pid
}

// TestCheckpointHelp: engines ask whether checkpoint works by calling for help.
func TestCheckpointHelp(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	r := l.invoke(invocation{args: []string{"checkpoint", "--help"}, globals: []string{}})
	if err := criuCheck(); err != nil {
		l.wantFail(r, "checkpoint: criu")
	} else {
		l.wantOK(r)
		contains(t, "help", r.stdout, "--image-path")
	}
	r = l.invoke(invocation{args: []string{"checkpoint", "--help"}, globals: []string{}, onlyEnv: true, env: []string{"PATH=/nowhere"}})
	l.wantFail(r, "criu: not installed")
	// The way in which podman finds out whether restore knows the option.
	l.wantFail(l.call("restore", "--lsm-mount-context"), "flag needs an argument")

	alone := filepath.Join(l.dir, "eggrun")
	// By a process of its own: what this one has open to write, a fork at the
	// same time has too, and nobody may execute.
	if out, err := suite.reaper.output(exec.Command("cp", l.rt.path, alone)); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	other := *l
	other.rt.path = alone
	r = other.invoke(invocation{args: []string{"checkpoint", "--help"}, globals: []string{}})
	l.wantFail(r, "eggrun-criu: neither in")
}

// TestCheckpointRefused is what needs no criu to be refused.
func TestCheckpointRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	l.wantFail(l.call("checkpoint", "nosuch"), "container does not exist")
	c := l.create(counting(""))
	l.wantFail(c.checkpoint(), "container is created, want running")
	c.start()
	for _, tt := range []struct{ option, value, want string }{
		{"--parent-path", "/parent", "want a path relative to the images"},
		{"--parent-path", "../nowhere", "no such file or directory"},
		{"--page-server", "here", "want ADDRESS:PORT"},
		{"--manage-cgroups-mode", "hard", "want soft, full, strict or ignore"},
		{"--empty-ns", "mount", "want network"},
		{"--status-fd", "77", "bad file descriptor"},
	} {
		l.wantFail(c.checkpoint(tt.option, tt.value), tt.want)
	}
	c.wantStatus("running")
	noImages := invocation{args: restoreArgs(&container{lab: l, id: "other", bundle: c.bundle}, "--detach")}
	l.wantFail(l.invoke(noImages), "not empty") // the cgroup of the other

	walled := l.runDetached(counting(""), annotate("eggrun.domains", "example.com"))
	l.wantFail(walled.checkpoint(), "cannot enforce domains")
	walled.wantStatus("running")
	l.call("delete", "--force", walled.id)
	l.wantFail(l.call(restoreArgs(walled, "--detach")...), "cannot enforce domains")

	shared := l.bundle("shared", counting(""), withoutNamespace(specs.MountNamespace))
	l.wantFail(l.call(restoreArgs(&container{lab: l, id: "shared", bundle: shared}, "--detach")...), "mount namespace")
}

// TestCheckpoint takes a container away and brings it back, twice, and uses it as
// any other afterwards.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	l := criuLab(t)
	c := l.runDetached(counting(""), withStatusHook)
	n := 0
	for range 2 {
		c.goesOn(n)
		l.wantSilent(c.checkpoint())
		l.wantGone(c.id)
		n = c.count()
		c.restore()
		c.wantStatus("running")
		equal(t, "parent of init", findProcess(t, c.pid).ppid, os.Getpid())
	}
	n = c.goesOn(n)
	equal(t, "exec", c.execOutput("echo in $$ >/dev/null; cat /proc/1/comm"), "sh")
	l.wantSilent(c.changeMounts("add", l.volume("/mnt", "ro")))
	equal(t, "file", c.execOutput("cat /mnt/file"), "text")
	l.wantSilent(l.call("pause", c.id))
	c.wantStatus("paused")
	l.wantSilent(l.call("resume", c.id))
	c.goesOn(n)
	c.kill("KILL")
	equal(t, "exit status", c.wait(), 128+9)
	c.delete()
}

// withStatusHook adds a hook that fails unless it is run for a container that is
// being made.
func withStatusHook(spec *specs.Spec) {
	script := `grep -q '"status":"creating"'`
	spec.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", script}}}}
}

// TestCheckpointLeaveRunning is what containerd does: also with a paused
// container, which stays so.
func TestCheckpointLeaveRunning(t *testing.T) {
	t.Parallel()
	l := criuLab(t)
	c := l.runDetached(counting(""))
	n := c.goesOn(0)
	l.wantSilent(c.checkpoint("--leave-running"))
	c.wantStatus("running")
	n = c.goesOn(n)
	l.wantSilent(l.call("pause", c.id))
	l.wantSilent(c.checkpoint("--leave-running", "--work-path", filepath.Join(l.dir, "work")))
	c.wantStatus("paused")
	if _, err := os.Stat(filepath.Join(l.dir, "work/dump.log")); err != nil {
		t.Error(err)
	}
	l.wantSilent(l.call("delete", "--force", c.id))
	c.restore()
	c.goesOn(n)
}

// TestCheckpointPreDump writes the memory first, while the container goes on.
func TestCheckpointPreDump(t *testing.T) {
	t.Parallel()
	l := criuLab(t)
	need(t, "a kernel that tracks changed memory", func() error {
		_, err := suite.reaper.output(exec.Command("criu", "check", "--feature", "mem_dirty_track"))
		return err
	})
	c := l.runDetached(counting(""))
	n := c.goesOn(0)
	l.wantSilent(c.checkpoint("--pre-dump", "--image-path", filepath.Join(l.dir, "parent")))
	c.wantStatus("running")
	n = c.goesOn(n)
	l.wantSilent(c.checkpoint("--parent-path", "../parent"))
	c.restore()
	c.goesOn(n)
}

// TestRestoreForeground: the streams are the caller's again, and the exit status
// is the program's.
func TestRestoreForeground(t *testing.T) {
	t.Parallel()
	l := criuLab(t)
	out, in := pipe(t)
	more, reply := pipe(t)
	id := l.newID()
	b := l.bundle(id, sh("exec 2>/tmp/log; while read word; do echo pong $word; done; exit 7"))
	c := l.createIn(b, id, invocation{stdin: out, stdout: reply})
	c.start()
	ask(t, in, more, "one", "pong one\n")
	l.wantSilent(c.checkpoint())

	out, in = pipe(t)
	more, reply = pipe(t)
	cmd, r, log := l.command(invocation{globals: []string{"--root", l.root}, args: restoreArgs(c), stdin: out, stdout: reply})
	if err := suite.reaper.start(cmd); err != nil {
		t.Fatal(err)
	}
	ask(t, in, more, "two", "pong two\n")
	c.wantStatus("running")
	in.Close() // the end of its input is the program's
	r = l.finish(cmd, r, log)
	equal(t, "exit status", r.code, 7)
	l.wantGone(c.id)
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// ask writes a line and wants an answer.
func ask(t *testing.T, in, out *os.File, line, want string) {
	t.Helper()
	if _, err := fmt.Fprintln(in, line); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, len(want))
	if _, err := unix.Read(int(out.Fd()), answer); err != nil {
		t.Fatal(err)
	}
	equal(t, "answer", string(answer), want)
}

// TestCheckpointVolumes: volumes come back in their places, on a root file system
// without them, one through a link of the image, one on another, one read-only.
func TestCheckpointVolumes(t *testing.T) {
	t.Parallel()
	l := criuLab(t)
	outer, inner, linked := makeDir(t, filepath.Join(l.dir, "outer")), makeDir(t, filepath.Join(l.dir, "inner")), makeDir(t, filepath.Join(l.dir, "linked"))
	id := l.newID()
	b := l.bundle(id, counting(""), func(spec *specs.Spec) {
		spec.Mounts = append(spec.Mounts,
			specs.Mount{Destination: "/outer", Source: outer, Options: []string{"rbind"}},
			specs.Mount{Destination: "/outer/in/side", Source: inner, Options: []string{"bind", "ro"}},
			specs.Mount{Destination: "/link", Source: linked, Options: []string{"bind"}},
		)
	})
	makeDir(t, filepath.Join(b.rootfs, "real"))
	if err := os.Symlink("/real", filepath.Join(b.rootfs, "link")); err != nil {
		t.Fatal(err)
	}
	c := l.createIn(b, id, invocation{})
	c.start()
	n := c.goesOn(0)
	l.wantSilent(c.checkpoint())
	for _, made := range []string{filepath.Join(b.rootfs, "outer"), filepath.Join(outer, "in")} {
		if err := os.RemoveAll(made); err != nil {
			t.Fatal(err)
		}
	}
	c.restore()
	c.goesOn(n)
	c.execOutput("echo a >/outer/a; echo b >/real/b")
	equal(t, "in the first", readFile(t, filepath.Join(outer, "a")), "a\n")
	equal(t, "in the linked one", readFile(t, filepath.Join(linked, "b")), "b\n")
	contains(t, "write", c.execOutput("echo c 2>&1 >/outer/in/side/c || true"), "Read-only file system")
}

// TestCheckpointSwappedLinks: a container that lets the links to its volumes
// change places would get the read-only one writable. Untouched they do no harm.
func TestCheckpointSwappedLinks(t *testing.T) {
	t.Parallel()
	need(t, "criu", criuCheck)
	for name, attack := range map[string]string{
		"untouched": "",
		"swapped":   "rm /one /two; ln -s /real2 /one; ln -s /real1 /two;",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := criuLab(t)
			id := l.newID()
			b := l.bundle(id, counting(attack), func(spec *specs.Spec) {
				for _, one := range []struct{ name, mode string }{{"one", "ro"}, {"two", "rw"}} {
					source := makeDir(t, filepath.Join(l.dir, one.name))
					spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/" + one.name, Source: source, Options: []string{"bind", one.mode}})
				}
			})
			for i, link := range []string{"one", "two"} {
				real := fmt.Sprintf("real%d", i+1)
				makeDir(t, filepath.Join(b.rootfs, real))
				if err := os.Symlink("/"+real, filepath.Join(b.rootfs, link)); err != nil {
					t.Fatal(err)
				}
			}
			c := l.createIn(b, id, invocation{})
			c.start()
			c.goesOn(0)
			if r := c.checkpoint(); attack == "" {
				l.wantSilent(r)
			} else {
				l.wantFail(r, "found on")
				c.wantStatus("running")
			}
		})
	}
}

// TestCheckpointBrackets: a name that says more to criu than a path does.
func TestCheckpointBrackets(t *testing.T) {
	t.Parallel()
	l := criuLab(t)
	id := l.newID()
	b := l.bundle(id, counting(""), func(spec *specs.Spec) {
		spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/link", Source: makeDir(t, filepath.Join(l.dir, "volume")), Options: []string{"bind"}})
	})
	makeDir(t, filepath.Join(b.rootfs, "x]:"))
	makeDir(t, filepath.Join(b.rootfs, "x]:", "etc"))
	if err := os.Symlink("/x]:/etc", filepath.Join(b.rootfs, "link")); err != nil {
		t.Fatal(err)
	}
	c := l.createIn(b, id, invocation{})
	c.start()
	c.goesOn(0)
	l.wantFail(c.checkpoint(), "cannot be checkpointed with one of [ ] :")
}

// TestCheckpointCrash ends checkpoint and restore at each of their steps: delete
// --force leaves nothing, which the end of the lab looks for.
func TestCheckpointCrash(t *testing.T) {
	t.Parallel()
	need(t, "criu", criuCheck)
	normal, crashing := crashLab(t)
	c := normal.runDetached(counting(""))
	c.goesOn(0)
	normal.wantSilent(c.checkpoint("--leave-running"))
	normal.wantSilent(normal.call("delete", "--force", c.id))
	for at := 1; ; at++ {
		crashed := crashes(t, crashing, at, restoreArgs(c, "--detach")...)
		normal.wantSilent(normal.call("delete", "--force", c.id))
		normal.wantGone(c.id)
		if !crashed {
			break
		}
	}
	for at := 1; ; at++ {
		c.restore()
		crashed := crashes(t, crashing, at, "checkpoint", "--manage-cgroups-mode", "ignore",
			"--image-path", filepath.Join(normal.dir, "crashed"), c.id)
		normal.wantSilent(normal.call("delete", "--force", c.id))
		normal.wantGone(c.id)
		if !crashed {
			break
		}
	}
}
