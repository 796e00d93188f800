package integration

import (
	"fmt"
	"strings"
	"testing"
)

// frozen returns what the kernel says about the container's freezer.
func (c *container) frozen() string {
	c.t.Helper()
	text := cgroupFile(c.t, c.cgroupOf(c.id), "freezer", "freezer.state", "cgroup.events")
	if !isCgroup2() {
		return text
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "frozen "); ok {
			return map[string]string{"0": "THAWED", "1": "FROZEN"}[value]
		}
	}
	return ""
}

// TestPause: a paused program does nothing, and afterwards all that it missed.
func TestPause(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.runDetached(sh(trapAll))
		c.wantOutput("ready\n")
		for round := range 2 {
			l.wantSilent(l.call("pause", c.id))
			c.wantStatus("paused")
			equal(t, "freezer", c.frozen(), "FROZEN")
			c.kill("USR1")
			equal(t, "reactions while paused", strings.Count(c.stdout(), "got USR1"), round)
			r := l.call("list")
			l.wantOK(r)
			contains(t, "list", r.stdout, "paused")

			l.wantSilent(l.call("resume", c.id))
			c.wantStatus("running")
			equal(t, "freezer", c.frozen(), "THAWED")
			eventually(t, "reaction after resume", func() bool { return strings.Count(c.stdout(), "got USR1") == round+1 })
		}
		c.kill("USR2")
		equal(t, "exit status", c.wait(), 5)
		c.delete()
	})
}

// TestPauseCreated leaves the container where it was.
func TestPauseCreated(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.create(sh("exit 7"))
		l.wantSilent(l.call("pause", c.id))
		c.wantStatus("paused")
		l.wantFail(l.call("start", c.id), l.rt.pick("container is paused, want created", "paused"))
		l.wantSilent(l.call("resume", c.id))
		c.wantStatus("created")
		c.start()
		equal(t, "exit status", c.wait(), 7)
		c.delete()
	})
}

func TestPauseWrongState(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		for _, verb := range []string{"pause", "resume"} {
			l.wantFail(l.call(verb, "nosuch"), "container does not exist")
			l.wantFail(l.call(verb))
		}
		c := l.runDetached(sh("exec sleep 1000"))
		l.wantFail(l.call("resume", c.id), l.rt.pick("container is running, want paused", "not paused"))
		l.wantSilent(l.call("pause", c.id))
		l.wantFail(l.call("pause", c.id), l.rt.pick("container is paused, want running", "not running"))
		l.wantFail(l.call("delete", c.id), l.rt.pick("container is paused, want stopped", "paused"))
		c.wantStatus("paused")
		l.wantSilent(l.call("resume", c.id))
		c.kill("KILL")
		equal(t, "exit status", c.wait(), 128+9)
		l.wantFail(l.call("pause", c.id), l.rt.pick("container is stopped, want running", "not running"))
		l.wantFail(l.call("resume", c.id), l.rt.pick("container is stopped, want paused", "not paused"))
		c.delete()
	})
}

// TestPausedEnds: a frozen process cannot die, so who kills it has it thawed.
func TestPausedEnds(t *testing.T) {
	t.Parallel()
	for name, verb := range map[string][]string{"kill": {"kill", "ID", "9"}, "kill all": {"kill", "--all", "ID", "KILL"}, "delete": {"delete", "--force", "ID"}} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				c := l.runDetached(sh("sleep 1000 & wait"))
				eventually(t, "two processes", func() bool { return len(l.members(c)) == 2 })
				l.wantSilent(l.call("pause", c.id))
				args := strings.Split(strings.ReplaceAll(strings.Join(verb, " "), "ID", c.id), " ")
				l.wantSilent(l.call(args...))
				equal(t, "exit status", c.wait(), 128+9)
				eventually(t, "end of all processes", func() bool { return len(l.members(c)) == 0 })
				l.wantOK(l.call("delete", "--force", c.id))
			})
		})
	}
}

// TestNoCgroup has the verbs that need a cgroup say so.
func TestNoCgroup(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	id := l.newID()
	b := l.bundle(id, sh("exec sleep 1000"))
	globals := []string{"--root", l.root, "--cgroup-manager", "disabled"}
	l.wantSilent(l.invoke(invocation{globals: globals, args: []string{"create", "--bundle", b.dir, id}}))
	l.wantSilent(l.call("start", id))
	for verb, part := range map[string]string{"pause": "freezer", "ps": "processes", "update": "limits", "events": "statistics"} {
		l.wantFail(l.call(verb, id), fmt.Sprintf("%s %s: %s: the container has no cgroup of its own", verb, id, part))
	}
	l.wantSilent(l.call("delete", "--force", id))
}
