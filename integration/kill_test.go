package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// trapAll prints the name of each signal that it gets and ends on USR2. Only
// once the traps are set it says so: a PID 1 without a handler ignores.
const trapAll = `for s in HUP INT TERM USR1; do trap "echo got $s" $s; done
trap 'exit 5' USR2
echo ready
while :; do sleep 1000 & wait $!; done`

// TestKillSpellings sends signals by name, with SIG, in lower case and by
// number, as podman, buildah, containerd and CRI-O do.
func TestKillSpellings(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.runDetached(sh(trapAll))
		c.wantOutput("ready\n")
		for i, tt := range []struct{ signal, want string }{
			{"TERM", "got TERM"}, {"SIGHUP", "got HUP"}, {"hup", "got HUP"}, {"sigint", "got INT"}, {"10", "got USR1"}, {"15", "got TERM"},
		} {
			c.kill(tt.signal)
			eventually(t, fmt.Sprintf("reaction to kill %s", tt.signal), func() bool {
				lines := strings.Split(strings.TrimSpace(c.stdout()), "\n")
				return len(lines) == i+2 && lines[i+1] == tt.want
			})
		}
		c.wantSilent(c.call("kill", c.id, "0"))
		c.wantSilent(c.call("kill", c.id))
		eventually(t, "TERM by default", func() bool { return strings.Count(c.stdout(), "got TERM") == 3 })
		for _, bad := range []string{"NOSUCH", "SIGNOSUCH", "-1", "1000", "0x9"} {
			r := c.call("kill", "--", c.id, bad)
			if r.code == 0 {
				t.Errorf("kill with signal %q: exit 0", bad)
			}
		}
		equal(t, "status after bad signals", c.state().Status, "running")
		c.kill("SIGUSR2")
		equal(t, "exit status", c.wait(), 5)
		l.wantFail(l.call("kill", c.id, "0"), "container not running")
		c.delete()
	})
}

// TestKillAll reaches every process of a container, also without a PID
// namespace of its own, where ending init ends nobody else.
func TestKillAll(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		edit edit
	}{
		{"own PID namespace", func(*specs.Spec) {}},
		{"host PID namespace", both(withoutNamespace(specs.PIDNamespace), func(spec *specs.Spec) { spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths = nil, nil })},
	} {
		for _, flag := range []string{"--all", "-a"} {
			t.Run(tt.name+" "+flag, func(t *testing.T) {
				each(t, func(t *testing.T, l *lab) {
					c := l.runDetached(sh("sleep 1000 & sleep 1000 & echo ready; wait"), tt.edit)
					c.wantOutput("ready\n")
					eventually(t, "three processes", func() bool { return len(l.members(c)) == 3 })
					l.wantSilent(l.call("kill", flag, c.id, "9"))
					equal(t, "exit status", c.wait(), 128+9)
					eventually(t, "end of all processes", func() bool { return len(l.members(c)) == 0 })
					c.delete()
				})
			})
		}
	}
}

// TestKillWithoutPIDNamespace: KILL is for everybody then, also when init has
// ended.
func TestKillWithoutPIDNamespace(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)) // runc since 1.2
	for name, script := range map[string]string{"with init": "sleep 1000 & wait", "without init": "sleep 1000 & exit 0"} {
		c := l.runDetached(sh(script), withoutNamespace(specs.PIDNamespace),
			func(spec *specs.Spec) { spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths = nil, nil })
		if name == "without init" {
			c.wait()
			c.wantStatus("stopped")
			l.wantFail(l.call("kill", c.id, "TERM"), "container not running")
		}
		c.kill("KILL")
		eventually(t, "end of all processes, "+name, func() bool { return len(l.members(c)) == 0 })
		if name == "with init" {
			c.wait()
		}
		// With v1 /proc shows the root for the cgroup of whoever is just ending.
		var r result
		eventually(t, "failure of another kill, "+name, func() bool { r = l.call("kill", c.id, "KILL"); return r.code != 0 })
		l.wantFail(r, "container not running")
		c.delete()
	}
}

// TestDeleteWithoutPIDNamespace has a process outlive init: delete must not
// leave it.
func TestDeleteWithoutPIDNamespace(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.runDetached(sh("sleep 1000 & exit 0"), withoutNamespace(specs.PIDNamespace),
			func(spec *specs.Spec) { spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths = nil, nil })
		equal(t, "exit status", c.wait(), 0)
		l.wantSilent(l.call("delete", "--force", c.id))
		eventually(t, "end of all processes", func() bool { return len(l.members(c)) == 0 })
	})
}

// members returns the live processes in the container's cgroup.
func (l *lab) members(c *container) []process {
	var found []process
	for _, p := range processes() {
		if strings.Contains(p.cgroup, l.cgroupOf(c.id)) {
			found = append(found, p)
		}
	}
	return found
}
