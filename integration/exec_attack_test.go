package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// TestExecAttackCwd: a working directory in /proc/self/fd could be a directory
// of the host that the runtime has open (CVE-2024-21626).
func TestExecAttackCwd(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	c := l.sleeper()
	host, err := os.Open(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Close() }()
	enter := func(cwd string, flags ...string) result {
		return l.invoke(invocation{args: c.execArgs(append(flags, "--cwd", cwd), "sh", "-c", "pwd; ls -a"), extraFiles: []*os.File{host}})
	}
	for fd := 3; fd < 24; fd++ {
		for _, dir := range []string{"/proc/self/fd/%d", "/proc/self/fd/%d/../..", "/proc/thread-self/fd/%d"} {
			cwd := fmt.Sprintf(dir, fd)
			if r := enter(cwd); r.code != 255 {
				t.Errorf("cwd %s: exit %d, shows %q", cwd, r.code, r.stdout)
			}
		}
	}
	// Handed over on purpose, a directory of the host is no place to be in
	// either.
	if r := enter("/proc/self/fd/3", "--preserve-fds", "1"); r.code != 255 || !strings.Contains(r.stderr, "not inside the container") {
		t.Errorf("cwd in a preserved directory: exit %d, stderr %q, shows %q", r.code, r.stderr, r.stdout)
	}
	// The controls: it is not /proc that is refused, and the preserved directory
	// is there.
	equal(t, "pwd", c.execOutput("pwd", "--cwd", "/proc/1/task"), "/proc/1/task")
	r := l.invoke(invocation{args: c.execArgs([]string{"--preserve-fds", "1"}, "ls", "-a", "/proc/self/fd/3/"), extraFiles: []*os.File{host}})
	contains(t, "preserved directory", r.stdout, "bundle-")
}

// TestExecAttackProgram: nor may the program be found through a descriptor.
func TestExecAttackProgram(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	c := l.sleeper()
	for fd := 3; fd < 24; fd++ {
		for _, path := range []string{"/proc/self/fd/%d", "/proc/self/fd/%d/bin/busybox", "/proc/self/fd/%d/../../bin/busybox"} {
			// With the flag numbers are kept free for descriptors that are not
			// there, which init's own may take meanwhile.
			for _, flags := range [][]string{nil, {"--preserve-fds", "20"}} {
				if r := c.exec(flags, fmt.Sprintf(path, fd), "sh", "-c", "echo entered"); r.code == 0 {
					t.Errorf("program %s, %v: %q", fmt.Sprintf(path, fd), flags, r.stdout)
				}
			}
		}
	}
	// As an interpreter too: execve follows it when all else is closed.
	c.execOutput("for n in 3 4 5 6 7 8 9 10 11; do printf '#!/proc/self/fd/'$n'\n' >/script$n; chmod 755 /script$n; done")
	for fd := 3; fd < 12; fd++ {
		if r := c.exec(nil, fmt.Sprintf("/script%d", fd)); r.code != 255 {
			t.Errorf("interpreter in descriptor %d: exit %d, %q", fd, r.code, r.stdout)
		}
	}
	if r := c.exec(nil, "/proc/self/root/bin/busybox", "true"); r.code != 0 {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
}

// spoilable has the lab use a copy of the runtime, for an attacker to spoil.
func (l *lab) spoilable() *lab {
	l.t.Helper()
	path := filepath.Join(makeDir(l.t, filepath.Join(l.dir, "host-bin")), l.rt.name)
	writeFile(l.t, path, readFile(l.t, l.rt.path), 0o755)
	l.rt.path = path
	return l
}

// spied enters a container where the probe, which has the capabilities given to
// it, looks into whatever comes up, and returns what it got to see.
func (l *lab) spied(command string, enter func(c *container, i int), edits ...edit) []string {
	l.t.Helper()
	id := l.newID()
	b := l.bundle(id, append([]edit{withProbe, sh("exec /probe " + command + " /stop")}, edits...)...)
	makeDir(l.t, filepath.Join(b.rootfs, "own"))
	l.helper("cp", b.rootfs+"/bin/busybox", b.rootfs+"/own/sleep")
	if strings.Contains(fmt.Sprint(l.config(id, edits...).Linux.UIDMappings), "100000") {
		chownTree(l.t, b.rootfs, 100000)
	}
	c := l.createIn(b, id, invocation{})
	c.start()
	c.wantOutput("spying")
	const times = 40
	for i := range times {
		enter(c, i)
	}
	// The control: what the spy may see, it sees.
	pid, _ := c.execDetached(invocation{}, nil, "/own/sleep", "1000")
	c.wantOutput("/own/sleep")
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	suite.reaper.status(l.t, pid)
	writeFile(l.t, filepath.Join(b.rootfs, "stop"), "", 0o644)
	equal(l.t, "exit status of the spy", c.wait(), 0)
	l.t.Logf("the spy: %s", c.stdout())
	return strings.Split(strings.TrimSpace(c.stdout()), "\n")
}

// TestExecAttackSpy has a container's root wait for the runtime to enter: it must
// find neither the host's program (CVE-2019-5736), nor a file of the host, nor
// the caller's environment.
func TestExecAttackSpy(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string][]edit{
		"default":          nil,
		"all capabilities": {addCapabilities(allCapabilities...)},
		"user namespace":   {idMappings, addCapabilities(allCapabilities...)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, eggrunOnly(t)).spoilable()
			before := readFile(t, l.rt.path)
			said := l.spied("spy", func(c *container, _ int) {
				r := l.invoke(invocation{args: c.execArgs([]string{"--user", "1000"}, "true"), env: []string{"SECRET=caller's"}})
				equal(t, "exit status ("+r.stderr+")", r.code, 0)
			}, edits...)
			l.wantNothingSpied(said, before)
		})
	}
}

// TestAttackJoinedPID is the same for a container that is made in the pid
// namespace of another one.
func TestAttackJoinedPID(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)).spoilable()
	before := readFile(t, l.rt.path)
	said := l.spied("spy", func(c *container, i int) {
		id := fmt.Sprintf("joiner%d", i) // run deletes it
		b := l.bundle(id, sh("exit 0"), asUser(1000, 1000), withNamespace(specs.PIDNamespace, fmt.Sprintf("/proc/%d/ns/pid", c.pid)))
		r := l.invoke(invocation{args: []string{"run", "--bundle", b.dir, id}, env: []string{"SECRET=caller's"}})
		equal(t, "exit status ("+r.stderr+")", r.code, 0)
	}, addCapabilities(allCapabilities...))
	l.wantNothingSpied(said, before)
}

// wantNothingSpied checks what a spy got to see, and that the runtime's program
// is as it was.
func (l *lab) wantNothingSpied(said []string, before string) {
	l.t.Helper()
	wroteOwn := false
	for _, line := range said {
		what, path, _ := strings.Cut(line, " ")
		switch {
		case line == "wrote /own/sleep":
			wroteOwn = true
		case what == "holds" && strings.HasPrefix(path, l.dir) && strings.Contains(path, "/rootfs"):
			// The mounts of the container that is being made.
		case what == "wrote", strings.Contains(line, "SECRET"), strings.Contains(line, "EGGRUN_IT_LAB"), what == "holds" && strings.HasPrefix(path, l.dir) && !strings.Contains(path, "/call") && !strings.Contains(path, "/exec.fifo"):
			l.t.Error(line)
		}
	}
	if !wroteOwn {
		l.t.Error("control: the spy could not write a program of the container's own")
	}
	if readFile(l.t, l.rt.path) != before {
		l.t.Error("the host's program has changed")
	}
}

// TestExecAttackTrace has the root of a user namespace, who may trace all that is
// in it, wait for the runtime: it must not get it before it has given up what the
// program is not to have.
func TestExecAttackTrace(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)).spoilable()
	said := l.spied("trace", func(c *container, _ int) {
		r := c.exec([]string{"--user", "1000"}, "true")
		equal(t, "exit status ("+r.stderr+")", r.code, 0)
	}, idMappings, addCapabilities(allCapabilities...))
	for _, line := range said {
		if strings.HasPrefix(line, "traced") && (strings.Contains(line, "eggrun") || strings.Contains(line, "init")) {
			t.Error(line)
		}
	}
}

// TestExecKilled ends exec at random moments. Nothing of it may live on in the
// container but the program itself.
func TestExecKilled(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string][]edit{"default": nil, "user namespace": {idMappings}, "host's pid": {withoutNamespace(specs.PIDNamespace)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, eggrunOnly(t))
			id := l.newID()
			b := l.bundle(id, append([]edit{sh("exec sleep 1000")}, edits...)...)
			if name == "user namespace" {
				chownTree(t, b.rootfs, 100000)
			}
			c := l.createIn(b, id, invocation{})
			c.start()
			begin := time.Now()
			c.execOutput("true")
			usual := time.Since(begin)
			const tries = 100
			for range tries {
				cmd, _, _ := l.command(invocation{args: c.execArgs(nil, "sleep", "2000")})
				if err := suite.reaper.start(cmd); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Duration(rand.Int64N(int64(usual)))) // the random moment
				_ = cmd.Process.Kill()
				_ = suite.reaper.wait(cmd)
			}
			var left []string
			eventuallyOr(t, func() string { return fmt.Sprintf("end of %q", left) }, func() bool {
				left = nil
				for _, p := range processes() {
					if strings.Contains(p.environ, "EGGRUN_IT_LAB="+l.dir) || p.ppid == os.Getpid() && strings.Contains(p.cmdline, "init --sync") || strings.Contains(p.cmdline, l.root) {
						left = append(left, p.cmdline)
					}
				}
				return len(left) == 0
			})
			// The programs that had got as far go with the container.
			l.wantSilent(l.call("delete", "--force", c.id))
		})
	}
}

// TestExecAttackPasswd is CVE-2026-135844 again: HOME of a further process.
func TestExecAttackPasswd(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	c := l.sleeper()
	path := filepath.Join(c.bundle.rootfs, "etc/passwd")
	without := func(spec *specs.Spec) { spec.Process.Env = []string{"PATH=/bin"} }
	equal(t, "HOME", c.processOutput(sh("echo $HOME"), without), "/root") // the control
	for name, make := range map[string]func() error{
		"fifo":   func() error { return unix.Mkfifo(path, 0o644) },
		"device": func() error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) },
		"huge":   func() error { return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 1<<40)) },
		"link":   func() error { return os.Symlink("/proc/self/fd/0", path) },
	} {
		if err := errors.Join(os.Remove(path), make()); err != nil {
			t.Fatal(err)
		}
		if r := c.execProcess(sh("echo $HOME"), without); r.code == 0 {
			equal(t, "HOME, "+name, r.stdout, "/\n")
		}
	}
}
