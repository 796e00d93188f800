package integration

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// event is a line of the verb events, as engines read it.
type event struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Data *struct {
		CPU struct {
			Usage struct {
				Total uint64 `json:"total"`
			} `json:"usage"`
		} `json:"cpu"`
		Memory struct {
			Usage struct {
				Limit uint64 `json:"limit"`
				Usage uint64 `json:"usage"`
				Max   uint64 `json:"max"`
			} `json:"usage"`
			Raw map[string]uint64 `json:"raw"`
		} `json:"memory"`
		Pids struct {
			Current uint64 `json:"current"`
			Limit   uint64 `json:"limit"`
		} `json:"pids"`
		Blkio   map[string]any `json:"blkio"`
		Hugetlb map[string]any `json:"hugetlb"`
	} `json:"data"`
}

func readEvents(t *testing.T, text string) []event {
	t.Helper()
	var events []event
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			break // still being written
		}
		var one event
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("events: line %q: %v", line, err)
		}
		events = append(events, one)
	}
	return events
}

func TestEventsStats(t *testing.T) {
	t.Parallel()
	needControllers(t, "cpu", "memory", "pids")
	each(t, func(t *testing.T, l *lab) {
		c := l.runDetached(sh("sleep 1000 & echo ready; wait"), limited)
		c.wantOutput("ready\n")
		eventually(t, "two processes", func() bool { return len(l.members(c)) == 2 })
		check := func() {
			t.Helper()
			r := l.call("events", "--stats", c.id)
			l.wantOK(r)
			equal(t, "stderr", r.stderr, "")
			events := readEvents(t, r.stdout)
			if len(events) != 1 || events[0].Data == nil {
				t.Fatalf("events: %q, want one with data", r.stdout)
			}
			one := events[0]
			equal(t, "type", one.Type, "stats")
			equal(t, "id", one.ID, c.id)
			equal(t, "limit of memory", one.Data.Memory.Usage.Limit, 64<<20)
			equal(t, "limit of processes", one.Data.Pids.Limit, 77)
			equal(t, "processes", one.Data.Pids.Current, 2)
			if one.Data.CPU.Usage.Total == 0 || one.Data.Memory.Usage.Usage == 0 || len(one.Data.Memory.Raw) == 0 || one.Data.Blkio == nil || one.Data.Hugetlb == nil {
				t.Errorf("events: %q: something is missing", r.stdout)
			}
		}
		check()
		l.wantSilent(l.call("pause", c.id))
		check()
		l.wantSilent(l.call("resume", c.id))
		l.wantSilent(l.call("delete", "--force", c.id))
	})
}

// watch starts the verb events and returns what it has printed so far, and a
// function that waits for its end.
func (c *container) watch(args ...string) (events func() []event, end func() result) {
	c.t.Helper()
	cmd, r, logFile := c.command(invocation{args: append(append([]string{"events"}, args...), c.id)})
	if err := suite.reaper.start(cmd); err != nil {
		c.t.Fatal(err)
	}
	events = func() []event { return readEvents(c.t, readIfThere(c.t, r.outFile)) }
	return events, func() result { return c.finish(cmd, r, logFile) }
}

// TestEventsStream ends with the container.
func TestEventsStream(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.runDetached(sh("exec sleep 1000"))
		events, end := c.watch("--interval", "50ms")
		eventually(t, "three statistics", func() bool { return len(events()) >= 3 })
		for _, one := range events() {
			equal(t, "type", one.Type, "stats")
			equal(t, "id", one.ID, c.id)
			equal(t, "processes", one.Data.Pids.Current, 1)
		}
		l.wantSilent(l.call("pause", c.id))
		l.wantSilent(l.call("resume", c.id))
		c.kill("KILL")
		c.wait()
		if !l.rt.isEggrun() {
			c.delete() // runc waits for that
		}
		r := end()
		l.wantOK(r)
		if l.rt.isEggrun() {
			equal(t, "stderr", r.stderr, "")
			c.delete()
		}
	})
}

// TestEventsOOM: who watches hears that memory ran out, also when that ends the
// container.
func TestEventsOOM(t *testing.T) {
	t.Parallel()
	needControllers(t, "memory")
	each(t, func(t *testing.T, l *lab) {
		for name, script := range map[string]string{
			"init":  "exec dd if=/dev/zero of=/dev/null bs=64M count=1",
			"child": "dd if=/dev/zero of=/dev/null bs=64M count=1; exec sleep 1000",
		} {
			if name == "init" && suite.cgroups.manager == systemd && isCgroup2() {
				continue // systemd removes the scope, and with it the count, at once
			}
			c := l.create(sh(script), func(spec *specs.Spec) {
				limit := int64(20 << 20)
				spec.Linux.Resources.Memory = &specs.LinuxMemory{Limit: &limit, Swap: &limit}
			})
			events, end := c.watch("--interval", "50ms")
			eventually(t, "statistics", func() bool { return len(events()) > 0 })
			for _, one := range events() {
				equal(t, "type before memory runs out", one.Type, "stats")
			}
			c.start()
			eventually(t, "event of "+name, func() bool {
				for _, one := range events() {
					if one.Type == "oom" {
						equal(t, "id", one.ID, c.id)
						return one.Data == nil
					}
				}
				return false
			})
			l.wantSilent(l.call("delete", "--force", c.id))
			l.wantOK(end())
		}
	})
}

func TestEventsFail(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.runDetached(sh("exec sleep 1000"))
		for _, interval := range []string{"0", "-1s"} {
			l.wantFail(l.call("events", "--interval="+interval, c.id), "interval")
		}
		l.wantFail(l.call("events", "nosuch"), "container does not exist")
		l.wantFail(l.call("events"))
		c.kill("KILL")
		c.wait()
		for _, args := range [][]string{{"events", c.id}, {"events", "--stats", c.id}} {
			l.wantFail(l.call(args...), "not running")
		}
		c.delete()
	})
}

// TestEventsReaderGone ends when nobody reads on.
func TestEventsReaderGone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.runDetached(sh("exec sleep 1000"))
		cmd := exec.Command("sh", "-c", `"$0" --root "$1" events --interval 20ms "$2" | head -n 2`, l.rt.path, l.root, c.id)
		out, err := suite.reaper.output(cmd)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "lines", strings.Count(out, "\n"), 2)
		l.wantSilent(l.call("delete", "--force", c.id))
	})
}
