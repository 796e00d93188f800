package integration

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestExecSmallLimits enters a container that has room for the program and for
// nothing of the runtime's, again and again: what Go's threads do is a matter of
// luck.
func TestExecSmallLimits(t *testing.T) {
	t.Parallel()
	needControllers(t, "memory", "pids")
	l := newLab(t, eggrunOnly(t)) // runc joins with its threads
	processes, memory := int64(2), int64(4<<20)
	limited := func(spec *specs.Spec) {
		spec.Linux.Resources = &specs.LinuxResources{
			Pids: &specs.LinuxPids{Limit: &processes}, Memory: &specs.LinuxMemory{Limit: &memory},
		}
	}
	c := l.sleeper(limited)
	// The first thing that it does is to look where it is.
	look := []string{"cat", "/proc/1/cgroup", "/proc/self/cgroup"}
	rounds := 200
	if place() == "emulated" {
		rounds = 5 // each takes many seconds
	}
	for range rounds {
		lines := strings.Split(c.scriptOutput(c.exec(nil, look...)), "\n")
		half := len(lines) / 2
		equal(t, "cgroups", strings.Join(lines[half:], "\n"), strings.Join(lines[:half], "\n"))
		if t.Failed() {
			break
		}
	}
	// With a terminal, as another user, with rights to load filters or without:
	// each goes another way.
	contains(t, "another user", c.execOutput("echo $$ ok", "--user", "1000:1000"), " ok")
	contains(t, "no new privileges", c.execOutput("echo $$ ok", "--no-new-privs"), " ok")
	l.wantExecFail(c.exec(nil, "nosuchprogram"), "executable file not found in $PATH")
	// It is held to them from its first instruction on.
	const script = "sleep 0 & wait; echo forked"
	if r := c.exec(nil, "sh", "-c", script); r.code == 0 || strings.Contains(r.stdout, "forked") {
		t.Errorf("three processes under a limit of two: exit %d, stdout %q", r.code, r.stdout)
	}
	equal(t, "without the limit", l.sleeper().execOutput(script), "forked")
}

// TestExecScheduler sets what the container's cgroup bounds from within it, by a
// right that the program does not get.
func TestExecScheduler(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)) // the field came with runc 1.2
	c := l.sleeper()
	process := c.processFile(args("/bin/sleep", "1000"), asUser(1000, 1000), func(spec *specs.Spec) {
		spec.Process.Scheduler = &specs.Scheduler{Policy: specs.SchedBatch, Nice: -5}
		spec.Process.Capabilities = nil
	})
	flags := []string{"--process", process}
	pid, _ := c.execDetached(invocation{}, flags)
	contains(t, "scheduling", schedAttr(t, pid), "policy 3 flags 0x0 nice -5 ")
	contains(t, "status", procFile(t, pid, "status"), "\nCapPrm:\t0000000000000000\n")

	unkind := filepath.Join(l.dir, "unkind")
	writeFile(t, unkind, "#!/bin/sh\nexec setpriv --bounding-set -sys_nice "+l.rt.path+" \"$@\"\n", 0o755)
	l.rt.path = unkind
	l.wantExecFail(c.exec(flags), "process.scheduler: needs CAP_SYS_NICE")
}
