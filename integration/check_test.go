package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// checked is one line of eggrun check --json.
type checked struct{ Group, Name, Status, Cause, Fix string }

func (c checked) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s: %s: %s; %s", c.Status, c.Group, c.Name, c.Cause, c.Fix))
}

// check calls the verb with a directory of its own for what it makes, which must
// be empty afterwards.
func (l *lab) check(in invocation) (result, []checked) {
	l.t.Helper()
	dir := l.checkDir()
	in.args = append([]string{"check", "--json"}, in.args...)
	in.env = append(in.env, "TMPDIR="+dir, "HOME="+filepath.Join(dir, "home"))
	if in.globals == nil {
		in.globals = append(l.managerFlags(), "--root", l.root)
	}
	r := l.invoke(in)
	var lines []checked
	if err := json.Unmarshal([]byte(r.stdout), &lines); err != nil {
		l.t.Fatalf("check: exit %d: %v: %q, %q", r.code, err, r.stdout, r.stderr)
	}
	l.wantCheckedAway(dir)
	return r, lines
}

func (l *lab) checkDir() string {
	l.t.Helper()
	l.containers++
	dir := makeDir(l.t, filepath.Join(l.dir, fmt.Sprintf("check%d", l.containers)))
	chownTree(l.t, dir, int(l.as))
	return dir
}

// wantCheckedAway wants nothing left of a check.
func (l *lab) wantCheckedAway(dir string) {
	l.t.Helper()
	for _, pattern := range []string{filepath.Join(dir, "*"), filepath.Join(l.root, "*")} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			l.t.Errorf("left of check: %v, %v", left, err)
		}
	}
	// Other tests' come and go.
	eventually(l.t, "moment without an audit log of a check", func() bool {
		left, err := filepath.Glob("/var/log/eggrun/eggrun-check-*")
		return err == nil && len(left) == 0
	})
}

// wantChecked wants a line with the status, and words in its cause and its fix.
func wantChecked(t *testing.T, lines []checked, status, group, name, cause, fix string) {
	t.Helper()
	for _, line := range lines {
		if line.Group == group && line.Name == name {
			if line.Status != status || !strings.Contains(line.Cause, cause) || !strings.Contains(line.Fix, fix) {
				t.Errorf("check: %v: want %s, cause %q, fix %q", line, status, cause, fix)
			}
			return
		}
	}
	t.Errorf("check: no line %s: %s in %v", group, name, lines)
}

// wantNoneBad wants a machine on which all works.
func wantNoneBad(t *testing.T, r result, lines []checked) {
	t.Helper()
	for _, line := range lines {
		if line.Status == "bad" {
			t.Errorf("check: %v", line)
		}
		if (line.Fix == "") != (line.Status == "ok") {
			t.Errorf("check: %v: what is not ok has a fix, and nothing else", line)
		}
	}
	equal(t, "exit status ("+r.stderr+")", r.code, 0)
}

// wallChecks are what the container tries, and what it is told.
var wallChecks = map[string]string{
	"container": "made, run and deleted", "listed name": "reached", "other name": "not on the allowlist (not_listed)",
	"other name, plain HTTP": "not on the allowlist (not_listed)", "other port": "(port_not_listed)",
	"listed name, looked up": "reached", "other name, looked up": "no such host", "listed name, no proxy": "reached", "other port, no proxy": "(port_not_listed)",
	"other address": "refused", "other address, IPv6": "refused", "UDP": "refused",
	"abstract unix socket": "refused", "raw socket": "refused", "packet socket": "refused", "vsock": "refused", "audit": "line",
}

// TestCheck finds that all works here, as the other tests show.
func TestCheck(t *testing.T) {
	t.Parallel()
	for name, uid := range map[string]uint32{"root": 0, "plain user": withSubIDs} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, eggrunOnly(t))
			if uid != 0 {
				l = plainLab(t, l.rt, uid)
			}
			r, lines := l.check(invocation{})
			wantNoneBad(t, r, lines)
			wantChecked(t, lines, "ok", "kernel", "nftables", "", "")
			for name, cause := range wallChecks {
				wantChecked(t, lines, "ok", "wall", name, cause, "")
			}
		})
	}
}

// TestCheckTable is what people read; quick makes no container.
func TestCheckTable(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	r := l.invoke(invocation{args: []string{"check", "--quick"}, globals: append(l.managerFlags(), "--root", l.root), env: []string{"HOME=" + l.dir}})
	l.wantOK(r)
	contains(t, "table", r.stdout, "ok       kernel        version          Linux ")
	if strings.Contains(r.stdout, "wall") {
		t.Errorf("the wall was tried: %s", r.stdout)
	}
	l.wantFail(l.call("check", "now"), `check now: unexpected argument "now"`)
}

// TestCheckPolicy looks at the policy file as create does.
func TestCheckPolicy(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)

	broken := newLab(t, rt)
	broken.underPolicy("[default\n", "true")
	r, lines := broken.check(invocation{})
	equal(t, "exit status", r.code, 1)
	wantChecked(t, lines, "bad", "installation", "policy", "/etc/eggrun/policy.toml:1: ", "mend that")
	wantChecked(t, lines, "bad", "wall", "container", "/etc/eggrun/policy.toml:1: ", "")

	// A limit without our server: what is refused can be tried all the same.
	limited := newLab(t, rt)
	limited.underPolicy("[limit]\ndomains = [\"good.test\"]\n", "true")
	r, lines = limited.check(invocation{})
	wantNoneBad(t, r, lines)
	wantChecked(t, lines, "missing", "installation", "policy", "no [default]", "eggrun policy check FILE")
	wantChecked(t, lines, "missing", "wall", "listed name", "not tried", "[limit]")
	wantChecked(t, lines, "ok", "wall", "other port", "(not_listed)", "")
}

// TestCheckEngines reads what engines are told about eggrun.
func TestCheckEngines(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	bin := makeDir(t, filepath.Join(l.dir, "engines"))
	writeFile(t, filepath.Join(bin, "podman"), "#!/bin/sh\necho podman version $(cat "+bin+"/version)\n", 0o755)
	conf := filepath.Join(bin, "containers.conf")
	for _, tt := range []struct{ name, version, conf, status, cause, fix string }{
		{"configured", "5.4.2", `[engine.runtimes]` + "\n" + `eggrun = ["/nowhere/eggrun", "` + l.rt.path + `"]`, "ok", "--runtime eggrun", ""},
		{"by another name", "5.4.2", `[engine.runtimes]` + "\n" + `walled = ["` + l.rt.path + `", {append=true}]`, "ok", "--runtime walled", ""},
		{"not configured", "5.4.2", `[engine]`, "missing", "no runtime that it knows", `eggrun = ["` + l.rt.path + `"]`},
		{"nothing there", "5.4.2", `[engine.runtimes]` + "\n" + `eggrun = ["/nowhere/eggrun"]`, "bad", "/nowhere/eggrun is not there", l.rt.path},
		{"another program", "5.4.2", `[engine.runtimes]` + "\n" + `eggrun = ["/bin/true"]`, "missing", "/bin/true, which is not this program", l.rt.path},
		{"broken", "5.4.2", `[engine`, "bad", conf, "mend"},
	} {
		writeFile(t, conf, tt.conf, 0o644)
		writeFile(t, filepath.Join(bin, "version"), tt.version, 0o644)
		r, lines := l.check(invocation{args: []string{"--quick"}, env: []string{"CONTAINERS_CONF=" + conf, "PATH=" + bin + ":/usr/bin:/bin"}})
		t.Log(tt.name)
		wantChecked(t, lines, tt.status, "engines", "podman", tt.cause, tt.fix)
		// Other lines tell of the machine, where other tests run beside this one.
		if tt.status == "bad" {
			equal(t, "exit status, "+tt.name, r.code, 1)
		}
		for _, line := range lines {
			if strings.HasPrefix(line.Name, "podman 5") {
				t.Errorf("%v: but it is new", line)
			}
		}
	}
	writeFile(t, filepath.Join(bin, "version"), "4.9.3", 0o644)
	_, lines := l.check(invocation{args: []string{"--quick"}, env: []string{"CONTAINERS_CONF=/dev/null", "PATH=" + bin + ":/usr/bin:/bin"}})
	wantChecked(t, lines, "missing", "engines", "podman 4.9", "commas", "white space")
}

// TestCheckNoRuntimeDir: a user without a session has no place for the state.
func TestCheckNoRuntimeDir(t *testing.T) {
	t.Parallel()
	l := plainLab(t, eggrunOnly(t), withSubIDs)
	r, lines := l.check(invocation{globals: append([]string{"--rootless", "auto"}, l.managerFlags()...), args: []string{"--quick"}})
	equal(t, "exit status", r.code, 1)
	wantChecked(t, lines, "missing", "rootless", "XDG_RUNTIME_DIR", "not set", "/run/user/12345")
	wantChecked(t, lines, "bad", "installation", "state", "set XDG_RUNTIME_DIR", "export XDG_RUNTIME_DIR=/run/user/12345")
}

// TestCheckNoIDs: a user with one id, and one that nobody knows.
func TestCheckNoIDs(t *testing.T) {
	t.Parallel()
	l := plainLab(t, eggrunOnly(t), withoutSubIDs)
	r, lines := l.check(invocation{args: []string{"--quick"}})
	wantNoneBad(t, r, lines)
	wantChecked(t, lines, "missing", "rootless", "/etc/subuid", "no line for user eggsingle", "eggsingle:100000:65536 >>/etc/subuid")

	stranger := plainLab(t, l.rt, 54321)
	r, lines = stranger.check(invocation{args: []string{"--quick"}})
	wantNoneBad(t, r, lines)
	wantChecked(t, lines, "missing", "rootless", "user", "uid 54321", "54321:54321::")
}

// TestCheckNoNamespaces takes namespaces away as an administrator would.
func TestCheckNoNamespaces(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ sysctl, drop, name, cause, fix string }{
		{"max_user_namespaces", "setpriv --bounding-set=-all --inh-caps=-all", "user namespace", "user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=15000"},
		{"max_net_namespaces", "", "network namespace", "no space left on device", "security module"},
		{"max_net_namespaces", "", "nftables", "no space left on device", "modprobe"},
	} {
		l := newLab(t, eggrunOnly(t))
		wrapper := filepath.Join(makeDir(t, filepath.Join(l.dir, "bin")), "eggrun")
		writeFile(t, wrapper, "#!/bin/sh\nexec unshare --user --map-root-user sh -ec 'echo 0 >/proc/sys/user/"+tt.sysctl+"; exec "+tt.drop+" "+l.rt.path+" \"$@\"' sh \"$@\"\n", 0o755)
		l.rt.path = wrapper
		r, lines := l.check(invocation{})
		equal(t, "exit status without "+tt.name, r.code, 1)
		status := "bad"
		if tt.name == "nftables" {
			status = "missing"
		}
		wantChecked(t, lines, status, "kernel", tt.name, tt.cause, tt.fix)
		wantChecked(t, lines, "bad", "wall", "container", "", "")
	}
}

// TestCheckInterrupted leaves nothing either.
func TestCheckInterrupted(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	eventually(t, "check that was interrupted", func() bool {
		dir := l.checkDir()
		cmd, r, logFile := l.command(invocation{args: []string{"check"}, globals: append(l.managerFlags(), "--root", l.root), env: []string{"TMPDIR=" + dir}})
		if err := suite.reaper.start(cmd); err != nil {
			t.Fatal(err)
		}
		eventually(t, "container of the check", func() bool {
			made, err := filepath.Glob(filepath.Join(dir, "eggrun-check-*/state/*"))
			_, gone := os.Stat(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid))
			return err != nil || len(made) > 0 || gone != nil
		})
		_ = cmd.Process.Signal(unix.SIGINT) // it may have ended
		r = l.finish(cmd, r, logFile)
		l.wantCheckedAway(dir)
		return r.code == 1 && strings.Contains(r.stderr, "check: interrupted")
	})
}
