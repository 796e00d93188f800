package initproc

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"eggrun/internal/need"

	"github.com/containerd/console"
	"golang.org/x/sys/unix"
)

// TestSignalEndsCommand is about a program without handlers, which as pid 1 got
// no signal from the seed.
func TestSignalEndsCommand(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGALRM} {
			r := sh(c, "echo ready; exec sleep 1000").start(t)
			r.awaitLine("ready")
			if err := r.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if status := r.wait(); status != 128+int(sig) {
				t.Errorf("%s: status %d, want %d", unix.SignalName(sig), status, 128+int(sig))
			}
		}
	})
}

// TestSignalOnce counts what arrives. SIGUSR2, the last of all, shows that
// nothing else is on the way.
func TestSignalOnce(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		want := []string{"ready"}
		l := launch{caller: c, command: []string{selfPath(t), asAgent, "signals"}}
		l.attr.Setpgid = true
		r := l.start(t)
		r.awaitLine("ready")
		send := func(pid int, sig unix.Signal) {
			if err := unix.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
			want = append(want, "got "+unix.SignalName(sig))
			eventually(t, "arrival of "+unix.SignalName(sig), func() bool { return len(r.lines()) > len(want) })
		}
		for _, sig := range []unix.Signal{
			unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGALRM, unix.SIGCONT, unix.SIGWINCH,
		} {
			send(r.pid(), sig)
			send(-r.pid(), sig) // the whole process group
		}
		send(r.pid(), unix.SIGUSR2)
		r.wait()
		if got := strings.TrimSpace(r.stdout.String()); got != strings.Join(want, "\n") {
			t.Errorf("printed %q, want %q", got, want)
		}
	})
}

// TestOwnSignalOnce signals the command's process group from inside: pid 1 must
// not be in it and send it once more.
func TestOwnSignalOnce(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		defer write.Close()
		l := sh(c, "trap 'echo got' TERM; trap 'echo end; exit' USR2; kill -TERM 0; echo ready; while :; do read line; done")
		l.stdin = read
		r := l.start(t)
		r.awaitLine("ready")
		if err := r.cmd.Process.Signal(unix.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		r.wait()
		if got, want := r.stdout.String(), "got\nready\nend\n"; got != want {
			t.Errorf("printed %q, want %q", got, want)
		}
	})
}

// onTerminal starts l as the leader of a session with a terminal of its own,
// and returns what types into it.
func (l launch) onTerminal(t *testing.T, isStdin bool) (*running, func(string)) {
	t.Helper()
	master, path, err := console.NewPty()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	tty, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	l.attr.Setsid, l.attr.Setctty, l.attr.Ctty = true, true, 3
	l.files = []*os.File{tty}
	if isStdin {
		l.stdin = tty
	}
	return l.start(t), func(text string) {
		if _, err := master.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSignalFromTerminal types into the terminal of the command. In one case
// standard input is the terminal, so that the command shares the wrapper's
// process group and has heard it already; in the other it has its own.
func TestSignalFromTerminal(t *testing.T) {
	t.Parallel()
	for _, isStdin := range []bool{true, false} {
		t.Run(fmt.Sprintf("stdin %v", isStdin), func(t *testing.T) {
			forEachCaller(t, func(t *testing.T, c caller) {
				l := launch{caller: c, command: []string{selfPath(t), asAgent, "signals"}}
				r, typed := l.onTerminal(t, isStdin)
				r.awaitLine("ready")
				const interrupt, quit = "\x03", "\x1c"
				typed(interrupt)
				r.awaitLine("got SIGINT")
				typed(quit)
				r.awaitLine("got SIGQUIT")
				for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGUSR2} {
					if err := unix.Kill(r.pid(), sig); err != nil {
						t.Fatal(err)
					}
					r.awaitLine("got " + unix.SignalName(sig))
				}
				r.wait()
				if got, want := r.stdout.String(), "ready\ngot SIGINT\ngot SIGQUIT\ngot SIGTERM\ngot SIGUSR2\n"; got != want {
					t.Errorf("printed %q, want %q", got, want)
				}
			})
		})
	}
}

// TestTerminalIsReadable reads from it, which only the foreground may.
func TestTerminalIsReadable(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		r, typed := sh(c, "echo ready; read line; echo read $line").onTerminal(t, true)
		r.awaitLine("ready")
		typed("text\n")
		r.awaitLine("read text")
	})
}

// TestEarlySignal sends one as soon as the sandbox exists, when its pid 1 does
// not listen yet: the kernel drops what pid 1 does not listen for. A large
// environment makes its start take longer.
func TestEarlySignal(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		l := launch{caller: c, command: []string{"/bin/sleep", "1000"}}
		for i := range 20000 {
			l.env = append(l.env, fmt.Sprintf("VARIABLE%d=%d", i, i))
		}
		for range 5 {
			r := l.start(t)
			children := fmt.Sprintf("/proc/%d/task/%d/children", r.pid(), r.pid())
			need.That(t, "lists of children in /proc", func() error {
				_, err := os.Stat(children)
				return err
			})
			eventually(t, "pid 1", func() bool {
				for range 1000 {
					if list, _ := os.ReadFile(children); len(list) > 0 {
						return true
					}
				}
				return false
			})
			if err := r.cmd.Process.Signal(unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if status := r.wait(); status != 128+int(unix.SIGTERM) {
				t.Fatalf("status %d, want %d", status, 128+int(unix.SIGTERM))
			}
		}
	})
}

// TestIgnoredSignal is what nohup(1) asks for.
func TestIgnoredSignal(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		l := sh(c, "grep ^SigIgn /proc/self/status; echo ready; read line; echo $line")
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		l.stdin, l.shell = read, "trap '' HUP"
		r := l.start(t)
		r.awaitLine("ready")
		if err := r.cmd.Process.Signal(unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if _, err := write.WriteString("alive\n"); err != nil {
			t.Fatal(err)
		}
		write.Close()
		if status := r.wait(); status != 0 || !slices.Contains(r.lines(), "alive") || !strings.HasSuffix(r.lines()[0], "1") {
			t.Errorf("status %d, printed %q", status, r.lines())
		}
	})
}

// TestKilledWrapper leaves nothing running.
func TestKilledWrapper(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		r := sh(c, "sleep 1000 & echo ready; exec sleep 1000").start(t)
		r.awaitLine("ready")
		reaper := onlyChild(t, r.pid())
		command := onlyChild(t, reaper)
		orphanable := onlyChild(t, command)
		if err := r.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for _, pid := range []int{reaper, command, orphanable} {
			eventually(t, "end of the sandbox", func() bool { return unix.Kill(pid, 0) == unix.ESRCH || isZombie(pid) })
		}
	})
}

func isZombie(pid int) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return err == nil && strings.Contains(string(status), "\nState:\tZ")
}

// TestEndOfCommand ends what the command has started, too.
func TestEndOfCommand(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer write.Close()
		l := sh(c, "setsid sleep 1000 >/dev/null & echo ready; read line; exit 5")
		l.stdin = read
		r := l.start(t)
		r.awaitLine("ready")
		var background int
		command := onlyChild(t, onlyChild(t, r.pid()))
		background = onlyChild(t, command)
		write.Close()
		if status := r.wait(); status != 5 {
			t.Errorf("status %d, want 5", status)
		}
		if err := unix.Kill(background, 0); err != unix.ESRCH && !isZombie(background) {
			t.Errorf("the background process is still there: %v", err)
		}
	})
}

// TestOrphans looks at processes whose parent has ended: they are adopted, and
// gone without a zombie once they end.
func TestOrphans(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		defer write.Close()
		l := sh(c, "exec 3<&0; for i in 1 2 3; do sh -c 'cat <&3 >/dev/null &'; done; echo ready; exec sleep 1000")
		l.stdin = read
		r := l.start(t)
		r.awaitLine("ready")
		reaper := onlyChild(t, r.pid())
		const commandAndOrphans = 4
		eventually(t, "adoption of the orphans", func() bool { return len(childrenOf(t, reaper)) == commandAndOrphans })
		write.Close() // which ends them
		onlyChild(t, reaper)
	})
}

// TestEveryRunIsFiltered is about the seed's filter, which was on one thread
// while the command could be forked from another: one run in a hundred had none.
func TestEveryRunIsFiltered(t *testing.T) {
	t.Parallel()
	c := nsUser()
	c.need(t)
	const want = "NoNewPrivs:\t1\nSeccomp:\t2\n"
	l := sh(c, "grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status")
	for range 200 {
		if got := l.run(t); got.stdout != want {
			t.Fatalf("%+v, want %q", got, want)
		}
	}
	l.bare = true
	l.mustPrint(t, "NoNewPrivs:\t0\nSeccomp:\t0\n")
}

// TestThreadsAreFiltered looks at pid 1 itself.
func TestThreadsAreFiltered(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		r := sh(c, "echo ready; exec sleep 1000").start(t)
		r.awaitLine("ready")
		reaper := onlyChild(t, r.pid())
		for pid, want := range map[int]string{reaper: "2", r.pid(): "0"} {
			tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
			if err != nil || len(tasks) < 2 {
				t.Fatalf("tasks of %d: %v, %v", pid, tasks, err)
			}
			for _, task := range tasks {
				status, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, task.Name()))
				if err == nil && !strings.Contains(string(status), "\nSeccomp:\t"+want+"\n") {
					t.Errorf("thread %s of %d: not Seccomp: %s", task.Name(), pid, want)
				}
			}
		}
	})
}

// TestAttacks makes the system calls that could undo the sandbox, by the
// machine's ABI and by the i386 one, in the sandbox and, as root of the same
// namespaces, outside of it.
func TestAttacks(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		const newUser, newNS, bad = unix.CLONE_NEWUSER, unix.CLONE_NEWNS, -1
		nr := func(kind string, args ...any) string {
			return kind + ":" + strings.Trim(strings.ReplaceAll(fmt.Sprint(args...), " ", ":"), ":")
		}
		native := []string{
			nr("n", unix.SYS_MOUNT, 0, bad, 0, 0, 0), nr("n", unix.SYS_UMOUNT2, bad, 0),
			nr("n", unix.SYS_PTRACE, unix.PTRACE_TRACEME), nr("n", unix.SYS_OPEN_TREE, bad, bad, 0),
			nr("n", unix.SYS_UNSHARE, newUser|newNS), nr("n", unix.SYS_CLONE, newUser|newNS|int(unix.SIGCHLD)),
		}
		const mount32, umount32, ptrace32, unshare32, clone32 = 21, 52, 26, 310, 120
		i386 := []string{
			nr("i", mount32, 0, 0, 0, 0, 0), nr("i", umount32, 0, 0), nr("i", ptrace32, 0),
			nr("i", unshare32, newUser|newNS), nr("i", clone32, newUser|newNS|int(unix.SIGCHLD), 0),
		}
		probe := probePath(t)
		for _, ops := range [][]string{native, i386} {
			if strings.HasPrefix(ops[0], "i") {
				needI386(t, probe)
			}
			for _, op := range ops {
				// A shell as the parent, for ptrace asks whether that may trace.
				l := launch{caller: c, command: []string{"/bin/sh", "-c", `"$0" "$1"; exit $?`, probe, op}}
				l.mustPrint(t, fmt.Sprintf("-%d\n", unix.EPERM))
				l.bare = true
				if got := l.run(t); got.status != 0 || got.stdout == fmt.Sprintf("-%d\n", unix.EPERM) {
					t.Errorf("control, %s: %+v, want another answer than EPERM", op, got)
				}
			}
		}
	})
}

func needI386(t *testing.T, probe string) {
	t.Helper()
	need.That(t, "i386 system calls", func() error {
		const getpid = "i:20"
		out, err := exec.Command(probe, getpid).Output()
		if err == nil && strings.HasPrefix(string(out), "-") {
			err = fmt.Errorf("getpid answers %s", out)
		}
		return err
	})
}

// TestOtherProcesses reaches for processes that see the denied paths, or have
// more rights than the command, through the host's /proc, which it sees.
func TestOtherProcesses(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		secret := tr.write("home/secret", "secret")
		// One process of the same user outside, one that is pid 1 inside.
		outside := launch{caller: caller{"", c.fileUID, nil, 0, 0}, bare: true, command: []string{"/bin/sleep", "1000"}}.start(t)
		a := launch{caller: c, options: []string{"--deny", secret}}.serve(t)
		reaper := onlyChild(t, a.pid())
		own := onlyChild(t, reaper)
		ops := func(pid int) []string {
			proc := fmt.Sprintf("/proc/%d", pid)
			return []string{
				"read " + proc + "/root" + secret, "list " + proc + "/cwd/", "readlink " + proc + "/fd/0", "write " + proc + "/mem",
				"read " + proc + "/environ",
			}
		}
		for _, pid := range []int{outside.pid(), a.pid(), reaper} {
			for _, op := range ops(pid) {
				if got := a.ask(op); got != "EACCES" && got != "EPERM" {
					t.Errorf("%s: %s, want EACCES", op, got)
				}
			}
			if got := a.ask("kill " + strconv.Itoa(pid)); got != "ESRCH" {
				t.Errorf("kill %d: %s, want ESRCH", pid, got)
			}
		}
		for _, pid := range []int{outside.pid(), a.pid()} {
			if got := a.ask("pidfd " + strconv.Itoa(pid)); got != "EINVAL" {
				t.Errorf("pidfd of %d: %s, want EINVAL", pid, got)
			}
		}
		for _, op := range ops(own)[1:] {
			if got := a.ask(op); got != "ok" {
				t.Errorf("control, itself: %s: %s, want ok", op, got)
			}
		}
		b := launch{caller: caller{"", c.fileUID, nil, 0, 0}, bare: true}.serve(t)
		for _, op := range append(ops(outside.pid()), "kill "+strconv.Itoa(outside.pid()), "pidfd "+strconv.Itoa(outside.pid())) {
			if got := b.ask(op); got != "ok" {
				t.Errorf("control, outside: %s: %s, want ok", op, got)
			}
		}
	})
}

// TestKillProcessGroup kills all of the command's process group: in the
// caller's it would reach processes outside of the pid namespace.
func TestKillProcessGroup(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		for _, bare := range []bool{false, true} {
			leader := launch{caller: caller{"", c.fileUID, nil, 0, 0}, bare: true, command: []string{"/bin/sleep", "1000"}}
			leader.attr.Setpgid = true
			victim := leader.start(t)
			l := sh(c, "kill -KILL 0")
			l.bare = bare
			l.attr.Setpgid, l.attr.Pgid = true, victim.pid()
			if status := l.start(t).wait(); status != 128+int(unix.SIGKILL) {
				t.Errorf("bare %v: status %d, want 137", bare, status)
			}
			if bare {
				if status := victim.wait(); status != 128+int(unix.SIGKILL) {
					t.Errorf("control: the other process ended with %d, want 137", status)
				}
			} else if err := victim.cmd.Process.Signal(syscall.Signal(0)); err != nil {
				t.Errorf("the other process: %v", err)
			}
		}
	})
}
