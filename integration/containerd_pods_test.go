package integration

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestContainerdPods drives each runtime through containerd as a kubelet does.
func TestContainerdPods(t *testing.T) {
	needRoot(t)
	needPrograms(t, "containerd", "ctr", "crictl")
	needCNI(t)
	d := newContainerd(t)
	for _, rt := range []runtimeUnderTest{suite.runtime, suite.control} {
		if rt.path == "" {
			continue
		}
		t.Run(rt.name, func(t *testing.T) {
			p := &pods{t: t, d: d, rt: rt}
			t.Run("life", func(t *testing.T) { p.as(t).life() })
			t.Run("policy", func(t *testing.T) { p.as(t).policy() })
		})
	}
}

// pods is crictl.
type pods struct {
	t  *testing.T
	d  *containerd
	rt runtimeUnderTest
}

func (p *pods) as(t *testing.T) *pods { return &pods{t: t, d: p.d, rt: p.rt} }

func (p *pods) call(args ...string) result {
	p.t.Helper()
	cmd := exec.Command("crictl", append([]string{"--config", "/dev/null", "--runtime-endpoint", "unix://" + p.d.address, "--timeout", "30s"}, args...)...)
	cmd.Dir = p.d.lab.dir
	return callProgram(p.t, cmd)
}

func (p *pods) ok(args ...string) string {
	p.t.Helper()
	return p.call(args...).must(p.t)
}

// file writes a configuration for crictl.
func (p *pods) file(name string, config map[string]any) string {
	p.t.Helper()
	data, err := json.Marshal(config)
	if err != nil {
		p.t.Fatal(err)
	}
	path := filepath.Join(p.d.lab.dir, p.rt.name+"-"+name+".json")
	writeFile(p.t, path, string(data), 0o600)
	return path
}

// pod starts one and returns its id and its configuration.
func (p *pods) pod(name string, annotations map[string]string) (id, config string) {
	p.t.Helper()
	config = p.file(name, map[string]any{
		"metadata":      map[string]any{"name": name + "-" + p.rt.name, "namespace": "test", "uid": name + p.rt.name},
		"log_directory": filepath.Join(p.d.lab.dir, "logs"), "annotations": annotations,
		"linux": map[string]any{"cgroup_parent": suite.cgroups.parent(filepath.Base(p.d.lab.dir))},
	})
	id = p.ok("runp", "--runtime", p.rt.name, config)
	p.t.Cleanup(func() { p.ok("rmp", "--force", id) })
	return id, config
}

// start starts a container in a pod.
func (p *pods) start(pod, podConfig, name, script string) string {
	p.t.Helper()
	hosts := filepath.Join(p.d.lab.dir, "hosts") // without the suite's own names
	writeFile(p.t, hosts, "127.0.0.1 localhost\n", 0o644)
	mount := func(from, to string) map[string]any {
		return map[string]any{"host_path": from, "container_path": to, "readonly": true}
	}
	id := p.ok("create", pod, p.file(name, map[string]any{
		"metadata": map[string]any{"name": name}, "image": map[string]any{"image": containerdImage},
		"command": []string{"sh", "-c", script}, "log_path": name + "-" + p.rt.name + ".log",
		"envs":   []any{map[string]any{"key": "SSL_CERT_FILE", "value": "/ca.pem"}},
		"mounts": []any{mount(probePath(), "/probe"), mount(p.d.server.caFile, "/ca.pem"), mount(hosts, "/etc/hosts")},
		"linux":  map[string]any{"resources": map[string]any{"cpu_shares": 256}},
	}), podConfig)
	p.ok("start", id)
	return id
}

func (p *pods) life() {
	t := p.t
	pod, config := p.pod("life", nil)
	one := p.start(pod, config, "one", "echo started; "+serveWord("page"))
	two := p.start(pod, config, "two", "exec sleep 1000")
	eventually(t, "log", func() bool { return p.ok("logs", one) == "started" })
	eventually(t, "page in the same pod", func() bool {
		return strings.Contains(p.call("exec", "-s", two, "/probe", "fetch", "http://127.0.0.1:8080/").stdout, "200 OK page")
	})
	var status struct {
		Status struct{ Network struct{ IP string } }
	}
	if err := json.Unmarshal([]byte(p.ok("inspectp", "-o", "json", pod)), &status); err != nil {
		t.Fatal(err)
	}
	wantPage(t, status.Status.Network.IP+":8080", "page")
	contains(t, "exec", p.call("exec", two, "sh", "-c", "exit 3").stderr, "exit code 3")
	contains(t, "missing program", p.call("exec", "-s", two, "nosuchprogram").stderr, `executable file not found in $PATH`)
	contains(t, "stats", p.ok("stats", "-o", "json", two), `"memory"`)
	if controllers("cpu")() == nil {
		p.ok("update", "--cpu-share", "512", two)
	}
	p.ok("stop", "--timeout", "0", one)
	contains(t, "stopped", p.ok("inspect", "-o", "json", one), `"CONTAINER_EXITED"`)
	p.ok("rm", one)
}

// policy has the policy from the pod's annotations, which containerd hands to
// the pod and to its containers.
func (p *pods) policy() {
	t := p.t
	service, config := p.pod("service", nil)
	p.start(service, config, "server", serveWord("service"))
	var status struct {
		Status struct{ Network struct{ IP string } }
	}
	if err := json.Unmarshal([]byte(p.ok("inspectp", "-o", "json", service)), &status); err != nil {
		t.Fatal(err)
	}
	pod, config := p.pod("walled", map[string]string{"eggrun.domains": p.d.server.domains()})
	job := p.start(pod, config, "job", "exec sleep 1000")
	eventually(t, "service on the same bridge", func() bool {
		return strings.Contains(p.call("exec", "-s", job, "/probe", "fetch", "http://"+status.Status.Network.IP+":8080/").stdout, "200 OK service")
	})
	fetch := func(url string) string {
		r := p.call("exec", "-s", job, "/probe", "fetch", url)
		return r.stdout + r.stderr
	}
	gateway := "http://10.231.7.1:" + p.d.server.httpPort + "/"
	if !p.rt.isEggrun() {
		contains(t, "control: the host by its gateway", fetch(gateway), "connection refused") // it listens on lo
		return
	}
	contains(t, "the host by its gateway", fetch(gateway), "403")
	contains(t, "allowed name", fetch(p.d.server.url()), "200 OK this is allowed.test")
	contains(t, "another name", fetch("https://"+evilName+"/"), "no such host")
}
