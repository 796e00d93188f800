package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// crashRuntime is eggrun built with the tag crashtest: it kills itself at the
// step whose number is in EGGRUN_CRASH_AT.
var crashRuntime = sync.OnceValues(func() (string, error) {
	if path := built("eggrun-crash"); path != "" {
		return path, nil
	}
	path := filepath.Join(suite.dir, "eggrun-crash")
	build := exec.Command("make", "-s", "build", "BIN="+path, "EXTRA_TAGS=crashtest")
	build.Dir = ".."
	if out, err := suite.reaper.output(build); err != nil {
		return "", fmt.Errorf("make build: %w: %s", err, out)
	}
	return path, nil
})

// crashLab returns a lab and the same lab with the runtime that crashes.
func crashLab(t *testing.T) (normal, crashing *lab) {
	t.Helper()
	rt := eggrunOnly(t)
	path, err := crashRuntime()
	if err != nil {
		t.Fatal(err)
	}
	normal = newLab(t, rt)
	other := *normal
	other.rt.path = path
	return normal, &other
}

// maxSteps bounds the search for the last step.
const maxSteps = 100

var crashBundles = []struct {
	name  string
	edits []edit
}{
	{"plain", []edit{sh("exec sleep 1000")}},
	{"user namespace", []edit{sh("exec sleep 1000"), withUserNamespace}},
	{"policy", []edit{sh("exec sleep 1000"), annotate("eggrun.domains", "example.com")}},
	{"host pid namespace", []edit{sh("sleep 1000 & exec sleep 1000"), withoutNamespace(specs.PIDNamespace)}},
	{"host mount namespace", []edit{sh("exec sleep 1000"), withoutNamespace(specs.MountNamespace)}},
}

// crashCases are the bundles, and one with a policy in a network namespace that
// was there before, with an interface.
func crashCases(t *testing.T) map[string][]edit {
	t.Helper()
	cases := map[string][]edit{}
	for _, b := range crashBundles {
		cases[b.name] = b.edits
	}
	// Not among a lab's files: there its mount would be a leak.
	dir := makeDir(t, filepath.Join(suite.dir, "network-"+t.Name()))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	network := (&lab{t: t, dir: dir}).lockedNetwork()
	cases["policy, network of an engine"] = []edit{sh("exec sleep 1000"), annotate("eggrun.domains", "example.com"), network}
	return cases
}

func withUserNamespace(spec *specs.Spec) {
	withNamespace(specs.UserNamespace, "")(spec)
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
	spec.Linux.UIDMappings, spec.Linux.GIDMappings = ids, ids
}

// TestCrashOfCreate kills create at each of its steps. What is left must go
// with delete --force, wholly.
func TestCrashOfCreate(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for name, edits := range crashCases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			normal, crashing := crashLab(t)
			for at := 1; ; at++ {
				id := normal.newID()
				args := []string{"create", "--bundle", normal.bundle(id, edits...).dir, id}
				if !crashes(t, crashing, at, args...) {
					if at < 8 {
						t.Errorf("only %d steps; are they still there?", at-1)
					}
					break
				}
				normal.wantOK(normal.call("delete", "--force", id))
				normal.checkLeaks()
			}
		})
	}
}

// TestCrashOfStart does the same to start, of a container that exists.
func TestCrashOfStart(t *testing.T) {
	t.Parallel()
	crashEverywhere(t, 2, func(l *lab, edits []edit) (*container, []string) {
		c := l.create(edits...)
		return c, []string{"start", c.id}
	})
}

// TestCrashOfDelete does the same to delete itself: it can be called again.
func TestCrashOfDelete(t *testing.T) {
	t.Parallel()
	crashEverywhere(t, 5, func(l *lab, edits []edit) (*container, []string) {
		c := l.runDetached(edits...)
		return c, []string{"delete", "--force", c.id}
	})
}

// crashEverywhere kills a verb at each of its steps, of which there must be so
// many, each time of a new container, and deletes what is left.
func crashEverywhere(t *testing.T, leastSteps int, prepare func(l *lab, edits []edit) (*container, []string)) {
	t.Helper()
	needRoot(t)
	for name, edits := range crashCases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			normal, crashing := crashLab(t)
			for at := 1; ; at++ {
				c, args := prepare(normal, edits)
				crashed := crashes(t, crashing, at, args...)
				normal.wantOK(normal.call("delete", "--force", c.id))
				normal.checkLeaks()
				if crashed {
					continue
				}
				if at <= leastSteps {
					t.Errorf("only %d steps; are they still there?", at-1)
				}
				break
			}
		})
	}
}

// crashes runs the runtime up to a step and tells whether it got that far.
func crashes(t *testing.T, l *lab, at int, args ...string) bool {
	t.Helper()
	if at > maxSteps {
		t.Fatalf("more than %d steps", maxSteps)
	}
	r := l.invoke(invocation{
		args:    args,
		globals: []string{"--root", l.root},
		env:     []string{"EGGRUN_CRASH_AT=" + strconv.Itoa(at)},
	})
	if r.code != 0 && r.code != 128+int(unix.SIGKILL) {
		t.Fatalf("step %d: exit %d: %s", at, r.code, r.stderr)
	}
	return r.code != 0
}

// TestKillAtRandomMoments kills create and start at moments that no step
// marks.
func TestKillAtRandomMoments(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	// About what an undisturbed run takes here, to aim within it.
	begin := time.Now()
	l.create(crashBundles[2].edits...).delete()
	usual := time.Since(begin)
	const tries = 200
	killed := 0
	for i := range tries {
		id := l.newID()
		b := l.bundle(id, crashBundles[i%len(crashBundles)].edits...)
		cmd, _, _ := l.command(invocation{
			args:    []string{"run", "--detach", "--bundle", b.dir, id},
			globals: []string{"--root", l.root},
		})
		begin := time.Now()
		if err := suite.reaper.start(cmd); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(rand.Int64N(int64(usual))), func() { _ = cmd.Process.Kill() })
		if suite.reaper.wait(cmd) != nil { // killed or done, both are wanted
			killed++
			usual += usual / 16
		} else {
			usual = time.Since(begin)
		}
		l.wantOK(l.call("delete", "--force", id))
	}
	if killed < tries/10 {
		t.Errorf("only %d of %d were killed under way", killed, tries)
	}
	l.checkLeaks()
}

// TestFiftyAtOnce makes, starts and deletes 50 containers at the same time.
func TestFiftyAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	const count = 50
	ids, bundles := make([]string, count), make([]bundle, count)
	for i := range count {
		ids[i] = l.newID()
		bundles[i] = l.bundle(ids[i], crashBundles[i%len(crashBundles)].edits...)
	}
	verbs := []func(i int) []string{
		func(i int) []string { return []string{"create", "--bundle", bundles[i].dir, ids[i]} },
		func(i int) []string { return []string{"start", ids[i]} },
		func(i int) []string { return []string{"delete", "--force", ids[i]} },
	}
	for _, verb := range verbs {
		var done sync.WaitGroup
		for i := range count {
			cmd, r, log := l.command(invocation{args: verb(i), globals: []string{"--root", l.root}})
			if err := suite.reaper.start(cmd); err != nil {
				t.Fatal(err)
			}
			done.Go(func() { l.wantOK(l.finish(cmd, r, log)) })
		}
		done.Wait()
	}
	l.checkLeaks()
}
