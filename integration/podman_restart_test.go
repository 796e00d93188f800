package integration

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func podmanRestartCases() []podmanCase {
	return []podmanCase{
		{name: "restart on failure", run: podmanRestartOnFailure},
		{name: "restart always", run: podmanRestartAlways},
	}
}

func podmanRestartOnFailure(t *testing.T, p *podman) {
	for name, options := range map[string][]string{"without a policy": nil, "with a policy": p.walled()} {
		id := p.detach(append(options, "--restart=on-failure:2", image, "sh", "-c", "echo started; exit 3")...)
		var last string
		eventuallyOr(t, func() string { return name + ": third end, have " + last }, func() bool {
			last = p.ok("inspect", "--format", "{{.State.Status}} {{.State.ExitCode}} {{.RestartCount}}", id)
			return last == "exited 3 2" && strings.Count(p.ok("logs", id), "started") == 3
		})
	}
}

// podmanRestartAlways kills a container: the next one has the same wall, and a
// sidecar of its own.
func podmanRestartAlways(t *testing.T, p *podman) {
	s := newServer(t)
	id := p.detach(append(s.withServer(), "--restart=always", image, "sh", "-c", "echo up; exec sleep 1000")...)
	p.wantLog(id, "up")
	var sidecars []process
	initPID := 0
	const last = 2
	for restarts := range last + 1 {
		var state string
		eventuallyOr(t, func() string { return fmt.Sprintf("restart %d, have %s", restarts, state) }, func() bool {
			state = p.ok("inspect", "--format", "{{.RestartCount}} {{.State.Status}} {{.State.Pid}}", id)
			pid, isRunning := strings.CutPrefix(state, fmt.Sprintf("%d running ", restarts))
			initPID, _ = strconv.Atoi(pid)
			return isRunning
		})
		p.wantWall(id, s)
		for _, sidecar := range sidecars {
			wantEnd(t, sidecar)
		}
		if sidecars = sidecarsOf(initPID); p.rt.isEggrun() && len(sidecars) != 1 {
			t.Fatalf("sidecars after restart %d: %v, want one", restarts, sidecars)
		}
		if restarts == last {
			break
		}
		if err := unix.Kill(initPID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	p.ok("rm", "-f", "-t", "0", id)
	for _, sidecar := range sidecars {
		wantEnd(t, sidecar)
	}
}
