package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestExecUmask takes config.json's where a file says nothing.
func TestExecUmask(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)) // runc ignores it before 1.2
	umask := func(mask uint32) edit {
		return func(spec *specs.Spec) { spec.Process.User.Umask = &mask }
	}
	c := l.sleeper(umask(0o027))
	equal(t, "by default", c.execOutput("umask"), "0027")
	equal(t, "by a file", c.processOutput(sh("umask"), umask(0o007)), "0007")
}

func TestExecRlimits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		limit := func(kind string, soft, hard uint64) edit {
			return func(spec *specs.Spec) {
				spec.Process.Rlimits = append(spec.Process.Rlimits, specs.POSIXRlimit{Type: kind, Soft: soft, Hard: hard})
			}
		}
		none := func(spec *specs.Spec) { spec.Process.Rlimits = nil }
		c := l.sleeper(none, limit("RLIMIT_NOFILE", 200, 200), limit("RLIMIT_FSIZE", 1<<20, 1<<21))
		limits := func(output string) []string {
			var lines []string
			for line := range strings.Lines(output) {
				lines = append(lines, strings.Join(strings.Fields(line), " "))
			}
			return lines
		}
		byDefault := limits(c.execOutput("cat /proc/self/limits"))
		small := both(limit("RLIMIT_AS", 1<<28, 1<<29), limit("RLIMIT_DATA", 1<<27, 1<<27))
		if !l.rt.isEggrun() { // runc's own Go runtime does not live with these
			small = limit("RLIMIT_CORE", 0, 0)
		}
		byFile := limits(c.processOutput(sh("cat /proc/self/limits"), none, limit("RLIMIT_NOFILE", 400, 400), limit("RLIMIT_NPROC", 64, 65), small))
		for _, tt := range []struct {
			name string
			have []string
			want string
		}{
			{"by default", byDefault, "Max open files 200 200 files"},
			{"by default", byDefault, "Max file size 1048576 2097152 bytes"},
			{"by a file", byFile, "Max open files 400 400 files"},
			{"by a file", byFile, "Max processes 64 65 processes"},
			{"by a file", byFile, l.rt.pick("Max address space 268435456 536870912 bytes", "Max core file size 0 0 bytes")},
			{"by a file", byFile, l.rt.pick("Max data size 134217728 134217728 bytes", "Max core file size 0 0 bytes")},
		} {
			if !slices.Contains(tt.have, tt.want) {
				t.Errorf("limits %s: %q lack %q", tt.name, tt.have, tt.want)
			}
		}
	})
}

// TestExecOOMScoreAdj: what a file does not say is the container's.
func TestExecOOMScoreAdj(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		score := func(value int) edit {
			return func(spec *specs.Spec) { spec.Process.OOMScoreAdj = &value }
		}
		const script = "cat /proc/self/oom_score_adj"
		c := l.sleeper(score(123))
		equal(t, "by default", c.execOutput(script), "123")
		equal(t, "by a file that says nothing", c.processOutput(sh(script)), "123")
		if l.rt.isEggrun() { // runc takes the container's
			equal(t, "by a file", c.processOutput(sh(script), score(456)), "456")
		}
	})
}

// TestExecConfinement: what config.json masks and filters holds for whatever
// enters, also where a file lacks it.
func TestExecConfinement(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		confined := func(spec *specs.Spec) {
			spec.Linux.MaskedPaths = []string{"/etc/passwd"}
			spec.Linux.ReadonlyPaths = []string{"/usr"}
			profile(specs.LinuxSyscall{Names: []string{"mkdir", "mkdirat"}, Action: specs.ActErrno})(spec)
		}
		const script = "cat /etc/passwd; touch /usr/x 2>&1; mkdir /d 2>&1; grep -c . /proc/self/status >/dev/null; grep ^Seccomp: /proc/self/status | cut -f2"
		const want = "touch: /usr/x: Read-only file system\nmkdir: can't create directory '/d': Operation not permitted\n2"
		c := l.sleeper(confined)
		equal(t, "by default", c.execOutput(script), want)
		all := both(sh(script), addCapabilities(allCapabilities...), func(spec *specs.Spec) { spec.Process.NoNewPrivileges = false })
		equal(t, "a privileged process", c.processOutput(all), want)
		equal(t, "another user", c.execOutput("mkdir /tmp/d 2>&1 || true", "--user", "1000"), "mkdir: can't create directory '/tmp/d': Operation not permitted")
		control := l.sleeper()
		contains(t, "the same without", control.execOutput("cat /etc/passwd; touch /usr/x; mkdir /d && echo made; grep ^Seccomp: /proc/self/status | cut -f2"), "made\n0")
	})
}

// TestExecSeccompNotify tells the agent of each process.
func TestExecSeccompNotify(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		a := startAgent(t, filepath.Join(l.dir, "agent"), answerAll(99)) // EADDRNOTAVAIL
		c := l.sleeper(notifying(a.path, "mkdir", "mkdirat"))
		a.wantTold(t)
		equal(t, "output", c.execOutput("mkdir /d 2>&1 || true"), "mkdir: can't create directory '/d': Cannot assign requested address")
		told := a.wantTold(t)
		equal(t, "pid of the container", told.State.Pid, c.pid)
		if told.Pid == c.pid {
			t.Error("pid: that of init")
		}
		equal(t, "metadata", told.Metadata, "for the agent")
		equal(t, "status", told.State.Status, specs.StateRunning)
	})
}

// TestExecPreserveFDs passes as many as are asked for, and nothing else that is
// open.
func TestExecPreserveFDs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper()
		files := l.openFiles("three", "four", "five")
		run := func(flags ...string) string {
			const script = "for n in 3 4 5 6 7 8 9; do readlink /proc/$$/fd/$n || echo none; done"
			got := c.scriptOutput(l.invoke(invocation{args: c.execArgs(flags, "sh", "-c", script), extraFiles: files}))
			return strings.ReplaceAll(strings.ReplaceAll(got, l.dir+"/", ""), "\n", " ")
		}
		equal(t, "with the flag", run("--preserve-fds", "2"), "three four none none none none none")
		equal(t, "with the flag", run("--preserve-fds=1"), "three none none none none none none")
		equal(t, "without", run(), "none none none none none none none")
		if l.rt.isEggrun() { // podman leaves holes; runc refuses them
			equal(t, "more than there are", run("--preserve-fds", "5"), "three four five none none none none")
		}
	})
}

// openFiles returns files that hold their own names.
func (l *lab) openFiles(names ...string) []*os.File {
	l.t.Helper()
	var files []*os.File
	for _, name := range names {
		path := filepath.Join(l.dir, name)
		writeFile(l.t, path, name+"\n", 0o644)
		file, err := os.Open(path)
		if err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() { _ = file.Close() })
		files = append(files, file)
	}
	return files
}

// TestExecSession: nothing of the caller's session and signals is inherited.
func TestExecSession(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper()
		got := strings.Fields(c.execOutput("cut -d' ' -f1,5,6 /proc/self/stat; grep -e ^SigBlk -e ^SigIgn /proc/self/status | cut -f2"))
		if len(got) != 5 || got[1] == "0" || got[1] != got[2] {
			t.Errorf("pid, process group, session, blocked and ignored signals: %v, want a session of its own", got)
		}
		equal(t, "blocked signals", got[3], hex16(0))
		// 32 and 33 are the C library's own, which no program can catch and so
		// no runtime can give back.
		ignored, err := strconv.ParseUint(got[4], 16, 64)
		if err != nil || ignored&^(3<<31) != 0 {
			t.Errorf("ignored signals: %s", got[4])
		}
	})
}

// TestExecCPUAffinity: the CPUs of init are another matter.
func TestExecCPUAffinity(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)) // came with runc 1.3
	need(t, "two CPUs", func() error {
		if cpus := runtime.NumCPU(); cpus < 2 {
			return fmt.Errorf("there is %d", cpus)
		}
		return nil
	})
	affinity := func(initial, final string) edit {
		return func(spec *specs.Spec) {
			spec.Process.ExecCPUAffinity = &specs.CPUAffinity{Initial: initial, Final: final}
		}
	}
	const script = "grep Cpus_allowed_list /proc/self/status | cut -f2"
	all := l.output(script)
	c := l.sleeper(affinity("0", "1"))
	equal(t, "by config.json", c.execOutput(script), "1")
	equal(t, "by a file that says nothing", c.processOutput(sh(script)), "1")
	equal(t, "by a file", c.processOutput(sh(script), affinity("1", "0")), "0")
	equal(t, "without", l.sleeper().execOutput(script), all)
	l.wantExecFail(c.execProcess(sh(script), affinity("", "4000")), `process.execCPUAffinity.final "4000"`)
	l.wantExecFail(c.execProcess(sh(script), affinity("x", "")), `execCPUAffinity.initial "x"`)
}
