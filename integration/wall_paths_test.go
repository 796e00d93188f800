package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// pathAttack tries, as root of a container, to read a file and a directory, to
// write a third and to make a tree of its own in the place of each. Each line of
// its output is a success.
const pathAttack = `exec 2>/dev/null
	cat /etc/secret; cat /data/deep/secret; cat /alias/deep/secret; ls /data/dir; cat /alias/dir/in
	echo evil >>/data/conf && echo wrote; echo evil >>/alias/conf && echo "wrote by another name"
	rm /data/conf && echo removed; mv /data/conf /data/conf2 && echo moved
	mv /data/deep /data/deep2 && echo "moved a directory"; mv /etc /etc2 && echo "moved /etc"
	ln /data/conf /data/conf3 && echo linked; mount -t tmpfs tmpfs /data && echo mounted; umount /etc/secret && echo unmounted
	true`

// TestPolicyPaths denies paths in a container whose root may do what it likes.
func TestPolicyPaths(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	for name, edits := range map[string][]edit{
		"plain":          nil,
		"unconfined":     {unconfined},
		"user namespace": {withUserNamespace},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, rt)
			run := func(more ...edit) string {
				t.Helper()
				id := l.newID()
				volume := makeDir(t, filepath.Join(l.dir, "volume-"+id))
				makeDir(t, filepath.Join(volume, "dir"))
				makeDir(t, filepath.Join(volume, "deep"))
				for _, file := range []string{"deep/secret", "dir/in", "conf"} {
					writeFile(t, filepath.Join(volume, file), "text of "+file+"\n", 0o644)
				}
				mount := func(target string) specs.Mount {
					return specs.Mount{Destination: target, Source: volume, Options: []string{"bind"}}
				}
				b := l.bundle(id, append(append([]edit{sh(pathAttack), addMounts(mount("/data"), mount("/alias"))}, edits...), more...)...)
				writeFile(t, filepath.Join(b.rootfs, "etc/secret"), "text of secret\n", 0o644)
				if name == "user namespace" {
					chownTree(t, b.rootfs, 100000)
					chownTree(t, volume, 100000)
				}
				r := l.call("run", "--bundle", b.dir, id)
				if r.code != 0 {
					t.Fatalf("exit %d, stderr %q", r.code, r.stderr)
				}
				if strings.Contains(r.stdout, "text of") == (len(more) > 0) {
					t.Errorf("with %d annotations: %q", len(more), r.stdout)
				}
				return r.stdout
			}
			for _, success := range []string{"text of secret", "text of deep/secret", "text of dir/in", "wrote\n", "wrote by another name", "removed", "moved a directory", "moved /etc"} {
				contains(t, "control", run(), success)
			}
			denied := []edit{domains(allowedName), annotate("eggrun.deny", "/etc/secret /data/deep/secret /data/dir"), annotate("eggrun.deny-write", "/data/conf")}
			equal(t, "what succeeds", run(denied...), "")
		})
	}
}

// TestPolicyPathsMissing: what is not there could be made, unless the root is
// read-only.
func TestPolicyPathsMissing(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	for _, key := range []string{"eggrun.deny", "eggrun.deny-write"} {
		missing := both(annotate(key, "/etc/none/such"), domains(allowedName))
		id := l.newID()
		b := l.bundle(id, sh("exit 0"), missing)
		l.wantFail(l.call("create", "--bundle", b.dir, id), "cannot enforce deny", `"/etc/none/such"`, "make it first")
		l.wantGone(id)
		script := "mkdir -p /etc/none/such 2>/dev/null && echo made; echo end"
		equal(t, "control", l.output(script), "made\nend")
		readOnly := func(spec *specs.Spec) { spec.Root.Readonly = true }
		equal(t, "read-only root", l.output(script, missing, readOnly), "end")
	}
}

// TestPolicySockets names a socket in the policy.
func TestPolicySockets(t *testing.T) {
	l, c := newLab(t, eggrunOnly(t)), newCanary(t)
	dir := makeDir(t, filepath.Join(l.dir, "sockets"))
	socket := filepath.Join(dir, "s")
	c.stream(t, "unix", socket)
	for target, source := range map[string]string{"/run/service.sock": socket, "/volume": dir} {
		mount := addMounts(specs.Mount{Destination: target, Source: source, Options: []string{"bind"}})
		path := map[bool]string{true: target, false: target + "/s"}[source == socket]
		allowed := annotate("eggrun.allow-sockets", socket)
		equal(t, target, l.run(probe("dial", path), mount, domains(allowedName), allowed).stdout, "dial ok\n")
		other := annotate("eggrun.allow-sockets", socket+"2")
		contains(t, target+" with another allowed", l.run(probe("dial", path), mount, domains(allowedName), other).stderr, "cannot enforce domains")
	}
}

// TestPolicyDescriptors lets a socket of the host in where the policy says so, by
// create and exec, but no directory.
func TestPolicyDescriptors(t *testing.T) {
	l, c := newLab(t, eggrunOnly(t)), newCanary(t)
	allowed := both(annotate("eggrun.allow-fds", "on"), domains(allowedName))
	walled := l.sleeper(withProbe, allowed)
	for _, h := range l.handedIn(c)[:4] {
		command := []string{"/probe", "fd", h.way[0], "3", h.way[1]}
		want := map[bool]string{true: "fd ok", false: ""}[h.way[0] == "turn" || h.way[0] == "send" && h.way[1][0] != '@']
		if h.way[1][0] == '@' {
			continue // nobody listens
		}
		in := invocation{args: []string{"--preserve-fds", "1"}, extraFiles: []*os.File{h.file}}
		contains(t, h.name, l.runWith(in, args(command...), withProbe, allowed).stdout, want)
		in.args = walled.execArgs(in.args, command...)
		r := walled.invoke(in)
		contains(t, h.name, r.stdout, want)
		equal(t, h.name+" is allowed", r.code == 0, want != "")
	}
}
