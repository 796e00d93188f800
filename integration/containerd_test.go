package integration

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestContainerd drives each runtime through a containerd of the test's own.
func TestContainerd(t *testing.T) {
	needRoot(t)
	needPrograms(t, "containerd", "ctr")
	needControllers(t, "cpu") // ctr asks for a share
	t.Parallel()
	d := newContainerd(t)
	for name, test := range map[string]func(t *testing.T, c *ctr){
		"life":   ctrLife,
		"exec":   ctrExec,
		"limits": ctrLimits,
		"policy": ctrPolicy,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, rt := range []runtimeUnderTest{suite.runtime, suite.control} {
				if rt.path == "" {
					continue
				}
				t.Run(rt.name, func(t *testing.T) {
					t.Parallel()
					test(t, &ctr{t: t, d: d, rt: rt, id: strings.ReplaceAll(name+"-"+rt.name, " ", "-")})
				})
			}
		})
	}
}

// containerd is a daemon with images and containers of its own.
type containerd struct {
	lab     *lab
	address string
	server  *server
}

// containerdImage is busybox, which sleeps: a pod's first container can be it.
const containerdImage = "localhost/busybox:test"

func newContainerd(t *testing.T) *containerd {
	t.Helper()
	l := newLab(t, suite.runtime)
	run := filepath.Join("/run", filepath.Base(l.dir))
	d := &containerd{lab: l, address: filepath.Join(run, "containerd.sock"), server: newServer(t)}
	const pods = `[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.%s]
runtime_type = "io.containerd.runc.v2"
pod_annotations = ["eggrun.*"]
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.%[1]s.options]
BinaryName = %[2]q
SystemdCgroup = %[3]t
`
	config := fmt.Sprintf(`version = 2
root = %q
state = %q
[grpc]
address = %q
[plugins."io.containerd.internal.v1.opt"]
path = %q
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %q
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = %q
conf_dir = %q
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = %q
`, filepath.Join(l.dir, "data"), run, d.address, filepath.Join(l.dir, "opt"), containerdImage, cniPlugins, cniConfigs, suite.runtime.name)
	for _, rt := range []runtimeUnderTest{suite.runtime, suite.control} {
		if rt.path != "" {
			config += fmt.Sprintf(pods, rt.name, rt.path, suite.cgroups.manager == systemd)
		}
	}
	file := filepath.Join(l.dir, "containerd.toml")
	writeFile(t, file, config, 0o600)
	l.serve(exec.Command("containerd", "--config", file), "/usr/bin")
	c := &ctr{t: t, d: d}
	eventually(t, "containerd", func() bool { return c.call("version").code == 0 })
	archive := l.imageArchive()
	for _, namespace := range []string{"default", "k8s.io"} {
		c.ok("--namespace", namespace, "images", "import", archive)
	}
	return d
}

// imageArchive packs an image, as docker save would.
func (l *lab) imageArchive() string {
	l.t.Helper()
	rootfs, layer := filepath.Join(l.dir, "rootfs"), filepath.Join(l.dir, "layer.tar")
	makeRootfs(l.t, rootfs)
	pack(l.t, rootfs, layer)
	data := readFile(l.t, layer)
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Cmd": []string{"sleep", "1000"}, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(data)))}},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	path := filepath.Join(l.dir, "image.tar")
	file := l.createFile(path)
	archive := tar.NewWriter(file)
	for _, part := range []struct{ name, text string }{
		{"layer.tar", data}, {"config.json", string(config)},
		{"manifest.json", fmt.Sprintf(`[{"Config": "config.json", "RepoTags": [%q], "Layers": ["layer.tar"]}]`, containerdImage)},
	} {
		if err := archive.WriteHeader(&tar.Header{Name: part.name, Mode: 0o644, Size: int64(len(part.text))}); err != nil {
			l.t.Fatal(err)
		}
		if _, err := io.WriteString(archive, part.text); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		l.t.Fatal(err)
	}
	return path
}

// ctr is containerd's client, for one container.
type ctr struct {
	t  *testing.T
	d  *containerd
	rt runtimeUnderTest
	id string
}

func (c *ctr) call(args ...string) result {
	c.t.Helper()
	cmd := exec.Command("ctr", append([]string{"--address", c.d.address}, args...)...)
	cmd.Dir = c.d.lab.dir
	return callProgram(c.t, cmd)
}

func (c *ctr) ok(args ...string) string {
	c.t.Helper()
	return c.call(args...).must(c.t)
}

// run calls ctr run; options end with the command, after "--".
func (c *ctr) run(options ...string) result {
	c.t.Helper()
	args := []string{"run", "--runtime", "io.containerd.runc.v2", "--runc-binary", c.rt.path, "--cgroup", suite.cgroups.cgroupsPath(filepath.Base(c.d.lab.dir), c.id)}
	if suite.cgroups.manager == systemd {
		args = append(args, "--runc-systemd-cgroup")
	}
	for i, option := range options {
		if option == "--" {
			args = append(append(args, options[:i]...), containerdImage, c.id)
			return c.call(append(args, options[i+1:]...)...)
		}
	}
	return c.call(append(append(args, options...), containerdImage, c.id)...)
}

func (c *ctr) status() string {
	c.t.Helper()
	for line := range strings.Lines(c.ok("task", "ls")) {
		if fields := strings.Fields(line); fields[0] == c.id {
			return fields[2]
		}
	}
	return ""
}

func ctrLife(t *testing.T, c *ctr) {
	// Of run, too, ctr loses the output of a program that ends too soon.
	eventually(t, "output", func() bool { return c.run("--rm", "--", "echo", "hello").must(t) == "hello" })
	equal(t, "exit status", c.run("--rm", "--", "sh", "-c", "exit 7").code, 7)
	missing := c.run("--rm", "--", "nosuchprogram")
	equal(t, "exit status of a missing program", missing.code, 1)
	contains(t, "missing program", missing.stderr, `"nosuchprogram": executable file not found in $PATH`)
	c.run("--detach", "--read-only", "--seccomp").must(t)
	equal(t, "started", c.status(), "RUNNING")
	c.ok("task", "pause", c.id)
	equal(t, "paused", c.status(), "PAUSED")
	c.ok("task", "resume", c.id)
	equal(t, "resumed", c.status(), "RUNNING")
	for _, options := range [][]string{{"-s", "KILL"}, {"-s", "KILL", "--all"}} {
		c.ok(append(append([]string{"task", "kill"}, options...), c.id)...)
		eventually(t, "end", func() bool { return c.status() == "STOPPED" })
		contains(t, "delete", c.call("task", "delete", c.id).stderr, "exit code 137")
		if len(options) == 2 {
			c.ok("task", "start", "--detach", c.id)
		}
	}
	c.ok("container", "delete", c.id)
}

func ctrExec(t *testing.T, c *ctr) {
	c.run("--detach").must(t)
	exec := func(name string, args ...string) result {
		return c.call(append([]string{"task", "exec", "--exec-id", name}, args...)...)
	}
	tries := 0
	eventually(t, "output", func() bool { // ctr loses that of a program which ends too soon, now and then
		tries++
		out := exec(fmt.Sprint("one", tries), "--user", "1000:1000", "--cwd", "/tmp", c.id, "sh", "-c", "id -u; id -g; pwd").must(t)
		return out == "1000\n1000\n/tmp"
	})
	equal(t, "exit status", exec("two", c.id, "sh", "-c", "exit 3").code, 3)
	contains(t, "missing program", exec("three", c.id, "nosuchprogram").stderr, `"nosuchprogram": executable file not found in $PATH`)
	equal(t, "processes", len(strings.Split(c.ok("task", "ps", c.id), "\n")), 2) // with the heading
	c.ok("task", "rm", "--force", c.id)
	c.ok("container", "delete", c.id)
}

// ctrLimits: containerd's shim reads the statistics by the cgroup.
func ctrLimits(t *testing.T, c *ctr) {
	needControllers(t, "memory", "cpu")
	c.run("--detach", "--memory-limit", "50000000", "--cpus", "0.5").must(t)
	metrics := c.ok("task", "metrics", c.id)
	if isCgroup2() {
		contains(t, "metrics", metrics, "memory.usage_limit")
	} else {
		contains(t, "metrics", metrics, "memory.limit_in_bytes    49999872")
	}
	c.ok("task", "rm", "--force", c.id)
	c.ok("container", "delete", c.id)
}

// ctrPolicy has the policy from an annotation, in the empty network namespace
// that ctr asks for, and behind a bridge, which it adds before start.
func ctrPolicy(t *testing.T, c *ctr) {
	if !c.rt.isEggrun() {
		equal(t, "control: proxy", c.run("--rm", "--", "sh", "-c", walled).must(t), "proxy:")
		equal(t, "control: host network", c.run("--rm", "--net-host", "--", "echo", "ran").must(t), "ran")
		return
	}
	with := append(c.d.withServer(), "--rm", "--annotation", "eggrun.domains="+c.d.server.domains())
	try := "/probe fetch " + c.d.server.url() + "; /probe fetch https://" + evilName + "/ 2>&1; true"
	out := c.run(append(with, "--", "sh", "-c", try)...).must(t)
	contains(t, "allowed name", out, "200 OK this is allowed.test")
	contains(t, "another name", out, evilName+":443 not on the allowlist")
	contains(t, "host network", c.run(append(with, "--net-host", "--", "echo", "ran")...).stderr, "cannot enforce domains: host network requested")

	t.Run("bridge", func(t *testing.T) {
		needCNI(t)
		c := &ctr{t: t, d: c.d, rt: c.rt, id: c.id + "-bridge"}
		out := c.run(append(with, "--cni", "--", "sh", "-c", "ls /sys/class/net; env | grep -ci proxy; "+try)...).must(t)
		contains(t, "interfaces and proxy variables", out, "eth0\nlo\n0\n")
		contains(t, "allowed name", out, "200 OK this is allowed.test")
		contains(t, "another name", out, "no such host")
	})
}

// withServer are the options of a container that is to reach the test's server.
func (d *containerd) withServer() []string {
	mount := func(from, to string) string { return "type=bind,src=" + from + ",dst=" + to + ",options=rbind:ro" }
	return []string{"--mount", mount(probePath(), "/probe"), "--mount", mount(d.server.caFile, "/ca.pem"), "--env", "SSL_CERT_FILE=/ca.pem"}
}

const (
	cniPlugins = "/usr/lib/cni"
	cniConfigs = "/etc/cni/net.d"
	// cniCache is where they keep what they did; nothing else can be named.
	cniCache = "/var/lib/cni"
)

// needCNI makes a network of the test's, a bridge, the only one that there is.
func needCNI(t *testing.T) {
	t.Helper()
	need(t, "CNI plugins", func() error {
		_, err := os.Stat(filepath.Join(cniPlugins, "bridge"))
		return err
	})
	if err := os.MkdirAll(cniCache, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", cniCache, "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	makeDir(t, cniConfigs)
	file := filepath.Join(cniConfigs, "10-eggrun.conflist")
	writeFile(t, file, `{"cniVersion": "0.4.0", "name": "eggrun", "plugins": [{
		"type": "bridge", "bridge": "cni-eggrun", "isGateway": true,
		"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.231.7.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}
	}]}`, 0o644)
	t.Cleanup(func() {
		_ = os.Remove(file)
		if err := unix.Unmount(cniCache, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		_ = os.Remove(cniCache) // unless the machine has used it
	})
}
