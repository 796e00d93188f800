package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// pids runs ps in its form for engines, which read stdout and stderr as one.
func (c *container) pids(args ...string) []int {
	c.t.Helper()
	r := c.call(append([]string{"ps"}, append(args, c.id)...)...)
	c.wantOK(r)
	equal(c.t, "stderr", r.stderr, "")
	var pids []int
	if err := json.Unmarshal([]byte(r.stdout), &pids); err != nil {
		c.t.Fatalf("ps: %v in %q", err, r.stdout)
	}
	slices.Sort(pids)
	return pids
}

func (l *lab) memberPIDs(c *container) []int {
	var pids []int
	for _, p := range l.members(c) {
		pids = append(pids, p.pid)
	}
	slices.Sort(pids)
	return pids
}

func TestPsJSON(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.create(sh("sleep 1000 & sleep 1000 & echo ready; wait"))
		equal(t, "processes of a created container", fmt.Sprint(c.pids("--format", "json")), fmt.Sprint([]int{c.pid}))
		c.start()
		c.wantOutput("ready\n")
		eventually(t, "three processes", func() bool { return len(l.members(c)) == 3 })
		want := fmt.Sprint(l.memberPIDs(c))
		for _, form := range [][]string{{"--format", "json"}, {"--format=json"}, {"-f", "json"}} {
			equal(t, fmt.Sprintf("ps %v", form), fmt.Sprint(c.pids(form...)), want)
		}
		l.wantSilent(l.call("pause", c.id))
		equal(t, "processes of a paused container", fmt.Sprint(c.pids("--format", "json")), want)
		l.wantSilent(l.call("resume", c.id))
		c.kill("KILL")
		c.wait()
		eventually(t, "end of all processes", func() bool { return len(l.members(c)) == 0 })
		r := l.call("ps", "--format", "json", c.id)
		l.wantOK(r)
		equal(t, "processes of a stopped container", strings.TrimSpace(r.stdout), l.rt.pick("[]", "null"))
		c.delete()
	})
}

func TestPsTable(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.runDetached(sh("sleep 1234 & echo ready; wait"))
		c.wantOutput("ready\n")
		eventually(t, "two processes", func() bool { return len(l.members(c)) == 2 })
		for options, head := range map[string]string{"": "UID PID PPID C STIME TTY TIME CMD", "-o comm,pid": "COMMAND PID", "aux": "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND"} {
			r := l.call(append([]string{"ps", c.id}, strings.Fields(options)...)...)
			l.wantOK(r)
			equal(t, "stderr", r.stderr, "")
			lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
			equal(t, "head with options "+options, strings.Join(strings.Fields(lines[0]), " "), head)
			if options == "-o comm,pid" {
				continue // of all terminals' processes only: ps's own choice
			}
			equal(t, "lines with options "+options+":\n"+r.stdout, len(lines), 3)
			contains(t, "table", r.stdout, "sleep 1234")
		}
		l.wantFail(l.call("ps", c.id, "-eo", "comm"), "PID")
		l.wantFail(l.call("ps", "--format", "nosuch", c.id), "format")
		l.wantFail(l.call("ps", "nosuch"), "container does not exist")
		l.wantFail(l.call("ps"))
		l.wantSilent(l.call("delete", "--force", c.id))
	})
}
