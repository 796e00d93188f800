package initproc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"eggrun/internal/seccomp"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// TestCwd starts in a denied directory: a working directory that was not looked
// up again would be seen as it was before.
func TestCwd(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		tr.write("denied/below/id", "secret")
		denied, below := tr.path("denied"), tr.path("denied/below")
		l := sh(c, "exec 2>/dev/null; pwd -P; cat below/id ./id /proc/self/cwd/id; true")
		l.dir = denied
		l.mustPrint(t, denied+"\nsecret")
		l.with("--deny", denied).mustPrint(t, denied+"\n")
		// A caller's PWD that leads to the old directory again.
		l.env = append(os.Environ(), "PWD=/proc/self/cwd")
		l.with("--deny", denied).mustPrint(t, denied+"\n")

		l.dir, l.env = below, nil
		l.mustPrint(t, below+"\nsecretsecret")
		l.with("--deny", denied).mustRefuse(t, fmt.Sprintf("chdir %s: no such file or directory", below))
	})
}

// TestDirectoryAsStdin is about a way around the denied paths.
func TestDirectoryAsStdin(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		secret := tr.write("home/secret", "secret")
		dir, err := os.Open(tr.home)
		tr.check(err)
		defer dir.Close()
		l := sh(c, "cat /proc/self/fd/0/secret")
		l.stdin = dir
		l.with("--deny", secret).mustRefuse(t,
			"standard stream 0 is a directory, which leads around the denied paths; redirect it")
		l.bare = true
		l.mustPrint(t, "secret")
	})
}

// TestDescriptors leaves a secret open, and one that leads around.
func TestDescriptors(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		tr.write("secret", "secret")
		dir, err := os.Open(tr.dir)
		tr.check(err)
		defer dir.Close()
		l := sh(c, "exec 2>/dev/null; cat /proc/self/fd/3/secret /proc/self/fd/9/secret; for f in /proc/self/fd/*; do [ ! -e $f ] || echo ${f##*/}; done")
		l.files = []*os.File{dir}
		l.shell = "exec 9<&3"
		l.mustPrint(t, "0\n1\n2\n")
		l.bare = true
		if got := l.run(t); !strings.HasPrefix(got.stdout, "secret") {
			t.Errorf("control: %+v, want the secret", got)
		}
	})
}

// TestNOFILE is about the limit that Go raises for itself.
func TestNOFILE(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		l := sh(c, "ulimit -Sn; ulimit -Hn")
		l.shell = "ulimit -Sn 300; ulimit -Hn 700"
		l.mustPrint(t, "300\n700\n")
	})
}

func TestEnvironment(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		l := launch{caller: c, command: []string{"/bin/cat", "/proc/self/environ"}}
		l.env = []string{"PATH=/nowhere", "ODD=a=b\nc", "EMPTY=", "HTTPS_PROXY=http://127.0.0.1:1", "SSH_AUTH_SOCK=/x", "lower=1", "GODEBUG="}
		l.mustPrint(t, strings.Join(l.env, "\x00")+"\x00")
		l.env = []string{}
		l.mustPrint(t, "")
	})
}

// TestLog keeps errors away from the command's terminal, also those that only
// pid 1 of the sandbox meets.
func TestLog(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		script := tr.write("script", "#!/no/such/interpreter\n")
		tr.check(os.Chmod(script, 0o755))
		for _, tt := range []struct {
			name, deny, command, want string
			status                    int
		}{
			{"set-up", tr.path("missing"), "/bin/true", "cannot enforce", exitSetup},
			{"look-up", "", "no-such-command", "executable file not found in $PATH", exitNotFound},
			{"exec", "", script, "no such file or directory", exitNotFound},
		} {
			l := launch{caller: c, command: []string{tt.command}}
			if tt.deny != "" {
				l.options = []string{"--deny", tt.deny}
			}
			control := l.run(t)
			if control.status != tt.status || !strings.Contains(control.stderr, tt.want) {
				t.Errorf("control, %s: %+v, want status %d and %q", tt.name, control, tt.status, tt.want)
			}
			log := tr.path(tt.name + ".log")
			got := l.with(append(l.options, "--log", log)...).run(t)
			if got.status != tt.status || got.stdout != "" || got.stderr != "" {
				t.Errorf("%s: %+v, want status %d and no output", tt.name, got, tt.status)
			}
			if got := tr.read(tt.name + ".log"); got != control.stderr {
				t.Errorf("%s: the log holds %q, want %q", tt.name, got, control.stderr)
			}
		}
		sh(c, "echo out; echo err >&2", "--log", tr.path("quiet.log")).run(t)
		if got := tr.read("quiet.log"); got != "" {
			t.Errorf("after a success the log holds %q", got)
		}
	})
}

// TestLogUnwritable must not start the command without the log.
func TestLogUnwritable(t *testing.T) {
	t.Parallel()
	c := nsUser()
	c.need(t)
	sh(c, "echo started", "--log", "/no/such/log").mustRefuse(t, "open /no/such/log: no such file or directory")
}

// TestOwner looks from the host at what the command makes.
func TestOwner(t *testing.T) {
	t.Parallel()
	mapped := func() caller {
		maps := []syscall.SysProcIDMap{{HostID: 12345, Size: 1}, {ContainerID: 1, HostID: 200000, Size: 2000}}
		return caller{"user with subordinate ids", 0, maps, 1000, 200999}
	}
	rootInRange := mapped()
	rootInRange.name, rootInRange.uid, rootInRange.fileUID = "its root", 0, 12345
	asRoot := realRoot()
	asRoot.name, asRoot.uid, asRoot.fileUID = "real root as root", 0, 0
	for _, c := range []caller{realRoot(), asRoot, nsRoot(), nsUser(), mapped(), rootInRange} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.need(t)
			tr := newTree(t, c)
			l := sh(c, "id -u; id -g; touch made; grep -E '^(CapEff|CapPrm|CapInh|CapAmb)' /proc/self/status | tr -d '0\t\n'")
			l.dir = tr.mkdir("home/work")
			// All that makes the wrapper act with the command's rights.
			l.options = []string{"--home", tr.home, "--writable", l.dir, "--deny-write", tr.write("home/work/a/policy", "")}
			l.mustPrint(t, fmt.Sprintf("%d\n%d\nCapInh:CapPrm:CapEff:CapAmb:", c.uid, c.uid))
			var stat unix.Stat_t
			tr.check(unix.Stat(tr.path("home/work/made"), &stat))
			if int(stat.Uid) != c.fileUID || int(stat.Gid) != c.fileUID {
				t.Errorf("the file belongs to %d:%d, want %d", stat.Uid, stat.Gid, c.fileUID)
			}
		})
	}
}

// TestGroups is about the caller's supplementary groups, which the command of a
// root wrapper must not have.
func TestGroups(t *testing.T) {
	t.Parallel()
	c := realRoot()
	c.need(t)
	tr := newTree(t, caller{fileUID: 0})
	secret := tr.write("secret", "secret")
	const group = 4242
	tr.check(os.Chown(secret, 0, group))
	tr.check(os.Chmod(secret, 0o640))
	l := sh(c, "cat "+secret+" 2>/dev/null; true")
	l.groups = []uint32{group}
	l.mustPrint(t, "")

	// Where it cannot drop them they are the caller's own.
	l.caller = nsUser()
	l.mustPrint(t, "secret")
	l.groups = nil
	l.mustPrint(t, "")
}

// TestNoPrivilege calls the wrapper as a user without a namespace.
func TestNoPrivilege(t *testing.T) {
	t.Parallel()
	c := caller{"plain user", someUID(), nil, someUID(), someUID()}
	c.need(t)
	got := sh(c, "echo started").run(t)
	if got.status != exitSetup || got.stdout != "" || !strings.HasSuffix(got.stderr, ": operation not permitted\n") {
		t.Errorf("got %+v, want a refusal", got)
	}
}

// TestFailuresAreFatal makes each system call fail on which the sandbox rests:
// the seed logged such a failure and started the command.
func TestFailuresAreFatal(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		tr.write("home/.ssh/id", "")
		tr.write("home/token", "")
		tr.write("home/work/policy", "")
		l := sh(c, "echo started", "--home", tr.home, "--writable", tr.path("home/work"), "--deny", tr.path("home/.ssh"),
			"--deny", tr.path("home/token"), "--deny-write", tr.path("home/work/policy"))
		l.mustPrint(t, "started\n")
		for _, call := range []string{
			"close_range", "unshare", "mount", "open_tree", "move_mount", "mount_setattr", "fsopen", "fsconfig", "fsmount",
			"openat2", "statx", "fstatfs", "getcwd", "socketpair", "execveat", "setresuid", "setresgid",
			"seccomp", "prctl 1", "prctl 4", "prctl 38", "setpgid",
		} {
			t.Run(call, func(t *testing.T) {
				t.Parallel()
				l := l
				l.fault = failing(t, call)
				got := l.run(t)
				if got.status != exitSetup || got.stdout != "" || !strings.HasPrefix(got.stderr, "eggrun: init: ") {
					t.Errorf("got %+v, want status %d and an error", got, exitSetup)
				}
			})
		}
	})
}

// failing returns a filter that makes a system call fail, for "prctl N" only
// with that first argument.
func failing(t *testing.T, call string) *seccomp.Filter {
	t.Helper()
	rule := specs.LinuxSyscall{Action: specs.ActErrno}
	name, option, found := strings.Cut(call, " ")
	rule.Names = []string{name}
	if found {
		var value uint64
		if _, err := fmt.Sscan(option, &value); err != nil {
			t.Fatal(err)
		}
		rule.Args = []specs.LinuxSeccompArg{{Index: 0, Value: value, Op: specs.OpEqualTo}}
	}
	// The machine's own ABI is always in.
	filter, err := seccomp.Compile(&specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{rule}}, "")
	if err != nil {
		t.Fatal(err)
	}
	return filter
}

// TestCommandStatus are the texts and statuses of env(1) and chroot(1).
func TestCommandStatus(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		plain := tr.write("bin/plain", "#!/bin/sh\n")
		script := tr.write("bin/script", "#!/no/such/interpreter\n")
		tr.check(os.Chmod(script, 0o755))
		const notFound, notExec = exitNotFound, exitNotExec
		for _, tt := range []struct {
			command []string
			path    string
			status  int
			want    string
		}{
			{[]string{"sh", "-c", "exit 0"}, "/usr/bin:/bin", 0, ""},
			{[]string{"sh", "-c", "exit 1"}, "/usr/bin:/bin", 1, ""},
			{[]string{"sh", "-c", "exit 255"}, "/usr/bin:/bin", 255, ""},
			{[]string{"sh", "-c", "kill -KILL $$"}, "/usr/bin:/bin", 128 + 9, ""},
			{[]string{"sh", "-c", "kill -TERM $$"}, "/usr/bin:/bin", 128 + 15, ""},
			{[]string{"plain"}, tr.path("bin"), notFound, `exec "plain": executable file not found in $PATH`},
			{[]string{"true"}, "", notFound, `exec "true": executable file not found in $PATH`},
			{[]string{""}, "/usr/bin:/bin", notFound, `exec "": executable file not found in $PATH`},
			{[]string{"/no/such"}, "", notFound, `exec "/no/such": no such file or directory`},
			{[]string{script}, "", notFound, fmt.Sprintf("exec %q: no such file or directory", script)},
			{[]string{plain}, "", notExec, fmt.Sprintf("exec %q: permission denied", plain)},
			{[]string{"/usr"}, "", notExec, `exec "/usr": not a regular file: permission denied`},
		} {
			l := launch{caller: c, command: tt.command, env: []string{"PATH=" + tt.path}}
			if tt.want != "" {
				tt.want = "eggrun: init: " + tt.want + "\n"
			}
			if got := l.run(t); got.status != tt.status || got.stderr != tt.want {
				t.Errorf("%q: %+v, want status %d and %q", tt.command, got, tt.status, tt.want)
			}
		}
	})
}

// TestDeniedCommand runs what is hidden.
func TestDeniedCommand(t *testing.T) {
	t.Parallel()
	c := nsUser()
	c.need(t)
	tr := newTree(t, c)
	tool := tr.write("bin/tool", "#!/bin/sh\necho ran\n")
	tr.check(os.Chmod(tool, 0o755))
	l := launch{caller: c, command: []string{tool}}
	l.mustPrint(t, "ran\n")
	for _, denied := range []string{tool, filepath.Dir(tool)} {
		if got := l.with("--deny", denied).run(t); got.stdout != "" || got.status != exitNotExec && got.status != exitNotFound {
			t.Errorf("denied %q: %+v", denied, got)
		}
	}
}
