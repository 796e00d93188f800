package integration

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// edit changes a config.json before it is written.
type edit func(*specs.Spec)

// bundle is a bundle on disk.
type bundle struct {
	dir    string
	rootfs string
}

// config returns what the runtime's verb spec writes, with what a test needs:
// no terminal, a writable root, and a cgroup of its own below the lab's. Without
// that runc would put the container below the caller's own cgroup.
func (l *lab) config(id string, edits ...edit) *specs.Spec {
	l.t.Helper()
	standard, err := l.rt.spec()
	if err != nil {
		l.t.Fatal(err)
	}
	spec := new(specs.Spec)
	remarshal(l.t, standard, spec)
	spec.Process.Terminal = false
	spec.Root.Readonly = false
	spec.Linux.CgroupsPath = suite.cgroups.cgroupsPath(filepath.Base(l.dir), id)
	for _, change := range edits {
		change(spec)
	}
	return spec
}

func remarshal(t *testing.T, from, to any) {
	t.Helper()
	data, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// bundle writes a bundle with a busybox root file system for the container.
func (l *lab) bundle(id string, edits ...edit) bundle {
	l.t.Helper()
	b := bundle{dir: filepath.Join(l.dir, "bundle-"+id)}
	b.rootfs = filepath.Join(b.dir, "rootfs")
	if err := os.Mkdir(b.dir, 0o755); err != nil {
		l.t.Fatal(err)
	}
	makeRootfs(l.t, b.rootfs)
	b.write(l.t, l.config(id, edits...))
	return b
}

func (b bundle) write(t *testing.T, spec *specs.Spec) {
	t.Helper()
	data, err := json.MarshalIndent(spec, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(b.dir, "config.json"), string(data), 0o644)
}

// applets are the names under which busybox can be called.
var applets = sync.OnceValues(func() ([]string, error) {
	out, err := suite.reaper.output(exec.Command("/bin/busybox", "--list"))
	return strings.Fields(out), err
})

// makeRootfs fills dir with busybox (the file is shared with all others by a
// hard link) and the few files that programs look for.
func makeRootfs(t *testing.T, dir string) {
	t.Helper()
	for _, path := range []string{"bin", "dev", "etc", "home/tester", "proc", "root", "sys", "tmp", "var/tmp", "usr/bin"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "tmp"), 0o1777); err != nil {
		t.Fatal(err)
	}
	names, err := applets()
	if err != nil {
		t.Fatalf("busybox --list: %v; install busybox-static", err)
	}
	if err := os.Link(sharedBusybox(t), filepath.Join(dir, "bin/busybox")); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.Symlink("busybox", filepath.Join(dir, "bin", name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(dir, "etc/passwd"), "root:x:0:0:root:/root:/bin/sh\ntester:x:1000:1000:tester:/home/tester:/bin/sh\n", 0o644)
	writeFile(t, filepath.Join(dir, "etc/group"), "root:x:0:\ntester:x:1000:\n", 0o644)
	writeFile(t, filepath.Join(dir, "etc/resolv.conf"), "nameserver 127.0.0.1\n", 0o644)
	writeFile(t, filepath.Join(dir, "etc/hosts"), "127.0.0.1 localhost\n", 0o644)
}

// pack makes a tar archive of a directory. The program tar fails where another
// test makes a link to busybox meanwhile: to it the file has changed.
func pack(t *testing.T, dir, tarball string) {
	t.Helper()
	f, err := os.Create(tarball)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	if err := errors.Join(w.AddFS(os.DirFS(dir)), w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

var copyBusybox = sync.OnceValues(func() (string, error) {
	path := filepath.Join(suite.dir, "busybox")
	data, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, data, 0o755)
})

func sharedBusybox(t *testing.T) string {
	t.Helper()
	path, err := copyBusybox()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func writeFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func makeDir(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// sh makes the container run a busybox shell script.
func sh(script string) edit {
	return args("/bin/sh", "-c", script)
}

func args(args ...string) edit {
	return func(spec *specs.Spec) { spec.Process.Args = args }
}

func addMounts(mounts ...specs.Mount) edit {
	return func(spec *specs.Spec) { spec.Mounts = append(spec.Mounts, mounts...) }
}

func addEnv(env ...string) edit {
	return func(spec *specs.Spec) { spec.Process.Env = append(spec.Process.Env, env...) }
}

// withoutNamespace leaves out a namespace: the container shares the caller's.
func withoutNamespace(kind specs.LinuxNamespaceType) edit {
	return func(spec *specs.Spec) {
		kept := spec.Linux.Namespaces[:0]
		for _, namespace := range spec.Linux.Namespaces {
			if namespace.Type != kind {
				kept = append(kept, namespace)
			}
		}
		spec.Linux.Namespaces = kept
	}
}

// withNamespace asks for a namespace: a new one, or the one at path.
func withNamespace(kind specs.LinuxNamespaceType, path string) edit {
	return func(spec *specs.Spec) {
		withoutNamespace(kind)(spec)
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: kind, Path: path})
	}
}

func annotate(key, value string) edit {
	return func(spec *specs.Spec) {
		if spec.Annotations == nil {
			spec.Annotations = map[string]string{}
		}
		spec.Annotations[key] = value
	}
}

func asUser(uid, gid uint32, more ...uint32) edit {
	return func(spec *specs.Spec) {
		spec.Process.User = specs.User{UID: uid, GID: gid, AdditionalGids: more}
	}
}

// addCapabilities gives root in the container more than the default.
func addCapabilities(names ...string) edit {
	return func(spec *specs.Spec) {
		sets := spec.Process.Capabilities
		for _, set := range []*[]string{&sets.Bounding, &sets.Effective, &sets.Permitted} {
			*set = append(*set, names...)
		}
	}
}

// quiet lets a script complain on standard error.
func quiet(spec *specs.Spec) {
	spec.Process.Args = []string{"/bin/sh", "-c", "exec 2>/dev/null; " + spec.Process.Args[len(spec.Process.Args)-1]}
}
