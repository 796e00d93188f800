package integration

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func podmanExecCases() []podmanCase {
	return []podmanCase{
		{name: "exec", run: podmanExec},
		{name: "exec options", run: podmanExecOptions},
		{name: "exec bad programs", run: podmanExecBadPrograms},
		{name: "exec terminal", run: podmanExecTerminal},
		{name: "exec detached", run: podmanExecDetached},
		{name: "exec privileged", run: podmanExecPrivileged},
		{name: "exec preserve-fds", run: podmanExecPreserve},
		{name: "exec in many ways at once", run: podmanExecMany},
		{name: "exec in a pod", run: podmanExecPod},
		{name: "exec stopped", run: func(t *testing.T, p *podman) {
			id := p.detach(image, "true")
			p.ok("wait", id)
			equal(t, "exit status", p.call("exec", id, "true").code, 255)
			equal(t, "exit status of an unknown one", p.call("exec", "nosuchcontainer", "true").code, 125)
		}},
		{name: "healthcheck", run: podmanHealthcheck},
		{name: "copy", run: podmanCopy},
		{name: "commit", run: podmanCommit},
		{name: "top", run: podmanTop},
	}
}

// sleeper is a container that is there to exec in.
func (p *podman) sleeper(options ...string) string {
	p.t.Helper()
	return p.detach(append(options, image, "sleep", "1000")...)
}

func podmanExec(t *testing.T, p *podman) {
	id := p.sleeper()
	equal(t, "output", p.ok("exec", id, "sh", "-c", "id -u; pwd; hostname; ps | grep -c '[s]leep 1000'"), "0\n/\n"+id[:12]+"\n1")
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "exit 255": 255, "kill -9 $$": 137} {
		r := p.call("exec", id, "sh", "-c", "echo out; echo err >&2; "+script)
		equal(t, "exit status of "+script, r.code, want)
		equal(t, "stdout of "+script, r.stdout, "out\n")
		contains(t, "stderr of "+script, r.stderr, "err\n")
	}
	r := p.callWith("typed\n", "exec", "-i", id, "cat")
	equal(t, "output of exec -i ("+r.stderr+")", r.stdout, "typed\n")
	equal(t, "output without -i", p.callWith("typed\n", "exec", id, "cat").stdout, "")
}

func podmanExecOptions(t *testing.T, p *podman) {
	id := p.sleeper("-e", "FROM=run", "--cap-drop", "all", "--cap-add", "kill")
	equal(t, "variables", p.ok("exec", "-e", "A=b c", "--env", "FROM=exec", id, "sh", "-c", "echo $A $FROM $HOME"), "b c exec /root")
	equal(t, "working directory", p.ok("exec", "-w", "/usr/bin", id, "pwd"), "/usr/bin")
	equal(t, "user", p.ok("exec", "-u", "tester", id, "sh", "-c", "id -u; id -g; echo $HOME"), "1000\n1000\n/home/tester")
	equal(t, "user and group", p.ok("exec", "-u", "4242:4343", id, "sh", "-c", "id -u; id -g; "+capabilityMasks), "4242\n4343\n"+masks(0, 0, 0, 1<<5, 0))
	equal(t, "capabilities of root", p.ok("exec", id, "sh", "-c", capabilityMasks), masks(0, 1<<5, 1<<5, 1<<5, 0))
	r := p.call("exec", "-w", "/nosuchdir", id, "pwd")
	if r.code != 126 && r.code != 127 {
		t.Errorf("exit status with a missing working directory: %d: %s", r.code, r.stderr)
	}
	contains(t, "stderr", r.stderr, "/nosuchdir")
}

func podmanExecBadPrograms(t *testing.T, p *podman) {
	id := p.sleeper()
	for _, tt := range []struct {
		program string
		code    int
		text    string
	}{
		{"nosuchprogram", 127, "executable file not found in $PATH"},
		{"/bin/nosuchprogram", 127, "no such file or directory"},
		{"", 127, "executable file not found in $PATH"},
		{"/etc", 126, "permission denied"},
		{"/etc/passwd", 126, "permission denied"},
	} {
		r := p.call("exec", id, tt.program)
		equal(t, "exit status of "+tt.program+" ("+r.stderr+")", r.code, tt.code)
		contains(t, "stderr of "+tt.program, r.stderr, tt.text)
		r = p.call("exec", "-d", id, tt.program)
		if r.code < 125 { // podman 4 answers with 125 here
			t.Errorf("exit status of %s, detached: %d", tt.program, r.code)
		}
		contains(t, "stderr of "+tt.program+", detached", r.stderr, tt.text)
	}
}

func podmanExecTerminal(t *testing.T, p *podman) {
	id := p.sleeper()
	master, terminal := openPTY(t)
	setWinsize(t, master, 44, 99)
	cmd := p.command("exec", "-it", id, "sh", "-c", "tty; read line; stty size; echo got $line; exit 5")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	if err := suite.reaper.start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = terminal.Close()
	got := readUntil(t, master, "/dev/pts/0")
	if _, err := io.WriteString(master, "hello\n"); err != nil {
		t.Fatal(err)
	}
	got += readUntil(t, master, "got hello")
	contains(t, "terminal", got, "44 99")
	_ = suite.reaper.wait(cmd)
	equal(t, "exit status", cmd.ProcessState.ExitCode(), 5)
}

func podmanExecDetached(t *testing.T, p *podman) {
	id := p.sleeper()
	p.ok("exec", "-d", id, "sh", "-c", "echo here >/made; exec sleep 2000")
	eventually(t, "file of the program", func() bool { return p.call("exec", id, "cat", "/made").stdout == "here\n" })
	equal(t, "processes", p.ok("exec", id, "sh", "-c", "ps | grep -c '[s]leep 2000'"), "1")
	p.ok("rm", "-f", "-t", "0", id)
}

// podmanExecPrivileged is what a container without capabilities may then do.
func podmanExecPrivileged(t *testing.T, p *podman) {
	id := p.sleeper("--cap-drop", "all")
	const script = "mount -t tmpfs tmpfs /tmp 2>/dev/null && echo mounted; echo end"
	equal(t, "plain", p.ok("exec", id, "sh", "-c", script), "end")
	equal(t, "privileged", p.ok("exec", "--privileged", id, "sh", "-c", script+"; grep CapInh /proc/self/status | cut -f2"), "mounted\nend\n"+hex16(0))
}

func podmanExecPreserve(t *testing.T, p *podman) {
	id := p.sleeper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	cmd := p.command("exec", "--preserve-fds", "1", id, "sh", "-c", "echo passed >&3")
	cmd.ExtraFiles = []*os.File{write}
	out, err := suite.reaper.output(cmd)
	_ = write.Close()
	if err != nil {
		t.Fatalf("podman exec: %v: %s", err, out)
	}
	got, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "what was written to descriptor 3", string(got), "passed\n")
}

func podmanExecMany(t *testing.T, p *podman) {
	id := p.sleeper()
	var running []*exec.Cmd
	for range 8 {
		cmd := p.command("exec", id, "sh", "-c", "echo x >>/made")
		if err := suite.reaper.start(cmd); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	for _, cmd := range running {
		if err := suite.reaper.wait(cmd); err != nil {
			t.Error(err)
		}
	}
	equal(t, "lines", p.ok("exec", id, "sh", "-c", "grep -c x /made"), "8")
}

// podmanExecPod enters the second container of a pod with one pid namespace.
func podmanExecPod(t *testing.T, p *podman) {
	first := p.sleeper()
	second := p.detach("--pid", "container:"+first, "--ipc", "container:"+first, image, "sleep", "2000")
	equal(t, "processes", p.ok("exec", second, "sh", "-c", "ps | grep -c '[s]leep [12]000'"), "2")
	p.ok("rm", "-f", "-t", "0", second)
}

// podmanHealthcheck runs the check by hand, as a systemd timer would.
func podmanHealthcheck(t *testing.T, p *podman) {
	id := p.sleeper("--health-cmd", "test -e /healthy", "--health-interval", "disable")
	r := p.call("healthcheck", "run", id)
	equal(t, "exit status of the sick ("+r.stderr+")", r.code, 1)
	p.ok("exec", id, "touch", "/healthy")
	r = p.call("healthcheck", "run", id)
	equal(t, "exit status of the healthy ("+r.stdout+r.stderr+")", r.code, 0)
}

// podmanCopy pauses the container meanwhile.
func podmanCopy(t *testing.T, p *podman) {
	id := p.sleeper()
	from, to := filepath.Join(p.dir, "from"), filepath.Join(p.dir, "to")
	writeFile(t, from, "copied\n", 0o644)
	p.ok("cp", from, id+":/tmp/file")
	equal(t, "file in the container", p.ok("exec", id, "cat", "/tmp/file"), "copied")
	p.ok("cp", id+":/tmp/file", to)
	equal(t, "file on the host", readFile(t, to), "copied\n")
	equal(t, "status", p.ok("inspect", "--format", "{{.State.Status}}", id), "running")
}

func podmanCommit(t *testing.T, p *podman) {
	id := p.sleeper()
	p.ok("exec", id, "sh", "-c", "echo kept >/made")
	name := "localhost/committed-" + p.rt.name
	p.ok("commit", "-q", "--pause=true", id, name)
	t.Cleanup(func() { p.ok("rmi", "-f", name) })
	equal(t, "status", p.ok("inspect", "--format", "{{.State.Status}}", id), "running")
	equal(t, "file in the image", p.ok(p.runArgs("--rm", name, "cat", "/made")...), "kept")
}

// podmanTop asks podman, and with options of ps a ps in the container.
func podmanTop(t *testing.T, p *podman) {
	id := p.sleeper()
	p.wantTop("PID COMMAND 1 sleep 1000", id, "pid", "args")
	contains(t, "top with options of ps", p.ok("top", id, "-o", "pid,args"), "sleep 1000")
}

// wantTop waits until podman top shows that, for a program is executed a moment
// after its container has started.
func (p *podman) wantTop(want string, args ...string) {
	p.t.Helper()
	var got string
	eventuallyOr(p.t, func() string { return fmt.Sprintf("top %q, last seen %q", want, got) }, func() bool {
		got = strings.Join(strings.Fields(p.ok(append([]string{"top"}, args...)...)), " ")
		return got == want
	})
}
