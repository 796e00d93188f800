package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// recorder is a hook that appends its name, its mount namespace, working
// directory and environment to a log, and keeps the state that it is given.
func (l *lab) recorder(name string) specs.Hook {
	log := filepath.Join(l.dir, "hooks")
	script := "exec 2>&1; cat >" + log + "." + name + ".state; echo " + name + " $(readlink /proc/self/ns/mnt) $MARK $(pwd) >>" + log
	return specs.Hook{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin", "MARK=mark-" + name}}
}

// TestHooks runs all six kinds and checks order, place, state and
// environment.
func TestHooks(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		log := filepath.Join(l.dir, "hooks")
		c := l.create(sh("exec sleep 1000"), func(spec *specs.Spec) {
			// startContainer runs in the container; the volume lets it write to the log.
			spec.Mounts = append(spec.Mounts, specs.Mount{Destination: l.dir, Type: "bind", Source: l.dir, Options: []string{"rbind"}})
			spec.Hooks = &specs.Hooks{
				Prestart:        []specs.Hook{l.recorder("prestart"), l.recorder("prestart2")}, //nolint:staticcheck // docker still uses it
				CreateRuntime:   []specs.Hook{l.recorder("createRuntime")},
				CreateContainer: []specs.Hook{l.recorder("createContainer")},
				StartContainer:  []specs.Hook{l.recorder("startContainer")},
				Poststart:       []specs.Hook{l.recorder("poststart")},
				Poststop:        []specs.Hook{l.recorder("poststop")},
			}
		}, annotate("com.example.key", "a value"))
		// runc runs poststart in create until 1.6.
		equal(t, "hooks of create", hookNames(hookLines(t, log)), l.rt.pick("prestart prestart2 createRuntime createContainer", "prestart prestart2 createRuntime createContainer poststart"))
		c.start()
		eventually(t, "hooks of start", func() bool { return len(hookLines(t, log)) == 6 })
		for _, name := range []string{"startContainer", "poststart"} {
			contains(t, "hooks after start", hookNames(hookLines(t, log)), name)
		}
		hostNS, containerNS := procLink(t, os.Getpid(), "ns/mnt"), procLink(t, c.pid, "ns/mnt")
		c.kill("KILL")
		c.wait()
		c.delete()
		lines := hookLines(t, log)
		equal(t, "hooks in all", len(lines), 7)
		for _, line := range lines {
			fields := strings.Fields(line)
			want := hostNS
			if fields[0] == "createContainer" || fields[0] == "startContainer" {
				want = containerNS
			}
			equal(t, "mount namespace of "+fields[0], fields[1], want)
			equal(t, "environment of "+fields[0], fields[2], "mark-"+fields[0])
			if strings.HasPrefix(fields[0], "prestart") || fields[0] == "createRuntime" {
				equal(t, "working directory of "+fields[0], fields[3], c.bundle.dir)
			}
			checkHookState(t, c, fields[0], readFile(t, log+"."+fields[0]+".state"))
		}
	})
}

func hookLines(t *testing.T, log string) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(readIfThere(t, log)), "\n")
}

func hookNames(lines []string) string {
	var names []string
	for _, line := range lines {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func checkHookState(t *testing.T, c *container, hook, text string) {
	t.Helper()
	var s state
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Errorf("state for %s: %v in %q", hook, err, text)
		return
	}
	equal(t, "id for "+hook, s.ID, c.id)
	equal(t, "bundle for "+hook, s.Bundle, c.bundle.dir)
	equal(t, "annotation for "+hook, s.Annotations["com.example.key"], "a value")
	if s.OCIVersion == "" {
		t.Errorf("ociVersion for %s is empty", hook)
	}
	switch hook {
	case "poststop":
		equal(t, "status for "+hook, s.Status, "stopped")
	case "startContainer":
		equal(t, "pid for "+hook, s.PID, 1)
	case "createContainer": // runc counts as the container does
		if s.PID != 1 && s.PID != c.pid {
			t.Errorf("pid for %s: %d, want 1 or %d", hook, s.PID, c.pid)
		}
	default:
		equal(t, "pid for "+hook, s.PID, c.pid)
	}
	if c.rt.isEggrun() { // runc says creating for some and created for others
		want := map[string]string{"createRuntime": "creating", "createContainer": "creating", "startContainer": "created", "poststart": "running"}[hook]
		if want != "" && s.Status != want {
			t.Errorf("status for %s: %s, want %s", hook, s.Status, want)
		}
	}
}

// TestHookFails checks what a failing hook of each kind undoes.
func TestHookFails(t *testing.T) {
	t.Parallel()
	failing := []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "echo why >&2; exit 12"}}}
	for kind, set := range map[string]func(*specs.Hooks){
		"prestart":        func(hooks *specs.Hooks) { hooks.Prestart = failing }, //nolint:staticcheck // docker still uses it
		"createRuntime":   func(hooks *specs.Hooks) { hooks.CreateRuntime = failing },
		"createContainer": func(hooks *specs.Hooks) { hooks.CreateContainer = failing },
	} {
		t.Run(kind, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				id := l.newID()
				b := l.bundle(id, sh("exit 0"), withHooks(set))
				r := l.call("create", "--bundle", b.dir, id)
				l.wantFail(r, "hook", "exit status 12")
				l.wantGone(id)
			})
		})
	}
	t.Run("startContainer", func(t *testing.T) {
		each(t, func(t *testing.T, l *lab) {
			c := l.create(sh("echo ran; exec sleep 1000"), withHooks(func(hooks *specs.Hooks) { hooks.StartContainer = failing }))
			_ = l.call("start", c.id) // the failure is init's; start may have gone before
			if code := c.wait(); code == 0 {
				t.Error("init ended with 0")
			}
			equal(t, "output", c.stdout(), "")
			c.wantStatus("stopped")
			c.delete()
		})
	})
	t.Run("poststart", func(t *testing.T) {
		each(t, func(t *testing.T, l *lab) {
			c := l.create(sh("exec sleep 1000"), withHooks(func(hooks *specs.Hooks) { hooks.Poststart = failing }))
			r := l.call("start", c.id)
			l.wantFail(r, "exit status 12")
			c.wait()
			c.wantStatus("stopped")
			c.delete()
		})
	})
	t.Run("poststop", func(t *testing.T) {
		each(t, func(t *testing.T, l *lab) {
			c := l.runDetached(sh("exit 0"), withHooks(func(hooks *specs.Hooks) { hooks.Poststop = failing }))
			c.wait()
			r := l.call("delete", c.id)
			equal(t, "exit status of delete ("+r.stderr+")", r.code, 0)
			l.wantGone(c.id)
		})
	})
}

func withHooks(set func(*specs.Hooks)) edit {
	return func(spec *specs.Spec) {
		spec.Hooks = &specs.Hooks{}
		set(spec.Hooks)
	}
}

func TestHookTimeout(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		id := l.newID()
		second := 1
		b := l.bundle(id, sh("exit 0"), withHooks(func(hooks *specs.Hooks) {
			hooks.CreateRuntime = []specs.Hook{{Path: "/bin/sleep", Args: []string{"sleep", "1000"}, Timeout: &second}}
		}))
		l.wantFail(l.call("create", "--bundle", b.dir, id), "hook")
		l.wantGone(id)
	})
}

// TestHookIgnoresStdin does not read the state, which must not kill the
// runtime by SIGPIPE.
func TestHookIgnoresStdin(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		closed := []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "exec <&-; exit 0"}}}
		long := strings.Repeat("x", 1<<17) // more than a pipe holds
		r := l.run(sh("echo ok"), annotate("com.example.long", long), withHooks(func(hooks *specs.Hooks) {
			hooks.CreateRuntime, hooks.Poststart, hooks.Poststop = closed, closed, closed
		}))
		equal(t, "output ("+r.stderr+")", r.stdout, "ok\n")
		equal(t, "exit status", r.code, 0)
	})
}

// TestHookEnvironment: a hook without env gets none of the caller's secrets.
func TestHookEnvironment(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		out := filepath.Join(l.dir, "env")
		r := l.runWith(invocation{env: []string{"SECRET=secret"}}, sh("exit 0"), withHooks(func(hooks *specs.Hooks) {
			hooks.CreateRuntime = []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "/usr/bin/tr '\\0' '\\n' </proc/self/environ >" + out}, Env: []string{"A=b"}}}
		}))
		equal(t, "exit status ("+r.stderr+")", r.code, 0)
		contains(t, "environment", readFile(t, out), "A=b\n")
		if text := readFile(t, out); strings.Contains(text, "SECRET") {
			t.Errorf("environment of a hook: %q", text)
		}
	})
}

// TestPrestartMayAddInterfaces is Docker before 2024: a prestart hook moves
// an interface into the new network namespace.
func TestPrestartMayAddInterfaces(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		const script = `pid=$(sed 's/.*"pid": *\([0-9]*\).*/\1/'); nsenter -t $pid -n ip link add eggtest1 type bridge`
		got := l.output("ls /sys/class/net", withHooks(func(hooks *specs.Hooks) {
			hooks.Prestart = []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}} //nolint:staticcheck // docker still uses it
		}))
		contains(t, "interfaces", got, "eggtest1")
	})
}

// TestHooksAddFiles has hooks mount files into the container as those for GPUs
// do: createRuntime enters the container's mount namespace, where it finds the
// root file system by the host's path, and createContainer starts in it.
func TestHooksAddFiles(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		id := l.newID()
		b := l.bundle(id, sh("cat /etc/one /etc/two"))
		for _, name := range []string{"one", "two"} {
			writeFile(t, filepath.Join(l.dir, name), name+"\n", 0o644)
			writeFile(t, filepath.Join(b.rootfs, "etc", name), "", 0o644)
		}
		enter := fmt.Sprintf(`pid=$(sed 's/.*"pid": *\([0-9]*\).*/\1/'); nsenter -t $pid -m mount --bind %s/one %s/etc/one`, l.dir, b.rootfs)
		hook := func(script string) []specs.Hook {
			return []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}}
		}
		b.write(t, l.config(id, sh("cat /etc/one /etc/two"), withHooks(func(hooks *specs.Hooks) {
			hooks.CreateRuntime = hook(enter)
			hooks.CreateContainer = hook("mount --bind " + l.dir + "/two etc/two")
		})))
		r := l.call("run", "--bundle", b.dir, id)
		equal(t, "output ("+r.stderr+")", r.stdout, "one\ntwo\n")
		equal(t, "file on the host", readFile(t, filepath.Join(b.rootfs, "etc/one")), "")
	})
}
