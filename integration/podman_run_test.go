package integration

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func podmanRunCases() []podmanCase {
	return []podmanCase{
		{name: "info", run: func(t *testing.T, p *podman) {
			contains(t, "version", p.ok("info", "--format", "{{.Host.OCIRuntime.Version}}"), p.rt.name+" version ")
		}},
		{name: "run", run: func(t *testing.T, p *podman) {
			equal(t, "output", p.output("id -u; pwd; echo $container"), "0\n/\npodman")
		}},
		{name: "exit status", run: podmanExitStatus},
		{name: "bad entry points", run: podmanBadEntryPoints},
		{name: "stdin", run: func(t *testing.T, p *podman) {
			r := p.callWith("typed\n", p.runArgs("--rm", "-i", image, "cat")...)
			equal(t, "output ("+r.stderr+")", r.stdout, "typed\n")
		}},
		{name: "stderr", run: func(t *testing.T, p *podman) {
			r := p.run(image, "sh", "-c", "echo out; echo err >&2")
			equal(t, "stdout", r.stdout, "out\n")
			equal(t, "stderr", r.stderr, "err\n")
		}},
		{name: "terminal", run: podmanTerminal},
		{name: "environment", run: func(t *testing.T, p *podman) {
			equal(t, "output", p.output("echo $A $HOME; pwd", "-e", "A=b", "-w", "/usr"), "b /root\n/usr")
			equal(t, "entry point", p.ok(p.runArgs("--rm", "--entrypoint", "echo", image, "x", "y")...), "x y")
		}},
		{name: "debug flag", run: func(t *testing.T, p *podman) {
			cmd := p.runArgs("--rm", image, "echo", "ok")
			equal(t, "output", p.ok(append([]string{"--runtime-flag", "debug=false"}, cmd...)...), "ok")
			r := p.call(append([]string{"--runtime-flag", "invalidflag"}, p.runArgs("--rm", image, "true")...)...)
			equal(t, "exit status", r.code, 126)
			contains(t, "stderr", r.stderr, "invalidflag")
		}},
	}
}

func podmanExitStatus(t *testing.T, p *podman) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "exit 255": 255, "kill -9 $$; sleep 1; exit 5": 5, "sleep 1000 & kill -9 $!; wait $!": 137} {
		r := p.run(image, "sh", "-c", script)
		equal(t, "exit status of "+script+" ("+r.stderr+")", r.code, want)
	}
}

func podmanBadEntryPoints(t *testing.T, p *podman) {
	for _, tt := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{image, "nosuchprogram"}, 127, "executable file not found in $PATH"},
		{[]string{image, "/bin/nosuchprogram"}, 127, "no such file or directory"},
		{[]string{image, ""}, 127, "executable file not found in $PATH"},
		{[]string{image, "/etc"}, 126, "permission denied"},
		{[]string{image, "/etc/passwd"}, 126, "permission denied"},
		{[]string{"-w", "/etc/passwd", image, "true"}, 126, "/etc/passwd"},
	} {
		r := p.run(tt.args...)
		equal(t, "exit status of "+strings.Join(tt.args, " ")+" ("+r.stderr+")", r.code, tt.code)
		contains(t, "stderr", r.stderr, tt.text)
	}
}

func podmanTerminal(t *testing.T, p *podman) {
	master, terminal := openPTY(t)
	setWinsize(t, master, 44, 99)
	cmd := p.command(p.runArgs("--rm", "-it", image, "sh", "-c", "tty; read line; stty size; echo got $line; exit 5")...)
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

// openPTY returns both ends of a new terminal.
func openPTY(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // for deadlines
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	other, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		t.Fatal(errno)
	}
	return master, os.NewFile(other, "pts")
}

func podmanLifeCases() []podmanCase {
	return []podmanCase{
		{name: "detach", run: func(t *testing.T, p *podman) {
			id := p.detach(image, "sh", "-c", "echo started; exec sleep 1000")
			p.wantLog(id, "started")
			equal(t, "status", p.ok("inspect", "--format", "{{.State.Status}}", id), "running")
			contains(t, "ps", p.ok("ps", "-q", "--no-trunc"), id)
			p.ok("rm", "-f", "-t", "0", id)
		}},
		{name: "create start wait", run: func(t *testing.T, p *podman) {
			id := p.ok("create", "--cidfile", p.cidfile(), "--network", "none", image, "sh", "-c", "echo ran; exit 9")
			p.ok("start", id)
			equal(t, "wait", p.ok("wait", id), "9")
			equal(t, "log", p.ok("logs", id), "ran")
			p.ok("rm", id)
		}},
		{name: "start attached", run: func(t *testing.T, p *podman) {
			id := p.ok("create", "--cidfile", p.cidfile(), "--network", "none", image, "sh", "-c", "echo ran; exit 3")
			r := p.call("start", "-a", id)
			equal(t, "output", r.stdout, "ran\n")
			equal(t, "exit status", r.code, 3)
		}},
		{name: "init", run: func(t *testing.T, p *podman) {
			id := p.ok("create", "--cidfile", p.cidfile(), "--network", "none", image, "sh", "-c", "echo ran; exec sleep 1000")
			p.ok("init", id)
			equal(t, "status", p.ok("inspect", "--format", "{{.State.Status}}", id), "initialized")
			p.ok("start", id)
			p.wantLog(id, "ran")
		}},
		{name: "remove initialized", run: func(t *testing.T, p *podman) {
			id := p.ok("create", "--cidfile", p.cidfile(), "--network", "none", image, "true")
			p.ok("init", id)
			p.ok("rm", "-f", id)
		}},
		{name: "stop", run: podmanStop},
		{name: "kill", run: podmanKill},
		{name: "restart", run: func(t *testing.T, p *podman) {
			id := p.detach(image, "sh", "-c", "trap 'exit 0' TERM; echo up; while :; do sleep 1000 & wait; done")
			p.wantLog(id, "up")
			p.ok("restart", "-t", "10", id)
			p.wantLog(id, "up\nup")
		}},
		{name: "remove force", run: func(t *testing.T, p *podman) {
			id := p.detach(image, "sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000 & wait; wait")
			p.ok("rm", "-f", "-t", "0", id)
			equal(t, "containers", p.ok("ps", "-a", "-q", "--filter", "id="+id), "")
		}},
		{name: "removed by itself", run: func(t *testing.T, p *podman) {
			id := p.ok(p.runArgs("-d", "--rm", image, "true")...)
			eventually(t, "removal", func() bool { return p.ok("ps", "-a", "-q", "--filter", "id="+id) == "" })
		}},
		{name: "killed conmon", run: podmanKilledConmon},
	}
}

func podmanStop(t *testing.T, p *podman) {
	polite := p.detach(image, "sh", "-c", "trap 'exit 4' TERM; echo up; while :; do sleep 1000 & wait; done")
	p.wantLog(polite, "up")
	p.ok("stop", "-t", "20", polite)
	equal(t, "exit status", p.ok("inspect", "--format", "{{.State.ExitCode}}", polite), "4")
	stubborn := p.detach(image, "sh", "-c", "trap '' TERM; echo up; sleep 1000 & wait")
	p.wantLog(stubborn, "up")
	p.ok("stop", "-t", "0", stubborn)
	equal(t, "exit status", p.ok("inspect", "--format", "{{.State.ExitCode}}", stubborn), "137")
}

func podmanKill(t *testing.T, p *podman) {
	id := p.detach(image, "sh", "-c", "trap 'echo usr1' USR1; echo up; while :; do sleep 1000 & wait $!; done")
	p.wantLog(id, "up")
	p.ok("kill", "-s", "USR1", id)
	p.wantLog(id, "usr1")
	p.ok("kill", id)
	equal(t, "exit status", p.ok("wait", id), "137")
}

// podmanKilledConmon: after this podman calls kill but never delete.
func podmanKilledConmon(t *testing.T, p *podman) {
	for _, options := range [][]string{nil, p.walled()} {
		id := p.detach(append(options, image, "sh", "-c", "echo up; exec sleep 1000")...)
		p.wantLog(id, "up")
		initPID, err := strconv.Atoi(p.ok("inspect", "--format", "{{.State.Pid}}", id))
		if err != nil {
			t.Fatal(err)
		}
		sidecars := sidecarsOf(initPID)
		for _, process := range processes() {
			if filepath.Base(process.exe) == "conmon" && strings.Contains(process.cmdline, id) {
				if err := unix.Kill(process.pid, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
		}
		// podman 5 first reports that it does not know how the container ended.
		r := p.call("rm", "-f", "-t", "0", id)
		if r.code != 0 && strings.Contains(r.stderr, "conmon exited prematurely") {
			r = p.call("rm", "-f", "-t", "0", "--ignore", id)
		}
		equal(t, "exit status of rm -f ("+r.stderr+")", r.code, 0)
		if options != nil && len(sidecars) != 1 {
			t.Errorf("sidecars: %v, want one", sidecars)
		}
		for _, sidecar := range sidecars {
			wantEnd(t, sidecar)
		}
		l := &lab{t: t} // podman leaves the state dir to whoever comes
		l.helper(p.rt.path, "delete", "--force", id)
	}
}
