package integration

import (
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// notifying is a profile that hands the named calls to the agent at path.
func notifying(path string, names ...string) edit {
	return func(spec *specs.Spec) {
		profile(specs.LinuxSyscall{Names: names, Action: specs.ActNotify})(spec)
		spec.Linux.Seccomp.ListenerPath = path
		spec.Linux.Seccomp.ListenerMetadata = "for the agent"
	}
}

func answerAll(errno unix.Errno) func(int32) unix.Errno {
	return func(int32) unix.Errno { return errno }
}

// TestSeccompNotify has an agent on the host answer for the kernel.
func TestSeccompNotify(t *testing.T) {
	t.Parallel()
	const script = "mkdir /d 2>&1 && echo made; echo end"
	for _, tt := range []struct {
		name  string
		errno unix.Errno
		want  string
	}{
		{"refused", unix.EADDRNOTAVAIL, "mkdir: can't create directory '/d': Cannot assign requested address\nend\n"},
		{"control: let through", 0, "made\nend\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				a := startAgent(t, filepath.Join(l.dir, "agent"), answerAll(tt.errno))
				c := l.create(sh(script), annotate("some.key", "value"), notifying(a.path, "mkdir", "mkdirat"))
				told := a.wantTold(t)
				equal(t, "number of descriptors", len(told.Fds), 1)
				equal(t, "name of the descriptor", told.Fds[0], "seccompFd")
				equal(t, "pid", told.Pid, c.pid)
				equal(t, "metadata", told.Metadata, "for the agent")
				equal(t, "id", told.State.ID, c.id)
				equal(t, "pid of the container", told.State.Pid, c.pid)
				equal(t, "status", told.State.Status, specs.StateCreating)
				equal(t, "bundle", told.State.Bundle, c.bundle.dir)
				equal(t, "annotation", told.State.Annotations["some.key"], "value")
				c.start()
				code, stdout, stderr := c.finishOutput()
				if code != 0 || stdout != tt.want || stderr != "" {
					t.Errorf("exit %d, stdout %q, stderr %q, want %q", code, stdout, stderr, tt.want)
				}
				equal(t, "calls that the agent saw", len(a.calls), 1)
			})
		})
	}
}

// TestSeccompNotifyOwnCalls hands the agent also the calls that init itself
// makes under the filter: none may come before the agent is told.
func TestSeccompNotifyOwnCalls(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	a := startAgent(t, filepath.Join(l.dir, "agent"), answerAll(0))
	equal(t, "output", l.output("echo ran", notifying(a.path,
		"read", "close", "prctl", "capset", "execve", "execveat", "sendmsg", "sendto", "recvmsg", "futex", "fcntl", "getcwd")), "ran")
	seen := map[int32]bool{}
	for range len(a.calls) {
		seen[<-a.calls] = true
	}
	for name, nr := range map[string]int32{"read": unix.SYS_READ, "capset": unix.SYS_CAPSET, "execve": unix.SYS_EXECVE} {
		if !seen[nr] {
			t.Errorf("the agent did not see %s", name)
		}
	}
}

// TestSeccompNotifyKillable asks for the flag that came with Linux 5.19.
func TestSeccompNotifyKillable(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	a := startAgent(t, filepath.Join(l.dir, "agent"), answerAll(unix.EADDRNOTAVAIL))
	killable := func(spec *specs.Spec) {
		spec.Linux.Seccomp.Flags = []specs.LinuxSeccompFlag{specs.LinuxSeccompFlagWaitKillableRecv}
	}
	equal(t, "output", l.output("mkdir /d 2>/dev/null || echo refused", notifying(a.path, "mkdir"), killable), "refused")
}

// TestSeccompNotifyAgentGone kills the agent's end: its calls are then unknown
// to the kernel, and nobody hangs.
func TestSeccompNotifyAgentGone(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	path := filepath.Join(l.dir, "agent")
	hangUp := startAgentThatLeaves(t, path)
	c := l.create(sh("mkdir /d 2>&1; echo end"), notifying(path, "mkdir"))
	<-hangUp
	c.start()
	_, stdout, _ := c.finishOutput()
	equal(t, "output", stdout, "mkdir: can't create directory '/d': Function not implemented\nend\n")
}

// TestSeccompNotifyNoAgent has nobody at the other end.
func TestSeccompNotifyNoAgent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		id := l.newID()
		path := filepath.Join(l.dir, "nobody")
		b := l.bundle(id, sh("exit 0"), notifying(path, "mkdir"))
		l.wantFail(l.call("create", "--bundle", b.dir, id), path)
		l.wantGone(id)
	})
}

// TestSeccompNotifyHangs refuses profiles under which init would never get to
// tell the agent.
func TestSeccompNotifyHangs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		a := startAgent(t, filepath.Join(l.dir, "agent"), answerAll(0))
		for name, change := range map[string]edit{
			"write": notifying(a.path, "mkdir", "write"),
			"default": both(notifying(a.path, "mkdir"), func(spec *specs.Spec) {
				spec.Linux.Seccomp.DefaultAction = specs.ActNotify
			}),
		} {
			t.Run(name, func(t *testing.T) {
				id := l.newID()
				b := l.bundle(id, sh("exit 0"), change)
				l.wantFail(l.call("create", "--bundle", b.dir, id), "SCMP_ACT_NOTIFY")
				l.wantGone(id)
			})
		}
	})
}
