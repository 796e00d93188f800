package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// sleeper is a container that is there to exec in.
func (l *lab) sleeper(edits ...edit) *container {
	l.t.Helper()
	return l.runDetached(append([]edit{sh("exec sleep 1000")}, edits...)...)
}

// exec runs a program in the container, in the foreground.
func (c *container) exec(flags []string, command ...string) result {
	c.t.Helper()
	return c.call(c.execArgs(flags, command...)...)
}

func (c *container) execArgs(flags []string, command ...string) []string {
	return append(append(append([]string{"exec"}, flags...), c.id), command...)
}

// execOutput runs a shell script in the container, which must exit 0 and write
// nothing to standard error, and returns what it printed.
func (c *container) execOutput(script string, flags ...string) string {
	c.t.Helper()
	return c.scriptOutput(c.exec(flags, "/bin/sh", "-c", script))
}

func (c *container) scriptOutput(r result) string {
	c.t.Helper()
	if r.code != 0 || r.stderr != "" {
		c.t.Fatalf("%v: exit %d, stdout %q, stderr %q", r.args, r.code, r.stdout, r.stderr)
	}
	return strings.TrimRight(r.stdout, "\n")
}

// processFile writes what engines give to --process: config.json's process, with
// what the edits change of it.
func (c *container) processFile(edits ...edit) string {
	c.t.Helper()
	data, err := json.Marshal(c.config(c.id, edits...).Process)
	if err != nil {
		c.t.Fatal(err)
	}
	c.calls++
	path := filepath.Join(c.dir, fmt.Sprintf("process%d.json", c.calls))
	writeFile(c.t, path, string(data), 0o644)
	return path
}

// execProcess runs a process in the foreground as CRI-O does, by a file.
func (c *container) execProcess(edits ...edit) result {
	c.t.Helper()
	return c.exec([]string{"--process", c.processFile(edits...)})
}

func (c *container) processOutput(edits ...edit) string {
	c.t.Helper()
	return c.scriptOutput(c.execProcess(edits...))
}

// execDetached starts a program the way conmon does and returns its pid.
func (c *container) execDetached(in invocation, flags []string, command ...string) (pid int, r result) {
	c.t.Helper()
	c.calls++
	pidFile := filepath.Join(c.dir, fmt.Sprintf("exec-pid%d", c.calls))
	in.args = c.execArgs(append([]string{"--detach", "--pid-file", pidFile}, flags...), command...)
	r = c.invoke(in)
	if r.code != 0 || r.stderr != "" {
		c.t.Fatalf("%v: exit %d, stderr %q", r.args, r.code, r.stderr)
	}
	text := readFile(c.t, pidFile)
	pid, err := strconv.Atoi(text)
	if err != nil {
		c.t.Fatalf("pid file: %q: want a decimal number and nothing else", text)
	}
	return pid, r
}

// wantExecFail checks a failure of exec itself: status 255, one line, one record
// in the log.
func (l *lab) wantExecFail(r result, texts ...string) {
	l.t.Helper()
	if r.code != 255 {
		l.t.Errorf("%v: exit %d, stdout %q, stderr %q; want exit 255", r.args, r.code, r.stdout, r.stderr)
		return
	}
	if l.rt.isEggrun() && len(r.records) != 1 {
		l.t.Errorf("%v: %d log records, want 1: %+v", r.args, len(r.records), r.records)
	}
	r.code = 1
	l.wantFail(r, texts...)
}

func TestExecExitStatus(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper()
		for script, want := range map[string]int{
			"exit 0": 0, "exit 7": 7, "exit 255": 255, "kill -9 $$": 137, "kill -TERM $$": 143, "kill -9 $$ & wait": 137,
		} {
			r := c.exec(nil, "/bin/sh", "-c", "echo out; echo err >&2; "+script)
			equal(t, "exit status of "+script, r.code, want)
			equal(t, "stdout of "+script, r.stdout, "out\n")
			equal(t, "stderr of "+script, r.stderr, "err\n")
			equal(t, "log records of "+script, len(r.records), 0)
		}
		equal(t, "status of the container", c.state().Status, "running")
	})
}

// TestExecArguments: flags end at the id, what follows is the program's.
func TestExecArguments(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper()
		equal(t, "output", c.scriptOutput(c.exec(nil, "echo", "-e", "--user", "--", "", "a b")), "--user --  a b")
		equal(t, "arguments that are flags of exec", c.scriptOutput(c.exec([]string{"--env", "A=1"}, "env", "A=2", "sh", "-c", "echo $A $#", "--tty", "-d")), "2 1")
		l.wantExecFail(c.exec(nil))
		if l.rt.isEggrun() { // of runc this is 1, which could be the program's
			l.wantExecFail(c.exec([]string{"--nosuchflag"}, "true"), "nosuchflag")
			l.wantExecFail(l.call("exec"), "no container id")
			l.wantExecFail(c.exec([]string{"-e", "A=1", "--env", "B=2"}, "true"), "flag")
		}
	})
}

// TestExecProcessFile takes everything from the file, and nothing from
// config.json.
func TestExecProcessFile(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper(addEnv("FROM=config"))
		script := sh("echo ${FROM-unset} $MINE; pwd; id -u; id -G; " + capabilityMasks)
		path := c.processFile(script, asUser(1000, 1001, 7), func(spec *specs.Spec) {
			spec.Process.Env = []string{"PATH=/bin", "MINE=file"}
			spec.Process.Cwd = "/usr/bin"
			spec.Process.Capabilities = &specs.LinuxCapabilities{Bounding: []string{"CAP_KILL"}}
		})
		want := "unset file\n/usr/bin\n1000\n1001 7\n" + strings.TrimSpace(masks(0, 0, 0, 1<<5, 0))
		for _, flags := range [][]string{{"--process", path}, {"--process=" + path}, {"-p", path}} {
			equal(t, strings.Join(flags, " "), strings.TrimSpace(c.scriptOutput(c.exec(flags))), want)
		}
		// containerd has the flags after the file.
		pidFile := filepath.Join(l.dir, "pid")
		equal(t, "flags after the file", strings.TrimSpace(c.scriptOutput(c.exec([]string{"--process", path, "--pid-file", pidFile}))), want)
		l.wantExecFail(c.exec([]string{"--process", filepath.Join(l.dir, "nosuchfile")}), "nosuchfile")
		broken := filepath.Join(l.dir, "broken")
		for _, text := range []string{"", "{", "[]", `{"args":[],"cwd":"/"}`, `{"args":["true"],"cwd":"relative"}`} {
			writeFile(t, broken, text, 0o644)
			l.wantExecFail(c.exec([]string{"--process", broken}))
		}
	})
}

// TestExecDetach is how conmon calls.
func TestExecDetach(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper()
		pid, r := c.execDetached(invocation{}, nil, "/bin/sh", "-c", "echo out; while [ ! -e /go ]; do sleep 0.01; done; exit 9")
		equal(t, "parent", findProcess(t, pid).ppid, os.Getpid())
		equal(t, "session", findProcess(t, pid).session, pid)
		eventually(t, "output", func() bool { return readFile(t, r.outFile) == "out\n" })
		c.execOutput("touch /go")
		equal(t, "exit status", suite.reaper.status(t, pid), 9)
		pid, _ = c.execDetached(invocation{}, []string{"--process", c.processFile(sh("kill -9 $$"))})
		equal(t, "exit status", suite.reaper.status(t, pid), 128+9)
		// The file is renamed into place: who reads it early reads all of it.
		taken := filepath.Join(l.dir, "taken")
		writeFile(t, taken, "old", 0o644)
		reader, err := os.Open(taken)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = reader.Close() }()
		l.wantOK(c.exec([]string{"--pid-file", taken}, "true"))
		if text, err := io.ReadAll(reader); err != nil || l.rt.isEggrun() && string(text) != "old" {
			t.Errorf("old pid file: %q (%v), want it replaced and not written to", text, err)
		}
		if _, err := strconv.Atoi(readFile(t, taken)); err != nil {
			t.Error(err)
		}
		// Engines watch the folder: there may be nothing else in it.
		left, err := filepath.Glob(filepath.Join(l.dir, ".*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v (%v)", left, err)
		}
	})
}

// TestExecMistakes is what engines turn into 126 and 127. conmon takes a pid
// file for a program that runs.
func TestExecMistakes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper()
		c.execOutput("printf '#!/nosuchinterpreter\n' >/script; chmod 755 /script; echo text >/text; chmod 755 /text; ln -s /nosuch /dangling")
		for _, tt := range []struct{ program, text string }{
			{"nosuchprogram", `"nosuchprogram": executable file not found in $PATH`},
			{"", "executable file not found in $PATH"},
			{"/nosuchprogram", "no such file or directory"},
			{"/dangling", "no such file or directory"},
			{"/etc", l.rt.pick("permission denied", "")}, // "is a directory" in newer ones of runc
			{"/etc/passwd", "permission denied"},
			{"/etc/passwd/x", "not a directory"},
			// Only execve finds these out. runc then answers with 1, detached with 0.
			{"/script", l.rt.pick("no such file or directory", "skip")},
			{"/text", l.rt.pick("exec format error", "skip")},
		} {
			if tt.text == "skip" {
				continue
			}
			for _, detach := range []bool{false, true} {
				pidFile := filepath.Join(l.dir, "pid")
				flags := []string{"--pid-file", pidFile}
				if detach {
					flags = append(flags, "--detach")
				}
				r := c.exec(flags, tt.program)
				l.wantExecFail(r, tt.text)
				if _, err := os.Stat(pidFile); err == nil && l.rt.isEggrun() {
					t.Errorf("%q, detached %v: there is a pid file", tt.program, detach)
				}
				_ = os.Remove(pidFile)
			}
		}
		eventually(t, "end of all processes but the first", func() bool {
			return strings.Contains(c.execOutput("ps | grep -vc -e sleep -e ps -e PID -e grep -e sh || true"), "0")
		})
	})
}

// TestExecProcessFromDescriptor reads the process as of a shell's <(...).
func TestExecProcessFromDescriptor(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper()
		for _, path := range []string{"/dev/fd/3", "/proc/self/fd/3"} {
			f, err := os.Open(c.processFile(sh("echo read; ls /proc/self/fd | grep -c ^3$ || true")))
			if err != nil {
				t.Fatal(err)
			}
			// 3 is ls's own open directory; nothing else may be.
			r := l.invoke(invocation{args: c.execArgs([]string{"--process", path}), extraFiles: []*os.File{f}})
			equal(t, "output ("+r.stderr+")", r.stdout, "read\n1\n")
			_ = f.Close()
		}
	})
}

// TestExecWorkingDirectory has the user's own rights.
func TestExecWorkingDirectory(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper(func(spec *specs.Spec) { spec.Process.Cwd = "/usr" })
		equal(t, "by default", c.execOutput("pwd"), "/usr")
		equal(t, "by flag", c.execOutput("pwd", "--cwd", "/usr/bin"), "/usr/bin")
		equal(t, "by flag", c.execOutput("pwd", "--cwd=/proc/1/task"), "/proc/1/task")
		l.wantExecFail(c.exec([]string{"--cwd", "/nosuchdir"}, "true"), "/nosuchdir")
		l.wantExecFail(c.exec([]string{"--cwd", "/etc/passwd"}, "true"), "/etc/passwd")
		l.wantExecFail(c.exec([]string{"--cwd", "relative"}, "true"))
		c.execOutput("mkdir -m 700 /private")
		equal(t, "of root's alone", c.execOutput("pwd", "--cwd", "/private"), "/private")
		// Root without CAP_DAC_OVERRIDE could not get there.
		c.execOutput("mkdir -m 700 /owned && chown 1000 /owned", "--cap", "CAP_CHOWN")
		if l.rt.isEggrun() {
			equal(t, "of another user's", c.execOutput("pwd; cd /owned 2>/dev/null || echo denied", "--cwd", "/owned"), "/owned\ndenied")
		}
		if l.rt.isEggrun() { // runc enters it as root
			l.wantExecFail(c.exec([]string{"--cwd", "/private", "--user", "1000"}, "true"), "permission denied")
		}
	})
}

func TestExecEnvironment(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper(addEnv("FROM=config", "SAME=config"))
		environ := func(in invocation, flags ...string) string {
			in.args = c.execArgs(flags, "cat", "/proc/self/environ")
			return strings.ReplaceAll(c.scriptOutput(l.invoke(in)), "\x00", "\n")
		}
		got := environ(invocation{env: []string{"SECRET=caller's"}}, "--env", "A=b c", "--env", "SAME=flag", "--env=EMPTY=", "--env", "LIST=a,b")
		for _, want := range []string{"FROM=config\n", "SAME=flag\n", "A=b c\n", "EMPTY=\n", "LIST=a,b\n", "HOME=/root\n", "PATH="} {
			contains(t, "environment", got, want)
		}
		for _, text := range []string{"SECRET", "SAME=config", "EGGRUN"} {
			if strings.Contains(got, text) {
				t.Errorf("environment %q has %q", got, text)
			}
		}
		contains(t, "environment of another user", environ(invocation{}, "--user", "1000:1000"), "HOME=/home/tester\n")
		contains(t, "environment of a user in no file", environ(invocation{}, "--user", "4242"), "HOME=/\n")
		contains(t, "empty HOME by flag", environ(invocation{}, "--user", "1000", "--env", "HOME="), l.rt.pick("HOME=/home/tester\n", "HOME="))
		contains(t, "HOME by flag", environ(invocation{}, "--user", "1000", "--env", "HOME=/x"), "HOME=/x\n")
		c.execOutput("mkdir /opt; printf '#!/bin/sh\necho found\n' >/opt/tool; chmod 755 /opt/tool")
		equal(t, "lookup by the PATH of the flag", c.scriptOutput(c.exec([]string{"--env", "PATH=/opt"}, "tool")), "found")
		if l.rt.isEggrun() { // runc passes on what is no variable
			l.wantExecFail(c.exec([]string{"--env", "NOVALUE"}, "true"), "NOVALUE")
		}
	})
}

func TestExecUser(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper(asUser(7, 8, 9))
		ids := func(flags ...string) string {
			return strings.Join(strings.Fields(c.execOutput("id -u; id -g; id -G", flags...)), " ")
		}
		equal(t, "by default", ids(), "7 8 8 9")
		equal(t, "uid", ids("--user", "1000"), "1000 8 8 9")
		equal(t, "uid and gid", ids("-u", "1000:1001"), "1000 1001 1001 9")
		equal(t, "more groups", ids("--user=1000:1001", "--additional-gids", "5", "--additional-gids", "6"), "1000 1001 1001 5 6 9")
		for _, user := range []string{"x", "1000:", ":1000", "1000:x", "1000:1001:1002", "-1", "4294967295", "1000 ", "+1", "0x10", "1e3"} {
			if l.rt.isEggrun() { // CVE-2026-30892: runc's parser is lax too
				l.wantExecFail(c.exec([]string{"--user", user}, "true"), "--user")
			}
		}
		if l.rt.isEggrun() {
			l.wantExecFail(c.exec([]string{"--additional-gids", "x"}, "true"), "--additional-gids")
		}
	})
}

// TestExecCapabilities: never is any in the inheritable set (CVE-2022-29162,
// CVE-2022-27650).
func TestExecCapabilities(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		const kill, admin, netBind = uint64(1 << 5), uint64(1 << 21), uint64(1 << 10)
		only := func(spec *specs.Spec) {
			list := []string{"CAP_KILL"}
			spec.Process.Capabilities = &specs.LinuxCapabilities{Bounding: list, Permitted: list, Effective: list}
		}
		c := l.sleeper(only)
		equal(t, "by default", c.execOutput(capabilityMasks), strings.TrimSpace(masks(0, kill, kill, kill, 0))+" ")
		more := kill | admin | netBind
		equal(t, "root with --cap", c.execOutput(capabilityMasks, "-c", "CAP_SYS_ADMIN", "-c", "CAP_NET_BIND_SERVICE"), masks(0, more, more, more, 0))
		user := c.execOutput(capabilityMasks, "--cap", "CAP_SYS_ADMIN", "--user", "1000")
		if inherited, _, _ := strings.Cut(user, " "); inherited != hex16(0) {
			t.Errorf("inheritable set of a user with --cap: %s", user)
		}
		equal(t, "the same by a file", c.processOutput(sh(capabilityMasks), only, addCapabilities("CAP_SYS_ADMIN")), masks(0, kill|admin, kill|admin, kill|admin, 0))
		// What may be inherited without being held stays, and lets --cap raise
		// ambient capabilities.
		if l.rt.isEggrun() { // runc since 1.2
			d := l.sleeper(func(spec *specs.Spec) {
				held := []string{"CAP_KILL"}
				spec.Process.Capabilities = &specs.LinuxCapabilities{
					Bounding: append(held, "CAP_SYS_ADMIN"), Permitted: held, Effective: held, Inheritable: []string{"CAP_SYS_ADMIN"},
				}
			})
			equal(t, "inheritable", d.execOutput(capabilityMasks), masks(admin, kill, kill, kill|admin, 0))
			equal(t, "ambient", d.execOutput(capabilityMasks, "--cap", "CAP_SYS_ADMIN"), masks(admin, kill|admin, kill|admin, kill|admin, admin))
		}
		without := func(spec *specs.Spec) { spec.Process.Capabilities = nil }
		if l.rt.isEggrun() { // runc takes config.json's
			equal(t, "none by a file", c.processOutput(sh(capabilityMasks), without), masks(0, 0, 0, 0, 0))
			equal(t, "a capability that Linux lacks", c.execOutput(capabilityMasks, "--cap", "CAP_NOSUCH"), masks(0, kill, kill, kill, 0))
		}
	})
}

func TestExecNoNewPrivileges(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		const script = "grep NoNewPrivs /proc/self/status | cut -f2"
		set := func(on bool) edit { return func(spec *specs.Spec) { spec.Process.NoNewPrivileges = on } }
		without, with := l.sleeper(set(false)), l.sleeper(set(true))
		equal(t, "config.json without", without.execOutput(script), "0")
		equal(t, "config.json with", with.execOutput(script), "1")
		equal(t, "by flag", without.execOutput(script, "--no-new-privs"), "1")
		equal(t, "by a file with", without.processOutput(sh(script), set(true)), "1")
		equal(t, "by a file without", with.processOutput(sh(script), set(false)), "0")
	})
}

// TestExecStdin pipes through, to the end.
func TestExecStdin(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper()
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Repeat("0123456789abcde\n", 1<<16) // more than a pipe holds
		go func() {
			_, _ = io.WriteString(out, text)
			_ = out.Close()
		}()
		r := l.invoke(invocation{args: c.execArgs(nil, "cat"), stdin: in})
		_ = in.Close()
		equal(t, "exit status ("+r.stderr+")", r.code, 0)
		equal(t, "number of bytes", len(r.stdout), len(text))
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = read.Close() }()
		r = l.invoke(invocation{args: c.execArgs([]string{"--user", "1000:1000"}, "sh", "-c", "id -u >/dev/stdout"), stdout: write})
		_ = write.Close()
		got, err := io.ReadAll(read)
		equal(t, fmt.Sprintf("what another user wrote to /dev/stdout (%v, %s)", err, r.stderr), string(got), "1000\n")
	})
}

// TestExecForwardsSignals sends them to the runtime.
func TestExecForwardsSignals(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper()
		for signal, name := range map[syscall.Signal]string{syscall.SIGTERM: "TERM", syscall.SIGINT: "INT", syscall.SIGUSR1: "USR1", syscall.SIGHUP: "HUP"} {
			cmd, r, logFile := l.command(invocation{args: c.execArgs(nil, "sh", "-c", "trap 'echo got "+name+"; kill $!; exit 9' "+name+"; echo ready; while :; do sleep 1000 & wait $!; done")})
			if err := suite.reaper.start(cmd); err != nil {
				t.Fatal(err)
			}
			eventually(t, "output", func() bool { return readFile(t, r.outFile) == "ready\n" })
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			r = l.finish(cmd, r, logFile)
			equal(t, "exit status", r.code, 9)
			equal(t, "output", r.stdout, "ready\ngot "+name+"\n")
		}
		cmd, r, logFile := l.command(invocation{args: c.execArgs(nil, "sh", "-c", "echo ready; exec sleep 1000")})
		if err := suite.reaper.start(cmd); err != nil {
			t.Fatal(err)
		}
		eventually(t, "output", func() bool { return readFile(t, r.outFile) == "ready\n" })
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		equal(t, "exit status of one that ends by the signal", l.finish(cmd, r, logFile).code, 128+15)
	})
}
