package integration

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// podmanCgroupCases are what podman does to the cgroup of a container that runs,
// and reads from it.
func podmanCgroupCases() []podmanCase {
	return []podmanCase{
		{name: "pause", run: podmanPause},
		{name: "remove paused", run: func(t *testing.T, p *podman) {
			id := p.detach(image, "sh", "-c", "echo up; sleep 1000 & wait")
			p.wantLog(id, "up")
			p.ok("pause", id)
			p.ok("rm", "-f", "-t", "0", id)
			equal(t, "containers", p.ok("ps", "-a", "-q", "--filter", "id="+id), "")
		}},
		{name: "update", needs: "limits", need: controllers("cpu", "cpuset", "memory", "pids"), run: podmanUpdate},
		{name: "top of two", run: func(t *testing.T, p *podman) {
			id := p.detach(image, "sh", "-c", "sleep 1234 & echo up; wait")
			p.wantLog(id, "up")
			p.wantTop("USER COMMAND COMMAND root sh sh -c sleep 1234 & echo up; wait root sleep sleep 1234", id, "user", "comm", "args")
		}},
		{name: "stats with a limit", needs: "limits", need: controllers("memory", "pids"), run: podmanStats},
		{name: "copy while it runs", run: func(t *testing.T, p *podman) {
			// podman pauses for this, where that is possible.
			id := p.detach(image, "sh", "-c", "echo from inside >/file; echo up; sleep 1000 & wait")
			p.wantLog(id, "up")
			target := filepath.Join(p.dir, "copied")
			p.ok("cp", id+":/file", target)
			equal(t, "copied", readFile(t, target), "from inside\n")
			p.ok("cp", target, id+":/tmp/back")
			p.ok("commit", "--pause", id, "localhost/committed:"+p.rt.name)
			p.ok("rmi", "localhost/committed:"+p.rt.name)
			equal(t, "status", p.ok("inspect", "--format", "{{.State.Status}}", id), "running")
		}},
	}
}

func podmanPause(t *testing.T, p *podman) {
	id := p.detach(image, "sh", "-c", "trap 'echo usr1' USR1; echo up; while :; do sleep 1000 & wait $!; done")
	p.wantLog(id, "up")
	p.ok("pause", id)
	equal(t, "status", p.ok("inspect", "--format", "{{.State.Status}}", id), "paused")
	pid, err := strconv.Atoi(p.ok("inspect", "--format", "{{.State.Pid}}", id))
	if err != nil {
		t.Fatal(err)
	}
	if !isCgroup2() {
		equal(t, "freezer", cgroupFile(t, cgroupOf(t, pid, "freezer"), "freezer", "freezer.state", ""), "FROZEN")
	}
	p.ok("unpause", id)
	equal(t, "status", p.ok("inspect", "--format", "{{.State.Status}}", id), "running")
	p.ok("kill", "-s", "USR1", id)
	p.wantLog(id, "usr1")
}

// cgroupOf returns the cgroup of a process in a hierarchy of v1, or in v2.
func cgroupOf(t *testing.T, pid int, controller string) string {
	t.Helper()
	for line := range strings.Lines(procFile(t, pid, "cgroup")) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if fields[1] == controller || isCgroup2() && fields[1] == "" {
			return fields[2]
		}
	}
	t.Fatalf("process %d is in no cgroup of %s", pid, controller)
	return ""
}

func podmanUpdate(t *testing.T, p *podman) {
	id := p.detach("--memory", "64m", "--pids-limit", "50", image, "sh", "-c", "echo up; sleep 1000 & wait")
	p.wantLog(id, "up")
	pid, err := strconv.Atoi(p.ok("inspect", "--format", "{{.State.Pid}}", id))
	if err != nil {
		t.Fatal(err)
	}
	check := func(what limit, v1, v2 string) {
		t.Helper()
		want := v1
		if isCgroup2() {
			want = v2
		}
		equal(t, what.v1, cgroupFile(t, cgroupOf(t, pid, what.hierarchy), what.hierarchy, what.v1, what.v2), want)
	}
	check(memoryLimit, "67108864", "67108864")
	p.ok("update", "--cpu-shares", "300", "--cpus", "0.5", "--cpuset-cpus", "0", id)
	check(cpuShares, "300", "39")
	check(cpuQuota, "50000", "50000 100000")
	check(cpuSet, "0", "0")
	check(memoryLimit, "67108864", "67108864")
	check(pidsLimit, "50", "50")
	p.ok("update", "--memory", "80m", "--memory-swap", "160m", id)
	check(memoryLimit, "83886080", "83886080")
	check(memorySwap, "167772160", "83886080")
	check(pidsLimit, "50", "50")
	r := p.call("update", "--cpuset-cpus", "9999", id)
	if r.code == 0 {
		t.Error("update to a CPU that is not there: exit 0")
	}
	check(cpuSet, "0", "0")
}

func podmanStats(t *testing.T, p *podman) {
	id := p.detach("--memory", "64m", image, "sh", "-c", "sleep 1000 & echo up; wait")
	p.wantLog(id, "up")
	var rows []struct {
		ID    string `json:"id"`
		Usage string `json:"mem_usage"`
		PIDs  string `json:"pids"`
	}
	text := p.ok("stats", "--no-stream", "--format", "json", id)
	if err := json.Unmarshal([]byte(text), &rows); err != nil || len(rows) != 1 {
		t.Fatalf("stats: %v in %q", err, text)
	}
	equal(t, "id", rows[0].ID, id[:12])
	equal(t, "processes", rows[0].PIDs, "2")
	contains(t, "memory", rows[0].Usage, "/ 67.11MB")
}
