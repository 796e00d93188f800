package container

import (
	"fmt"
	"testing"
	"time"

	"eggrun/internal/state"
)

// TestCgroupVerbs refuses what needs a cgroup and a process without either.
func TestCgroupVerbs(t *testing.T) {
	t.Parallel()
	const running = true
	init, _ := startProcess(t)
	for _, tt := range []struct {
		name      string
		isRunning bool
		cgroup    state.Cgroup
		// the errors of pause, resume, ps, update, events --stats and events
		want [6]string
	}{
		{"no cgroup", running, state.Cgroup{Manager: ManagerDisabled}, [6]string{
			"freezer: the container has no cgroup of its own", "container is running, want paused", "processes: the container has no cgroup of its own",
			"limits: the container has no cgroup of its own", "statistics: the container has no cgroup of its own", "statistics: the container has no cgroup of its own",
		}},
		{"cgroup that is gone", running, state.Cgroup{Manager: ManagerCgroupfs, Path: "/eggrun-none", Paths: map[string]string{"": "/sys/fs/cgroup/eggrun-none"}}, [6]string{
			"freezer: the container has no cgroup of its own", "container is running, want paused", "processes: the container has no cgroup of its own",
			"limits: the container has no cgroup of its own", "statistics: the container has no cgroup of its own", "statistics: the container has no cgroup of its own",
		}},
		{"ended", !running, state.Cgroup{Manager: ManagerDisabled}, [6]string{
			"container is stopped, want running", "container is stopped, want paused", "<nil>",
			"container not running", "container not running", "container not running",
		}},
	} {
		s := &state.State{ID: "a", Ready: true, Init: init, Cgroup: tt.cgroup}
		if !tt.isRunning {
			s.Init.Start--
		}
		root := t.TempDir()
		dir, err := state.Create(root, "a")
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		c := &Container{dir: dir, state: s}
		pids, psErr := c.Processes()
		_, statsErr := c.Stats()
		emit := func(e *Event) error { t.Errorf("%s: event %+v", tt.name, e); return nil }
		for i, err := range []error{c.Pause(), c.Resume(), psErr, c.Update(&UpdateOptions{Resources: limits(t, "{}")}), statsErr, c.Events(time.Second, emit)} {
			if fmt.Sprint(err) != tt.want[i] {
				t.Errorf("%s, verb %d: error %v, want %s", tt.name, i, err, tt.want[i])
			}
		}
		if psErr == nil && (pids == nil || len(pids) != 0) {
			t.Errorf("%s: processes %v, want an empty list, which is [] in JSON", tt.name, pids)
		}
	}
}
