package integration

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestPodmanCheckpoint is podman container checkpoint and restore: in place, left
// running, carried away and brought back under another name, and with a terminal.
func TestPodmanCheckpoint(t *testing.T) {
	eggrunOnly(t)
	need(t, "criu", criuCheck)
	store := newPodmanStore(t, nil)
	for name, test := range map[string]func(t *testing.T, p *podman){
		"in place": func(t *testing.T, p *podman) {
			id := p.counting()
			p.ok("container", "checkpoint", id)
			equal(t, "status", p.ok("inspect", "--format", "{{.State.Status}} {{.State.Checkpointed}}", id), "exited true")
			p.ok("container", "restore", id)
			equal(t, "status", p.ok("inspect", "--format", "{{.State.Status}}", id), "running")
			p.goesOn(id)
			p.ok("container", "checkpoint", "--leave-running", id)
			p.goesOn(id)
			p.ok("kill", id)
			equal(t, "exit status", p.ok("wait", id), "137")
		},
		"elsewhere": func(t *testing.T, p *podman) {
			id := p.counting()
			archive := filepath.Join(p.dir, "archive.tar.gz")
			p.ok("container", "checkpoint", "--export", archive, id)
			p.ok("rm", id)
			id = p.ok("container", "restore", "--import", archive, "--name", "elsewhere")
			p.goesOn(id)
			p.ok("rm", "-f", "-t", "0", id)
		},
		"terminal": func(t *testing.T, p *podman) {
			id := p.detach("-t", "--annotation", "org.criu.config="+p.criuConfig(), image, "sh", "-c", "trap 'echo size; stty size' WINCH; echo up; while :; do sleep 0.1; done")
			p.wantLog(id, "up")
			p.ok("container", "checkpoint", id)
			p.ok("container", "restore", id)
			p.ok("kill", "-s", "WINCH", id)
			p.wantLog(id, "size\r")
		},
	} {
		t.Run(name, func(t *testing.T) {
			store.each(t, test)
		})
	}
}

// criuConfig leaves the cgroups to the runtime, as [container.checkpoint] does.
func (p *podman) criuConfig() string {
	path := filepath.Join(p.dir, "criu.conf")
	writeFile(p.t, path, "manage-cgroups ignore\n", 0o644)
	return path
}

// counting starts a container that writes lines with a network of its own.
func (p *podman) counting() string {
	p.t.Helper()
	id := p.detach("--annotation", "org.criu.config="+p.criuConfig(), image, "sh", "-c", "while :; do echo up; sleep 0.1; done")
	p.wantLog(id, "up")
	return id
}

// goesOn waits for more lines, and for an answer from inside.
func (p *podman) goesOn(id string) {
	p.t.Helper()
	before := strings.Count(p.ok("logs", id), "up")
	eventually(p.t, "more lines", func() bool { return strings.Count(p.ok("logs", id), "up") > before })
	equal(p.t, "exec", p.ok("exec", id, "cat", "/proc/1/comm"), "sh")
}
