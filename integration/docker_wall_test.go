package integration

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestDockerWall has the policy from a file, where it is not said otherwise: docker
// before 24 sends no annotations.
func TestDockerWall(t *testing.T) {
	rt := eggrunOnly(t)
	needPrograms(t, "dockerd", "containerd", "docker", "iptables")
	t.Parallel()
	d := newDocker(t)
	for name, test := range map[string]func(t *testing.T, d *docker){
		"network none":     dockerClosed,
		"service":          dockerService,
		"internal network": dockerInternal,
		"published port":   dockerPublished,
		"refused":          dockerRefused,
		"build":            dockerBuild,
		"BuildKit":         dockerBuildKit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, d.as(t, walledRuntime))
		})
	}
	t.Run("annotation", func(t *testing.T) {
		t.Parallel()
		dockerAnnotation(t, d.as(t, rt.name))
	})
	t.Run("control", func(t *testing.T) {
		t.Parallel()
		c := d.as(t, rt.name)
		equal(t, "without a policy", c.output(walled), "proxy:")
		equal(t, "--privileged", c.output("echo ran", "--privileged"), "ran")
	})
}

// withServer are the options of a container that is to reach the test's server.
func (d *docker) withServer() []string {
	return []string{"-v", probePath() + ":/probe:ro", "-v", d.server.caFile + ":/ca.pem:ro", "-e", "SSL_CERT_FILE=/ca.pem"}
}

// fetches is a script that tries the test's server and another one.
func (d *docker) fetches() string {
	return "/probe fetch " + d.server.url() + "; /probe fetch https://" + evilName + "/ 2>&1; true"
}

func dockerClosed(t *testing.T, d *docker) {
	got := d.output(d.fetches(), d.withServer()...)
	contains(t, "allowed name", got, "200 OK this is allowed.test")
	contains(t, "another name", got, evilName+":443 not on the allowlist")
}

// dockerAnnotation has the policy of the container's own, and no file.
func dockerAnnotation(t *testing.T, d *docker) {
	need(t, "docker 24, which sends annotations", func() error {
		version := d.ok("version", "--format", "{{.Server.Version}}")
		major, _, _ := strings.Cut(version, ".")
		if number, err := strconv.Atoi(major); err != nil || number < 24 {
			return fmt.Errorf("docker %s", version)
		}
		return nil
	})
	got := d.output(d.fetches(), append(d.withServer(), "--annotation", "eggrun.domains="+d.server.domains())...)
	contains(t, "allowed name", got, "200 OK this is allowed.test")
	contains(t, "another name", got, evilName+":443 not on the allowlist")
	contains(t, "without", d.output(d.fetches(), d.withServer()...), "error: Get")
}

// serveWord is a script that serves a word at port 8080.
func serveWord(word string) string {
	return "mkdir -p /www && echo " + word + " >/www/index.html && exec httpd -f -p 8080 -h /www"
}

// wantPage waits until the host gets a page.
func wantPage(t *testing.T, address, want string) {
	t.Helper()
	var last string
	eventuallyOr(t, func() string { return fmt.Sprintf("answer of %s: %s", address, last) }, func() bool {
		response, err := http.Get("http://" + address + "/")
		if err != nil {
			last = err.Error()
			return false
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		last = fmt.Sprint(string(body), err)
		return strings.Contains(last, want)
	})
}

// network makes a network, on which docker's resolver knows names.
func (d *docker) network(options ...string) string {
	d.t.Helper()
	name := d.name("net")
	d.ok(append(append([]string{"network", "create"}, options...), name)...)
	// Before the containers are removed by a cleanup that was registered earlier.
	d.t.Cleanup(func() {
		d.removeContainers()
		d.ok("network", "rm", name)
	})
	return name
}

// dockerService is a job and its service container, as CI systems run them: the
// interface and docker's resolver come after create.
func dockerService(t *testing.T, d *docker) {
	network := d.network()
	d.detach("web", "--network", network, "--network-alias", "web", dockerImage, "sh", "-c", serveWord("service"))
	job := d.detach("job", append(append([]string{"--network", network, "-e", "HTTPS_PROXY=http://engine.example:1"}, d.withServer()...), dockerImage, "tail", "-f", "/dev/null")...)
	inside := func(script string) string { return d.ok("exec", job, "sh", "-c", script) }
	eventually(t, "service by name", func() bool {
		r := d.call("exec", job, "/probe", "fetch", "http://web:8080/")
		return strings.Contains(r.stdout, "200 OK service")
	})
	got := inside(d.fetches())
	contains(t, "allowed name", got, "200 OK this is allowed.test")
	contains(t, "another name", inside("/probe fetch https://"+evilName+"/ 2>&1 || true"), "no such host")
	equal(t, "proxy variables of exec", inside("env | grep -ci proxy || true"), "0")
	equal(t, "proxy variables of the program", inside("tr '\\0' '\\n' </proc/1/environ | grep -ci proxy || true"), "0")
	gateway := d.ok("network", "inspect", "--format", "{{(index .IPAM.Config 0).Gateway}}", network)
	contains(t, "the host by its gateway", inside("/probe fetch http://"+gateway+":"+d.server.httpPort+"/"), "403")
	equal(t, "capabilities of exec --privileged", d.ok("exec", "--privileged", job, "sh", "-c", "grep CapBnd /proc/self/status | cut -f2"), hex16(clampedMask))

	d.ok("restart", "-t", "0", job)
	contains(t, "service after restart", inside("/probe fetch http://web:8080/"), "200 OK service")
	joined := d.output("/probe fetch http://127.0.0.1:8080/; "+d.fetches(), append([]string{"--network", "container:" + d.name("web")}, d.withServer()...)...)
	contains(t, "the service's own network", joined, "200 OK service")
	contains(t, "the service's own network", joined, "200 OK this is allowed.test")
}

func dockerInternal(t *testing.T, d *docker) {
	network := d.network("--internal")
	d.detach("web", "--network", network, "--network-alias", "web", dockerImage, "sh", "-c", serveWord("inner"))
	options := append([]string{"--network", network}, d.withServer()...)
	eventually(t, "service by name", func() bool {
		return strings.Contains(d.output("/probe fetch http://web:8080/; true", options...), "200 OK inner")
	})
	contains(t, "allowed name", d.output(d.fetches(), options...), "200 OK this is allowed.test")
}

// dockerRefused shows what a user of docker reads.
func dockerRefused(t *testing.T, d *docker) {
	for _, tt := range []struct {
		options []string
		want    string
	}{
		{[]string{"--privileged"}, "run without --privileged"},
		{[]string{"--network", "host"}, "host network requested"},
		{[]string{"--pid", "host"}, "--pid"},
		{[]string{"-v", d.socket + ":/docker.sock"}, "drop the volume"},
		{[]string{"-v", "/run:/host"}, "drop the volume"},
	} {
		r := d.runOnce(append(tt.options, dockerImage, "echo", "ran")...)
		equal(t, strings.Join(tt.options, " ")+", exit status", r.code, 125)
		contains(t, strings.Join(tt.options, " "), r.stderr, "cannot enforce domains: ")
		contains(t, strings.Join(tt.options, " "), r.stderr, tt.want)
	}
}

// context makes a directory to build from, whose RUN step tries its ways out.
func (d *docker) context() string {
	dir := makeDir(d.t, filepath.Join(d.lab.dir, d.name("build")))
	d.lab.helper("cp", probePath(), filepath.Join(dir, "probe"))
	d.lab.helper("cp", d.server.caFile, filepath.Join(dir, "ca.pem"))
	writeFile(d.t, filepath.Join(dir, "Dockerfile"), "FROM "+dockerImage+"\nCOPY probe ca.pem /\nENV SSL_CERT_FILE=/ca.pem\nRUN "+d.fetches()+"\nRUN echo built >/file\n", 0o644)
	return dir
}

// dockerBuild is a build whose steps are containers of the default runtime.
func dockerBuild(t *testing.T, d *docker) {
	r := d.callWith("", []string{"DOCKER_BUILDKIT=0"}, "build", "--no-cache", "-t", d.name("image"), d.context())
	out := r.must(t) + r.stderr
	contains(t, "allowed name", out, "200 OK this is allowed.test")
	contains(t, "another name", out, "no such host")
	equal(t, "image", d.runOnce(d.name("image"), "cat", "/file").must(t), "built")
}

// dockerBuildKit is one whose steps are run by whatever has the name runc.
func dockerBuildKit(t *testing.T, d *docker) {
	need(t, "a docker client that can build with BuildKit", func() error {
		if r := d.callWith("", []string{"DOCKER_BUILDKIT=1"}, "build", "--help"); r.code != 0 {
			return fmt.Errorf("%s", strings.TrimSpace(r.stderr))
		}
		return nil
	})
	r := d.callWith("", []string{"DOCKER_BUILDKIT=1"}, "build", "--no-cache", "--progress", "plain", "-t", d.name("image"), d.context())
	out := r.must(t) + r.stderr
	contains(t, "allowed name", out, "200 OK this is allowed.test")
	contains(t, "another name", out, "no such host")
	equal(t, "image", d.runOnce(d.name("image"), "cat", "/file").must(t), "built")
}
