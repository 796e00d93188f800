package integration

import (
	"path/filepath"
	"strings"
	"testing"
)

func podmanNetworkCases() []podmanCase {
	return []podmanCase{
		{name: "network none", run: func(t *testing.T, p *podman) {
			equal(t, "interfaces", p.output("ls /sys/class/net", "--network", "none"), "lo")
		}},
		{name: "network host", run: func(t *testing.T, p *podman) {
			equal(t, "interfaces", p.output("readlink /proc/self/ns/net", "--network", "host"), procLink(t, 1, "ns/net"))
		}},
		{name: "network bridge", run: podmanBridge},
		{name: "network of another", run: func(t *testing.T, p *podman) {
			first := p.detach(image, "sleep", "1000")
			want := p.ok("inspect", "--format", "{{.State.Pid}}", first)
			got := p.output("readlink /proc/self/ns/net", "--network", "container:"+first)
			equal(t, "namespace", got, procLinkText(t, want, "ns/net"))
		}},
		{name: "pod", needs: "catatonit", need: haveCatatonit, run: podmanPod},
	}
}

func procLinkText(t *testing.T, pid, name string) string {
	t.Helper()
	l := &lab{t: t}
	return strings.TrimSpace(l.helper("readlink", "/proc/"+pid+"/"+name))
}

// podmanBridge has a server and a client on podman's default network.
func podmanBridge(t *testing.T, p *podman) {
	server := p.detach("--network", "bridge", image, "sh", "-c", "echo up; while :; do echo answer | nc -l -p 7777; done")
	p.wantLog(server, "up")
	address := p.ok("inspect", "--format", "{{.NetworkSettings.IPAddress}}", server)
	eventually(t, "answer of the server", func() bool {
		r := p.run("--network", "bridge", image, "sh", "-c", "nc "+address+" 7777 </dev/null")
		return r.stdout == "answer\n"
	})
}

func podmanPod(t *testing.T, p *podman) {
	pod := p.ok("pod", "create", "--network", "none", "--infra-command", "/catatonit -P")
	t.Cleanup(func() { p.ok("pod", "rm", "-f", "-t", "0", pod) })
	first := p.ok(p.runArgs("-d", "--pod", pod, image, "sh", "-c", "echo up; exec sleep 1000")...)
	p.wantLog(first, "up")
	second := p.ok(p.runArgs("--rm", "--pod", pod, image, "sh", "-c", "cd /proc/self/ns; for n in net ipc uts; do readlink $n; done")...)
	pid := p.ok("inspect", "--format", "{{.State.Pid}}", first)
	want := []string{}
	for _, name := range []string{"net", "ipc", "uts"} {
		want = append(want, procLinkText(t, pid, "ns/"+name))
	}
	equal(t, "namespaces", second, strings.Join(want, "\n"))
}

func podmanBuildCases() []podmanCase {
	return []podmanCase{
		{name: "build", run: podmanBuild},
		{name: "failing build", run: func(t *testing.T, p *podman) {
			writeFile(t, filepath.Join(p.dir, "Containerfile"), "FROM "+image+"\nRUN exit 23\n", 0o644)
			r := p.call("build", "--runtime", p.rt.path, "--network", "none", "--pull=never", p.dir)
			if r.code == 0 || !strings.Contains(r.stderr, "23") {
				t.Errorf("exit %d, stderr %q; want the step's status 23", r.code, r.stderr)
			}
		}},
	}
}

func podmanBuild(t *testing.T, p *podman) {
	writeFile(t, filepath.Join(p.dir, "Containerfile"), `FROM `+image+`
ENV A=b
RUN echo "built $A" >/built && chmod 600 /built
RUN cat /built
USER tester
RUN id -un >/tmp/who
`, 0o644)
	tag := "localhost/built-" + strings.ToLower(filepath.Base(p.dir))
	t.Cleanup(func() { p.ok("rmi", "-f", tag) })
	out := p.ok("build", "--runtime", p.rt.path, "--network", "none", "--pull=never", "--no-cache", "-t", tag, p.dir)
	contains(t, "output of a step", out, "built b")
	r := p.call(p.runArgs("--rm", "--user", "0", tag, "sh", "-c", "cat /built /tmp/who; stat -c %a /built")...)
	equal(t, "image ("+r.stderr+")", r.stdout, "built b\ntester\n600\n")
}
