package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"
)

func TestList(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		if l.rt.isEggrun() { // runc since 1.2
			l.wantFail(l.call("list"), "--root", l.root)
		}
		makeDir(t, l.root)
		r := l.call("list", "--quiet")
		l.wantOK(r)
		equal(t, "list -q of nothing", r.stdout, "")
		r = l.call("list", "--format", "json")
		l.wantOK(r)
		if got := strings.TrimSpace(r.stdout); got != "null" && got != "[]" {
			t.Errorf("list --format json of nothing: %q, want null or []", got)
		}

		created := l.create(sh("exit 0"), annotate("k", "v"))
		running := l.runDetached(sh("exec sleep 1000"))
		for _, flag := range []string{"-q", "--quiet"} {
			r = l.call("list", flag)
			l.wantOK(r)
			ids := strings.Fields(r.stdout)
			slices.Sort(ids)
			equal(t, "list "+flag, strings.Join(ids, " "), created.id+" "+running.id)
		}
		var rows []state
		for _, form := range [][]string{{"--format", "json"}, {"--format=json"}, {"-f", "json"}} {
			r = l.call(append([]string{"list"}, form...)...)
			l.wantOK(r)
			if err := json.Unmarshal([]byte(r.stdout), &rows); err != nil {
				t.Fatalf("list %v: %v in %q", form, err, r.stdout)
			}
			equal(t, "rows", len(rows), 2)
			equal(t, "lines", strings.Count(r.stdout, "\n"), 1)
		}
		for _, row := range rows {
			want := map[string]string{created.id: "created", running.id: "running"}[row.ID]
			equal(t, "status of "+row.ID, row.Status, want)
			equal(t, "bundle of "+row.ID, row.Bundle, filepath.Join(l.dir, "bundle-"+row.ID))
			equal(t, "owner of "+row.ID, row.Owner, "root")
		}
		r = l.call("list")
		l.wantOK(r)
		lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
		equal(t, "head of the table", strings.Join(strings.Fields(lines[0]), " "), "ID PID STATUS BUNDLE CREATED OWNER")
		equal(t, "lines of the table", len(lines), 3)
		r = l.call("list", "--format", "nosuch")
		l.wantFail(r)

		running.kill("KILL")
		running.wait()
		running.delete()
		created.delete()
	})
}

func TestSpec(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		dir := makeDir(t, filepath.Join(l.dir, "fresh"))
		l.wantSilent(l.invoke(invocation{args: []string{"spec"}, dir: dir}))
		l.wantFail(l.invoke(invocation{args: []string{"spec"}, dir: dir}), "config.json")
		var spec specs.Spec
		if err := json.Unmarshal([]byte(readFile(t, filepath.Join(dir, "config.json"))), &spec); err != nil {
			t.Fatal(err)
		}
		equal(t, "args", strings.Join(spec.Process.Args, " "), "sh")
		equal(t, "terminal", spec.Process.Terminal, true)
		equal(t, "noNewPrivileges", spec.Process.NoNewPrivileges, true)
		equal(t, "root", spec.Root.Path, "rootfs")
		equal(t, "root.readonly", spec.Root.Readonly, true)
		for _, path := range []string{"/proc/kcore", "/proc/keys", "/sys/firmware"} {
			if !slices.Contains(spec.Linux.MaskedPaths, path) {
				t.Errorf("maskedPaths lacks %s", path)
			}
		}

		rootless := makeDir(t, filepath.Join(l.dir, "rootless"))
		l.wantSilent(l.call("spec", "--rootless", "--bundle", rootless))
		spec = specs.Spec{}
		if err := json.Unmarshal([]byte(readFile(t, filepath.Join(rootless, "config.json"))), &spec); err != nil {
			t.Fatal(err)
		}
		if len(spec.Linux.UIDMappings) != 1 || len(spec.Linux.GIDMappings) != 1 {
			t.Errorf("rootless spec has no id mappings: %+v", spec.Linux.UIDMappings)
		}
		for _, namespace := range spec.Linux.Namespaces {
			if namespace.Type == specs.NetworkNamespace {
				t.Error("rootless spec asks for a network namespace")
			}
		}
	})
}

// TestFeatures holds eggrun's answer to the schema that CRI-O, containerd and
// dockerd read.
func TestFeatures(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		r := l.invoke(invocation{args: []string{"features"}, globals: []string{}})
		l.wantOK(r)
		equal(t, "stderr", r.stderr, "")
		var f features.Features
		if err := json.Unmarshal([]byte(r.stdout), &f); err != nil {
			t.Fatalf("%v in %q", err, r.stdout)
		}
		equal(t, "ociVersionMin", f.OCIVersionMin, "1.0.0")
		if f.OCIVersionMax == "" {
			t.Error("ociVersionMax is empty")
		}
		wantAll(t, "hooks", f.Hooks, "prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
		wantAll(t, "mountOptions", f.MountOptions, "bind", "rbind", "ro", "rw", "nosuid", "nodev", "noexec", "rprivate", "rslave", "rshared", "rro")
		if f.Linux == nil || f.Linux.Cgroup == nil || f.Linux.Seccomp == nil {
			t.Fatalf("linux: %+v", f.Linux)
		}
		wantAll(t, "namespaces", f.Linux.Namespaces, "cgroup", "ipc", "mount", "network", "pid", "user", "uts")
		wantAll(t, "capabilities", f.Linux.Capabilities, "CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_CHECKPOINT_RESTORE")
		if f.Linux.Cgroup.V1 == nil || !*f.Linux.Cgroup.V1 || f.Linux.Cgroup.V2 == nil || !*f.Linux.Cgroup.V2 {
			t.Errorf("cgroup: %+v", f.Linux.Cgroup)
		}
		if f.Linux.Seccomp.Enabled == nil || !*f.Linux.Seccomp.Enabled {
			t.Error("seccomp.enabled is not true")
		}
		wantAll(t, "seccomp.actions", f.Linux.Seccomp.Actions, "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_LOG")
		wantAll(t, "seccomp.operators", f.Linux.Seccomp.Operators, "SCMP_CMP_EQ", "SCMP_CMP_MASKED_EQ")
		wantAll(t, "seccomp.archs", f.Linux.Seccomp.Archs, "SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64")
	})
}

func wantAll(t *testing.T, what string, have []string, want ...string) {
	t.Helper()
	for _, one := range want {
		if !slices.Contains(have, one) {
			t.Errorf("%s: %v lacks %s", what, have, one)
		}
	}
}

var versionText = regexp.MustCompile(`(?m)\A(\S+) version \S+\n(?:commit: \S+\n)?spec: \d+\.\d+\.\d+\S*\n`)

// TestVersion is what podman info, dockerd and containerd read.
func TestVersion(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		for _, flag := range []string{"--version", "-v"} {
			r := l.invoke(invocation{args: []string{flag}, globals: []string{}})
			l.wantOK(r)
			equal(t, "stderr", r.stderr, "")
			match := versionText.FindStringSubmatch(r.stdout)
			if match == nil || match[1] != l.rt.name {
				t.Errorf("%s: %q", flag, r.stdout)
			}
			if l.rt.isEggrun() {
				contains(t, "version", r.stdout, "\nspec: 1.3.")
			}
		}
	})
}

// TestFlagForms calls with --flag value, --flag=value and the short ones.
func TestFlagForms(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		id := l.newID()
		b := l.bundle(id, sh("exit 0"))
		pidFile := filepath.Join(l.dir, "pid")
		logFile := filepath.Join(l.dir, "log")
		for _, in := range []invocation{
			{globals: []string{"--root=" + l.root, "--log=" + logFile, "--log-format=json"}, args: []string{"create", "--bundle=" + b.dir, "--pid-file=" + pidFile, id}},
			{globals: []string{"--root", l.root, "--log", logFile, "--log-format", "text"}, args: []string{"create", "-b", b.dir, "--pid-file", pidFile, id}},
			{globals: []string{"--root", l.root}, args: []string{"create", "--no-new-keyring", "--bundle", b.dir, id}},
			{globals: []string{"--root", l.root, "--systemd-cgroup=false"}, args: []string{"create", "--bundle", b.dir, "--no-pivot=false", id}},
		} {
			l.wantSilent(l.invoke(in))
			l.wantSilent(l.call("delete", "-f", id))
		}
		for _, call := range []invocation{
			{globals: []string{}, args: []string{"--nosuchflag", "list"}},
			{globals: []string{}, args: []string{"--nosuchflag=1", "list"}},
			{args: []string{"create", "--nosuchflag", "--bundle", b.dir, "x"}},
			{args: []string{"state", "--nosuchflag", "x"}},
		} {
			r := l.invoke(call)
			if r.code == 0 || !strings.Contains(r.stderr+r.stdout, "nosuchflag") {
				t.Errorf("%v: exit %d, stderr %q; want a failure that names the flag", call.args, r.code, r.stderr)
			}
		}
		r := l.call("nosuchverb")
		if r.code == 0 {
			t.Error("unknown verb: exit 0")
		}
	})
}

// TestLog checks the log that podman reads as one JSON object.
func TestLog(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		r := l.call("state", "nosuch")
		equal(t, "records", len(r.records), 1)
		for _, one := range r.records {
			equal(t, "level", one.Level, "error")
			contains(t, "msg", one.Msg, "container does not exist")
			if when, err := time.Parse(time.RFC3339, one.Time); err != nil || time.Since(when) > patience {
				t.Errorf("time %q: %v", one.Time, err)
			}
			contains(t, "stderr", r.stderr, one.Msg)
		}
		logFile := filepath.Join(l.dir, "log")
		for range 2 {
			r = l.invoke(invocation{globals: []string{"--root", l.root, "--log", logFile, "--log-format", "json"}, args: []string{"state", "nosuch"}})
			equal(t, "exit status", r.code, 1)
		}
		equal(t, "lines after two failures", strings.Count(readFile(t, logFile), "\n"), 2)

		textLog := filepath.Join(l.dir, "textlog")
		r = l.invoke(invocation{globals: []string{"--root", l.root, "--log", textLog}, args: []string{"state", "nosuch"}})
		equal(t, "exit status", r.code, 1)
		contains(t, "text log", readFile(t, textLog), "container does not exist")

		r = l.invoke(invocation{globals: []string{"--root", l.root, "--log", textLog, "--log-format", "nosuch"}, args: []string{"list"}})
		if r.code == 0 {
			t.Error("unknown log format: exit 0")
		}
		c := l.runDetached(sh("exit 0"))
		c.wait()
		r = l.call("delete", c.id)
		equal(t, "records of a success", len(r.records), 0)
	})
}

// TestAnyName runs the binary under other names: containerd's PATH may hold
// it as runc, and symlinks select profiles.
func TestAnyName(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		for _, name := range []string{"runc", "foo", "x y"} {
			link := filepath.Join(l.dir, name)
			if err := os.Symlink(l.rt.path, link); err != nil {
				t.Fatal(err)
			}
			named := &lab{t: t, rt: l.rt, dir: l.dir, root: l.root, cgroup: l.cgroup, containers: l.containers, calls: l.calls}
			named.rt.path = link
			r := named.run(sh("echo ran"))
			l.containers, l.calls = named.containers, named.calls
			equal(t, "output as "+name+" ("+r.stderr+")", r.stdout, "ran\n")
			equal(t, "exit status as "+name, r.code, 0)
		}
	})
}
