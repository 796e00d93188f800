package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestCreateRefuses is a table of bundles that cannot work. Each must fail at
// create, not at start, with a text by which podman picks the exit status,
// and leave nothing.
func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	notFound := []string{"executable file not found in $PATH"}
	denied := []string{"permission denied"}
	tests := []struct {
		name   string
		edit   edit
		damage func(t *testing.T, b bundle)
		want   []string
		lack   []string // podman would take these words for exit 126 or 127
	}{
		{name: "binary missing in PATH", edit: args("nosuchprogram"), want: append(notFound, "nosuchprogram")},
		{name: "binary missing by path", edit: args("/bin/nosuchprogram"), want: []string{"/bin/nosuchprogram", "no such file or directory"}},
		{name: "args with an empty name", edit: args(""), want: notFound},
		{name: "binary is a directory", edit: args("/etc"), want: append(denied, "/etc")},
		{name: "binary is not executable", edit: args("/etc/passwd"), want: append(denied, "/etc/passwd")},
		{name: "no args", edit: args(), lack: []string{"no such file", "permission denied"}},
		{name: "relative cwd", edit: func(spec *specs.Spec) { spec.Process.Cwd = "tmp" }, want: []string{"cwd"}},
		{name: "cwd is a file", edit: func(spec *specs.Spec) { spec.Process.Cwd = "/etc/passwd" }, want: []string{"/etc/passwd"}},
		{name: "config.json missing", damage: removeConfig, want: []string{"config.json"}},
		{name: "config.json broken", damage: func(t *testing.T, b bundle) { writeConfig(t, b, `{"ociVersion": "1.0.0",`) }},
		{name: "config.json empty", damage: func(t *testing.T, b bundle) { writeConfig(t, b, "") }},
		{name: "config.json of other types", damage: func(t *testing.T, b bundle) { writeConfig(t, b, `{"ociVersion": 1, "process": "x"}`) }},
		{name: "rootfs missing", edit: func(spec *specs.Spec) { spec.Root.Path = "nosuchrootfs" }, want: []string{"nosuchrootfs"}},
		{name: "bind source missing", edit: addMounts(specs.Mount{Destination: "/mnt", Type: "bind", Source: "/nosuchsource", Options: []string{"bind"}}), want: []string{"/nosuchsource", "no such file or directory"}},
		{name: "namespace twice", edit: func(spec *specs.Spec) {
			spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UTSNamespace})
		}},
		{name: "namespace path missing", edit: withNamespace(specs.UTSNamespace, "/nosuchns")},
		{name: "namespace path of another kind", edit: withNamespace(specs.UTSNamespace, "/proc/self/ns/ipc")},
		{name: "sysctl outside the namespaces", edit: sysctl("vm.swappiness", "1"), want: []string{"vm.swappiness"}},
		{name: "sysctl of the host network", edit: both(withoutNamespace(specs.NetworkNamespace), sysctl("net.ipv4.ip_forward", "1"))},
		{name: "hostname without a UTS namespace", edit: both(withoutNamespace(specs.UTSNamespace), func(spec *specs.Spec) { spec.Hostname = "x" })},
		{name: "seccomp action unknown", edit: func(spec *specs.Spec) {
			spec.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: "SCMP_ACT_NOSUCH"}
		}},
		{name: "rlimit unknown", edit: func(spec *specs.Spec) {
			spec.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOSUCH", Hard: 1, Soft: 1}}
		}, want: []string{"RLIMIT_NOSUCH"}},
		{name: "terminal without console socket", edit: func(spec *specs.Spec) { spec.Process.Terminal = true }},
		{name: "mount of an unknown type", edit: addMounts(specs.Mount{Destination: "/mnt", Type: "nosuchfs", Source: "none"})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				id := l.newID()
				edits := []edit{}
				if tt.edit != nil {
					edits = append(edits, tt.edit)
				}
				b := l.bundle(id, edits...)
				if tt.damage != nil {
					tt.damage(t, b)
				}
				pidFile := filepath.Join(l.dir, "pid")
				r := l.call("create", "--bundle", b.dir, "--pid-file", pidFile, id)
				l.wantFail(r, tt.want...)
				for _, text := range tt.lack {
					if l.rt.isEggrun() && strings.Contains(r.stderr, text) {
						t.Errorf("stderr %q holds %q, which podman would misread", r.stderr, text)
					}
				}
				if _, err := os.Stat(pidFile); err == nil {
					t.Error("a create that failed wrote a pid file")
				}
				l.wantGone(id)
				equal(t, "cgroups left", strings.Join(cgroupDirs(l.cgroup), " "), "")
			})
		})
	}
}

func both(edits ...edit) edit {
	return func(spec *specs.Spec) {
		for _, change := range edits {
			change(spec)
		}
	}
}

func sysctl(name, value string) edit {
	return func(spec *specs.Spec) { spec.Linux.Sysctl = map[string]string{name: value} }
}

func removeConfig(t *testing.T, b bundle) {
	t.Helper()
	if err := os.Remove(filepath.Join(b.dir, "config.json")); err != nil {
		t.Fatal(err)
	}
}

func writeConfig(t *testing.T, b bundle, text string) {
	t.Helper()
	writeFile(t, filepath.Join(b.dir, "config.json"), text, 0o644)
}

// TestBadIDs must never reach the file system as a name.
func TestBadIDs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		b := l.bundle("valid", sh("exit 0"))
		for _, id := range []string{"", ".", "..", "a/b", "../x", "/abs", "a b", "ümlaut", "a\nb", strings.Repeat("x", 5000)} {
			for _, verb := range [][]string{{"create", "--bundle", b.dir}, {"state"}, {"start"}, {"kill"}, {"delete"}} {
				r := l.call(append(verb, id)...)
				if r.code == 0 {
					t.Errorf("%q with id %q: exit 0", verb[0], id)
				}
			}
		}
		for _, entry := range []string{filepath.Join(l.dir, "x"), filepath.Join(l.root, "a")} {
			if _, err := os.Lstat(entry); err == nil {
				t.Errorf("%s came into being", entry)
			}
		}
		if _, err := os.Stat(b.dir); err != nil {
			t.Errorf("the bundle is gone: %v", err)
		}
	})
}

func TestGoodIDs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		b := l.bundle("good", sh("exit 0"))
		for _, id := range []string{"a", "A-b_c.d+e", "0123", "x..y", strings.Repeat("f", 64), "-dash"} {
			l.ids = append(l.ids, "--", id)
			r := l.call("run", "--bundle", b.dir, "--", id)
			equal(t, "exit status with id "+id+" ("+r.stderr+")", r.code, 0)
		}
		l.ids = nil
	})
}

func TestArgumentCount(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		for _, call := range [][]string{{"create"}, {"create", "a", "b"}, {"start"}, {"start", "a", "b"}, {"state"}, {"state", "a", "b"}, {"kill"}, {"kill", "a", "9", "c"}, {"delete"}, {"run"}} {
			r := l.call(call...)
			if r.code == 0 {
				t.Errorf("%v: exit 0", call)
			}
		}
	})
}

func TestBundleMissing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		for _, verb := range []string{"create", "run"} {
			r := l.call(verb, "--bundle", filepath.Join(l.dir, "nosuchbundle"), "c")
			l.wantFail(r, "nosuchbundle")
			l.wantGone("c")
		}
	})
}
