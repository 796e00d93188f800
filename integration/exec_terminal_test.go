package integration

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

const terminalScript = `tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo three; echo typed >/dev/tty
stat -c 'owner %u' $(tty); cut -d' ' -f6,7 /proc/$$/stat | sed 's/^/session and terminal: /'
trap 'stty size' WINCH; echo end; until read line; do :; done; echo "read $line"; exit 7`

// TestExecConsoleSocket is podman exec -t and containerd's, detached.
func TestExecConsoleSocket(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper()
		for name, flags := range map[string][]string{
			"flags": {"--tty", "--user", "1000", "sh", "-c", terminalScript},
			"file":  {"--process", c.processFile(sh(terminalScript), terminal, asUser(1000, 1000))},
			"both":  {"--tty", "--process", c.processFile(sh(terminalScript), terminal, asUser(1000, 1000))}, // old conmon
		} {
			s := l.listenConsole(name)
			flags, command := flags, []string(nil)
			if name == "flags" {
				flags, command = flags[:3], flags[3:]
			}
			pid, r := c.execDetached(invocation{}, append([]string{"--console-socket", s.path}, flags...), command...)
			master := l.master(s)
			got := readUntil(t, master, "end")
			if name != "flags" {
				contains(t, "terminal, "+name, got, "33 77")
			}
			for _, want := range []string{"/dev/pts/", "three", "typed", "owner 1000"} {
				contains(t, "terminal, "+name, got, want)
			}
			if strings.Contains(got, " 0\r\nend") {
				t.Errorf("%s: no controlling terminal: %q", name, got)
			}
			if _, err := master.WriteString("hello\n"); err != nil {
				t.Fatal(err)
			}
			readUntil(t, master, "read hello")
			equal(t, "exit status, "+name, suite.reaper.status(t, pid), 7)
			equal(t, "stdout, "+name, readFile(t, r.outFile), "")
		}
	})
}

// TestExecConsoleMistakes: a terminal that nobody takes, a taker without one.
func TestExecConsoleMistakes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper()
		s := l.listenConsole("console")
		pidFile := filepath.Join(l.dir, "pid")
		for name, flags := range map[string][]string{
			"taker without a terminal": {"--detach", "--pid-file", pidFile, "--console-socket", s.path},
			"nobody takes it":          {"--detach", "--pid-file", pidFile, "--tty"},
			"no such socket":           {"--detach", "--pid-file", pidFile, "--tty", "--console-socket", filepath.Join(l.dir, "nosuchsocket")},
		} {
			l.wantExecFail(c.exec(flags, "sleep", "1000"))
			if _, err := os.Stat(pidFile); err == nil {
				t.Errorf("%s: there is a pid file", name)
			}
		}
		// start does not wait for the container's own one.
		eventually(t, "one process only", func() bool { return c.execOutput("ps | grep -c '[s]leep 1000' || true") == "1" })
	})
}

// TestExecConsoleNoDevpts has nothing to make a terminal in.
func TestExecConsoleNoDevpts(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)) // runc would make it on the host
	c := l.sleeper(dropMounts("/dev/pts"))
	s := l.listenConsole("console")
	l.wantExecFail(c.exec([]string{"--tty", "--console-socket", s.path}, "tty"), "mount devpts on /dev/pts")
}

// TestExecForeground connects the caller's terminal with the container's.
func TestExecForeground(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper()
		for name, flags := range map[string][]string{
			"flags": {"--tty", c.id, "sh", "-c", terminalScript},
			"file":  {"--process", c.processFile(sh(terminalScript), func(spec *specs.Spec) { spec.Process.Terminal = true }), c.id},
		} {
			master, slave := openPTY(t)
			setWinsize(t, master, 44, 99)
			cmd, _, _ := l.command(invocation{args: append([]string{"exec"}, flags...), stdin: slave, stdout: slave})
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := suite.reaper.start(cmd); err != nil {
				t.Fatal(err)
			}
			got := readUntil(t, master, "end")
			for _, want := range []string{"/dev/pts/", "44 99", "three", "typed", "owner 0"} {
				contains(t, "terminal, "+name, got, want)
			}
			setWinsize(t, master, 11, 22)
			readUntil(t, master, "11 22")
			if _, err := io.WriteString(master, "hello\r"); err != nil {
				t.Fatal(err)
			}
			readUntil(t, master, "read hello")
			_ = suite.reaper.wait(cmd)
			equal(t, "exit status, "+name, cmd.ProcessState.ExitCode(), 7)
			// The caller's terminal is no longer raw.
			if _, err := io.WriteString(master, "echoed\n"); err != nil {
				t.Fatal(err)
			}
			readUntil(t, master, "echoed\r\n")
			_ = slave.Close()
		}
	})
}

// TestExecForegroundInterrupt types ^C, which is for the program.
func TestExecForegroundInterrupt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper()
		master, slave := openPTY(t)
		cmd, _, _ := l.command(invocation{args: []string{"exec", "-t", c.id, "sh", "-c", "trap 'echo interrupted; kill $!; exit 4' INT; echo ready; sleep 1000 & wait"}, stdin: slave, stdout: slave})
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := suite.reaper.start(cmd); err != nil {
			t.Fatal(err)
		}
		_ = slave.Close()
		readUntil(t, master, "ready")
		if _, err := io.WriteString(master, "\x03"); err != nil {
			t.Fatal(err)
		}
		readUntil(t, master, "interrupted")
		_ = suite.reaper.wait(cmd)
		equal(t, "exit status", cmd.ProcessState.ExitCode(), 4)
	})
}

// TestExecForegroundNoTerminal wants a terminal where the caller has none.
func TestExecForegroundNoTerminal(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)) // runc 1.1 runs it on a terminal that leads nowhere
	c := l.sleeper()
	cmd, r, logFile := l.command(invocation{args: c.execArgs([]string{"--tty"}, "tty")})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without /dev/tty
	if err := suite.reaper.start(cmd); err != nil {
		t.Fatal(err)
	}
	l.wantExecFail(l.finish(cmd, r, logFile), "process.terminal", "/dev/tty")
	equal(t, "processes left", c.execOutput(fmt.Sprintf("ps | grep -c %q", "[t]ty")+" || true"), "0")
}

// TestTerminalElsewhere has all standard streams redirected: the terminal is the
// controlling one, and where the output goes no line feed becomes two characters.
func TestTerminalElsewhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper()
		id := l.newID()
		const script = "stty size; echo two"
		b := l.bundle(id, sh(script), func(spec *specs.Spec) { spec.Process.Terminal = true })
		for _, args := range [][]string{{"run", "--bundle", b.dir, id}, {"exec", "-t", c.id, "sh", "-c", script}} {
			master, slave := openPTY(t)
			setWinsize(t, master, 44, 99)
			cmd, r, logFile := l.command(invocation{args: args, extraFiles: []*os.File{slave}})
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
			if err := suite.reaper.start(cmd); err != nil {
				t.Fatal(err)
			}
			r = l.finish(cmd, r, logFile)
			_ = slave.Close()
			equal(t, "exit status of "+args[0]+" ("+r.stderr+")", r.code, 0)
			if !l.rt.isEggrun() {
				_, r.stdout, _ = strings.Cut(r.stdout, "\n") // runc 1.1 sets the size too late
				r.stdout = "44 99\n" + r.stdout
			}
			equal(t, "output of "+args[0], r.stdout, "44 99\ntwo\n")
		}
	})
}

// TestTerminalBackground is a job of a shell that has no right to the terminal: it
// is stopped until it is in the foreground.
func TestTerminalBackground(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)) // runc keeps on trying, with all of a CPU
	id := l.newID()
	b := l.bundle(id, sh("echo in front; exit 3"), func(spec *specs.Spec) { spec.Process.Terminal = true })
	master, slave := openPTY(t)
	cmd, _, _ := l.command(invocation{args: []string{"run", "--bundle", b.dir, id}, stdin: slave, stdout: slave})
	inShell(cmd, `set -m; "$@" & echo "job=$!."; read line; fg; echo "status=$?."`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := suite.reaper.start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	_, pid, _ := strings.Cut(readUntil(t, master, "."), "job=")
	pid, _, _ = strings.Cut(pid, ".")
	eventually(t, "stop of the job", func() bool {
		return strings.Contains(readFile(t, "/proc/"+pid+"/stat"), ") T ")
	})
	if _, err := io.WriteString(master, "\n"); err != nil {
		t.Fatal(err)
	}
	contains(t, "terminal", readUntil(t, master, "status=3."), "in front\r\n")
	_ = suite.reaper.wait(cmd)
	l.wantGone(id)
}

// TestTerminalOutputClosed has nobody read the output any more, as head(1) does
// not: the program must not wait for ever until there is room.
func TestTerminalOutputClosed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		id := l.newID()
		b := l.bundle(id, sh("while echo more; do :; done; exit 5"), func(spec *specs.Spec) { spec.Process.Terminal = true })
		_, slave := openPTY(t)
		defer func() { _ = slave.Close() }()
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd, r, logFile := l.command(invocation{args: []string{"run", "--bundle", b.dir, id}, stdout: write, extraFiles: []*os.File{slave}})
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
		if err := suite.reaper.start(cmd); err != nil {
			t.Fatal(err)
		}
		_ = write.Close()
		if _, err := io.ReadFull(read, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		_ = read.Close()
		equal(t, "exit status", l.finish(cmd, r, logFile).code, 5)
		l.wantGone(id)
	})
}
