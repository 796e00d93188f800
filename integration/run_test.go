package integration

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestRunExitStatus(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		for _, tt := range []struct {
			script string
			want   int
		}{{"exit 0", 0}, {"exit 1", 1}, {"exit 42", 42}, {"exit 255", 255}} {
			r := l.run(sh(tt.script))
			equal(t, "exit status of "+tt.script+" ("+r.stderr+")", r.code, tt.want)
			equal(t, "stderr of "+tt.script, r.stderr, "")
		}
	})
}

// TestRunSignal ends init by a signal from outside: run answers with 128+n.
func TestRunSignal(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		id := l.newID()
		b := l.bundle(id, sh("echo ready; exec sleep 1000"))
		cmd, r, logFile := l.command(invocation{args: []string{"run", "--bundle", b.dir, id}})
		if err := suite.reaper.start(cmd); err != nil {
			t.Fatal(err)
		}
		eventually(t, "output", func() bool { return readFile(t, r.outFile) == "ready\n" })
		l.wantSilent(l.call("kill", id, "KILL"))
		equal(t, "exit status of run", l.finish(cmd, r, logFile).code, 128+9)
		l.wantGone(id)
	})
}

// trapTerm ends with 9 when it gets TERM.
const trapTerm = `trap 'echo got TERM; exit 9' TERM; echo ready; while :; do sleep 1000 & wait $!; done`

// TestRunForwardsSignals sends TERM to the runtime, not to the container.
func TestRunForwardsSignals(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		id := l.newID()
		l.wantForwarded(id, l.bundle(id, sh(trapTerm)))
	})
}

// wantForwarded runs a bundle with trapTerm in the foreground.
func (l *lab) wantForwarded(id string, b bundle) {
	t := l.t
	t.Helper()
	cmd, r, logFile := l.command(invocation{args: []string{"run", "--bundle", b.dir, id}})
	if err := suite.reaper.start(cmd); err != nil {
		t.Fatal(err)
	}
	eventually(t, "output", func() bool { return readFile(t, r.outFile) == "ready\n" })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r = l.finish(cmd, r, logFile)
	equal(t, "exit status of run", r.code, 9)
	equal(t, "output", r.stdout, "ready\ngot TERM\n")
	l.wantGone(id)
}

func TestRunStdio(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(out, "from outside\n"); err != nil {
			t.Fatal(err)
		}
		_ = out.Close()
		r := l.runWith(invocation{stdin: in}, sh("read line; echo \"got $line\"; echo complaint >&2"))
		_ = in.Close()
		equal(t, "exit status", r.code, 0)
		equal(t, "stdout", r.stdout, "got from outside\n")
		equal(t, "stderr", r.stderr, "complaint\n")
	})
}

// TestStdioCanBeReopened writes to /dev/stdout as another user: the runtime
// must give it the pipes.
func TestStdioCanBeReopened(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = read.Close() }()
		r := l.runWith(invocation{stdout: write}, sh("id -u >/dev/stdout"), asUser(1000, 1000))
		_ = write.Close()
		equal(t, "exit status ("+r.stderr+")", r.code, 0)
		got, err := io.ReadAll(read)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "output", string(got), "1000\n")
	})
}

func TestRunDetach(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		for _, flag := range []string{"--detach", "-d"} {
			id := l.newID()
			b := l.bundle(id, sh("echo out; exec sleep 1000"))
			pidFile := filepath.Join(l.dir, "pid-"+id)
			r := l.call("run", flag, "--bundle", b.dir, "--pid-file", pidFile, id)
			l.wantOK(r)
			pid, err := strconv.Atoi(readFile(t, pidFile))
			if err != nil {
				t.Fatal(err)
			}
			c := &container{lab: l, id: id, bundle: b, pid: pid, outFile: r.outFile}
			c.wantOutput("out\n")
			equal(t, "status", c.state().Status, "running")
			equal(t, "parent of init", findProcess(t, pid).ppid, os.Getpid())
			c.kill("KILL")
			equal(t, "exit status", c.wait(), 128+9)
			c.delete()
		}
	})
}

// TestRunKeep keeps a container that has ended, for buildkit to delete.
func TestRunKeep(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		id := l.newID()
		b := l.bundle(id, sh("exit 3"))
		r := l.call("run", "--bundle", b.dir, "--keep", id)
		equal(t, "exit status", r.code, 3)
		c := &container{lab: l, id: id, bundle: b}
		equal(t, "status", c.state().Status, "stopped")
		c.delete()
		l.wantGone(id)
	})
}

// TestRunRemoves checks that run without --keep leaves nothing, also after a
// failure.
func TestRunRemoves(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		l.wantOK(l.run(sh("exit 0")))
		l.wantGone("c1")
		r := l.run(args("nosuchprogram"))
		if r.code == 0 || !strings.Contains(r.stderr, "executable file not found in $PATH") {
			t.Errorf("run of a missing program: exit %d, stderr %q", r.code, r.stderr)
		}
		l.wantGone("c2")
	})
}
