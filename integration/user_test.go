package integration

import (
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestUser(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		got := l.output("id -u; id -g; id -G; umask; touch /tmp/f; stat -c '%a %u:%g' /tmp/f", asUser(1000, 1001, 5, 1002), func(spec *specs.Spec) {
			umask := uint32(0o027)
			spec.Process.User.Umask = &umask
		})
		equal(t, "ids, umask and a file", strings.Join(strings.Fields(got), " "), "1000 1001 1001 5 1002 0027 640 1000:1001")
		equal(t, "umask by default", l.output("umask"), "0022")
		equal(t, "groups of root", l.output("grep Groups /proc/self/status"), "Groups:\t ")
	})
}

// TestCallersUmask: what is made for a container, and its program, have the modes
// that they are meant to have, whoever calls.
func TestCallersUmask(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)) // runc lets exec and directories have it
	private := func(in invocation) result {
		cmd, r, logFile := l.command(in)
		inShell(cmd, `umask 077; exec "$@"`)
		if err := suite.reaper.start(cmd); err != nil {
			t.Fatal(err)
		}
		return l.finish(cmd, r, logFile)
	}
	id := l.newID()
	b := l.bundle(id, sh("umask; stat -c %a .; grep -c nameserver /etc/resolv.conf"), asUser(1000, 1000), domains("allowed.test"),
		func(spec *specs.Spec) { spec.Process.Cwd = "/made" })
	r := private(invocation{args: []string{"run", "--bundle", b.dir, id}})
	equal(t, "in a container with a list ("+r.stderr+")", r.stdout, "0022\n755\n1\n")
	c := l.sleeper()
	r = private(invocation{args: []string{"exec", c.id, "sh", "-c", "umask"}})
	equal(t, "exec ("+r.stderr+")", r.stdout, "0022\n")
}

func TestWorkingDirectory(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		at := func(path string) edit { return func(spec *specs.Spec) { spec.Process.Cwd = path } }
		equal(t, "existing", l.output("pwd", at("/usr/bin")), "/usr/bin")
		equal(t, "missing, which is made", l.output("pwd; stat -c %a .", at("/a/b")), "/a/b\n755")
		equal(t, "in a mount", l.output("pwd", at("/vol/sub"), addMounts(specs.Mount{Destination: "/vol", Type: "tmpfs", Source: "tmpfs"})), "/vol/sub")
	})
}

// TestWorkingDirectoryLeak is CVE-2024-21626: a descriptor of the host as
// the working directory.
func TestWorkingDirectoryLeak(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		for _, cwd := range []string{"/proc/self/fd/3", "/proc/self/fd/6", "/proc/self/fd/7", "/proc/self/fd/8", "/proc/self/fd/9"} {
			r := l.run(sh("cat ../../../../../../../etc/hostname /etc/hostname; ls ../../../.."), func(spec *specs.Spec) { spec.Process.Cwd = cwd })
			if r.code == 0 || strings.Contains(r.stdout, "sys") {
				t.Errorf("cwd %s: exit %d, stdout %q", cwd, r.code, r.stdout)
			}
		}
	})
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		env := func(env ...string) edit { return func(spec *specs.Spec) { spec.Process.Env = env } }
		path := "PATH=/bin"
		got := strings.Split(l.output("cat /proc/1/environ | tr '\\0' '\\n'", env(path, "A=b c", "EMPTY=", "UTF=ü", "TERM=xterm")), "\n")
		for _, want := range []string{path, "A=b c", "EMPTY=", "UTF=ü", "TERM=xterm", "HOME=/root"} {
			if !slices.Contains(got, want) {
				t.Errorf("environment %q lacks %q", got, want)
			}
		}
		for _, line := range got {
			if name, _, _ := strings.Cut(line, "="); !slices.Contains([]string{"PATH", "A", "EMPTY", "UTF", "TERM", "HOME"}, name) {
				t.Errorf("environment has %q, which config.json lacks", line)
			}
		}
		equal(t, "HOME of a user in /etc/passwd", l.output("echo $HOME", env(path), asUser(1000, 1000)), "/home/tester")
		equal(t, "HOME of a user in no file", l.output("echo $HOME", env(path), asUser(4242, 4242)), "/")
		equal(t, "HOME of config.json", l.output("echo $HOME", env(path, "HOME=/x"), asUser(1000, 1000)), "/x")
		equal(t, "lookup by the container's PATH", l.output("tool", env("PATH=/opt:/bin"), args("sh", "-c", "echo found")), "found")
	})
}

func TestRlimits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		limit := func(kind string, soft, hard uint64) specs.POSIXRlimit {
			return specs.POSIXRlimit{Type: kind, Soft: soft, Hard: hard}
		}
		got := l.output("cat /proc/self/limits", func(spec *specs.Spec) {
			spec.Process.Rlimits = []specs.POSIXRlimit{
				limit("RLIMIT_NOFILE", 100, 200), limit("RLIMIT_CORE", 0, 0), limit("RLIMIT_NPROC", 300, 400), limit("RLIMIT_STACK", 1<<20, 8<<20),
				limit("RLIMIT_AS", 1<<28, 1<<29), limit("RLIMIT_CPU", 600, 700), limit("RLIMIT_FSIZE", 1<<20, 1<<21),
			}
		})
		for _, want := range []string{
			"Max open files 100 200 files", "Max core file size 0 0 bytes", "Max processes 300 400 processes", "Max stack size 1048576 8388608 bytes",
			"Max address space 268435456 536870912 bytes", "Max cpu time 600 700 seconds", "Max file size 1048576 2097152 bytes",
		} {
			if !slices.ContainsFunc(strings.Split(got, "\n"), func(line string) bool { return strings.Join(strings.Fields(line), " ") == want }) {
				t.Errorf("limits %q lack %q", got, want)
			}
		}
	})
}

// capabilityMasks are CapInh, CapPrm, CapEff, CapBnd and CapAmb.
const capabilityMasks = "grep '^Cap' /proc/self/status | cut -f2 | tr '\\n' ' '"

func TestCapabilities(t *testing.T) {
	t.Parallel()
	const (
		chown, kill, setuid, netBind = 1 << 0, 1 << 5, 1 << 7, 1 << 10
	)
	sets := func(inheritable, permitted, effective, bounding, ambient []string) edit {
		return func(spec *specs.Spec) {
			spec.Process.Capabilities = &specs.LinuxCapabilities{Inheritable: inheritable, Permitted: permitted, Effective: effective, Bounding: bounding, Ambient: ambient}
		}
	}
	list := func(names ...string) []string { return names }
	tests := []struct {
		name string
		edit edit
		want string
	}{
		// exec of a program without file capabilities: root gets inheritable and
		// bounding, anyone else ambient.
		{"root", sets(nil, list("CAP_CHOWN", "CAP_KILL"), list("CAP_CHOWN", "CAP_KILL"), list("CAP_CHOWN", "CAP_KILL"), nil), masks(0, chown|kill, chown|kill, chown|kill, 0)},
		{"none", sets(nil, nil, nil, nil, nil), masks(0, 0, 0, 0, 0)},
		{"no capabilities object", func(spec *specs.Spec) { spec.Process.Capabilities = nil }, masks(0, 0, 0, 0, 0)},
		{"user with bounding only", both(asUser(1000, 1000), sets(nil, nil, nil, list("CAP_SETUID"), nil)), masks(0, 0, 0, setuid, 0)},
		{"user with ambient", both(asUser(1000, 1000), sets(list("CAP_NET_BIND_SERVICE"), list("CAP_NET_BIND_SERVICE"), list("CAP_NET_BIND_SERVICE"), list("CAP_NET_BIND_SERVICE", "CAP_CHOWN"), list("CAP_NET_BIND_SERVICE"))),
			masks(netBind, netBind, netBind, netBind|chown, netBind)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				equal(t, "inheritable, permitted, effective, bounding, ambient", l.output(capabilityMasks, tt.edit), tt.want)
			})
		})
	}
	t.Run("unknown name", func(t *testing.T) {
		each(t, func(t *testing.T, l *lab) {
			r := l.run(sh(capabilityMasks), sets(nil, list("CAP_CHOWN", "CAP_NOSUCH"), list("CAP_CHOWN", "CAP_NOSUCH"), list("CAP_CHOWN", "CAP_NOSUCH"), nil))
			if r.code == 0 { // a warning or an error; never more than was asked for
				equal(t, "sets", strings.TrimRight(r.stdout, "\n"), masks(0, chown, chown, chown, 0))
			}
		})
	})
}

func masks(values ...uint64) string {
	var text strings.Builder
	for _, value := range values {
		text.WriteString(hex16(value) + " ")
	}
	return text.String()
}

func hex16(value uint64) string {
	const digits = "0123456789abcdef"
	out := make([]byte, 16)
	for i := range out {
		out[15-i] = digits[value>>(4*i)&15]
	}
	return string(out)
}

func TestNoNewPrivileges(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		for want, on := range map[string]bool{"0": false, "1": true} {
			got := l.output("grep NoNewPrivs /proc/self/status | cut -f2", func(spec *specs.Spec) { spec.Process.NoNewPrivileges = on })
			equal(t, "NoNewPrivs", got, want)
		}
	})
}

func TestOOMScoreAdj(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		for _, value := range []int{123, 1000} {
			got := l.output("cat /proc/self/oom_score_adj", func(spec *specs.Spec) { spec.Process.OOMScoreAdj = &value })
			equal(t, "oom_score_adj", got, map[int]string{123: "123", 1000: "1000"}[value])
		}
	})
}

// TestMaskedPaths masks a file and a directory, and skips what is missing.
func TestMaskedPaths(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		masked := func(spec *specs.Spec) {
			spec.Linux.MaskedPaths = []string{"/etc/passwd", "/usr", "/proc/timer_list", "/nosuchpath", "/proc/acpi"}
		}
		got := l.output("cat /etc/passwd; cat /proc/timer_list; ls /usr; touch /usr/x; echo y >>/etc/passwd; cat /etc/passwd; ls -d /nosuchpath; true", masked, quiet)
		equal(t, "what is seen", got, "")
		contains(t, "the same without", l.output("cat /etc/passwd; ls /usr"), "bin")
	})
}

func TestReadonlyPaths(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		readonly := func(spec *specs.Spec) {
			spec.Linux.ReadonlyPaths = []string{"/etc/passwd", "/usr", "/proc/sys", "/nosuchpath"}
		}
		const script = "echo x >>/etc/passwd || echo file; echo x >/usr/new || echo dir; echo 1 >/proc/sys/net/ipv4/ip_forward || echo sys; head -1 /etc/passwd; ls /usr"
		equal(t, "writes", l.output(script, readonly, quiet, addCapabilities("CAP_NET_ADMIN")), "file\ndir\nsys\nroot:x:0:0:root:/root:/bin/sh\nbin")
		writable := func(spec *specs.Spec) { spec.Linux.ReadonlyPaths = nil }
		equal(t, "the same without", l.output(script, writable, quiet, addCapabilities("CAP_NET_ADMIN")), "root:x:0:0:root:/root:/bin/sh\nbin\nnew")
	})
}

func TestPersonality(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		got := l.output("uname -m", func(spec *specs.Spec) {
			spec.Linux.Personality = &specs.LinuxPersonality{Domain: specs.PerLinux32}
		})
		equal(t, "machine", got, "i686")
	})
}
