package integration

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func podmanLockedCases() []podmanCase {
	return []podmanCase{
		{name: "locked, service container", run: podmanService},
		{name: "locked, published port", run: podmanPublished},
		{name: "locked, names of addresses", run: podmanReverse},
		{name: "locked, network of another", run: podmanJoined},
		{name: "locked, pod", needs: "catatonit", need: haveCatatonit, run: podmanLockedPod},
	}
}

// withServer are the options of a container that is to reach the test's server,
// without the suite's own /etc/hosts, which podman copies.
func (s *server) withServer() []string {
	return []string{"--no-hosts", "--annotation", "eggrun.domains=" + s.domains(), "-v", probePath() + ":/probe:ro", "-v", s.caFile + ":/ca.pem:ro", "-e", "SSL_CERT_FILE=/ca.pem"}
}

func (s *server) url() string { return "https://" + allowedName + ":" + s.httpsPort + "/" }

// network makes a network of podman's, with its resolver.
func (p *podman) network() string {
	name := "eggrun" + strings.ToLower(strings.NewReplacer("podman", "", "-", "", "eggrun", "", "runc", "").Replace(p.dir[strings.LastIndexByte(p.dir, '/')+1:]))
	p.ok("network", "create", name)
	p.t.Cleanup(func() { p.ok("network", "rm", "-f", "-t", "0", name) })
	return name
}

// podmanService is a job and its service container, as CI systems run them: the
// service by its name, allowed names through the proxy, and nothing else.
func podmanService(t *testing.T, p *podman) {
	network, s := p.network(), newServer(t)
	service := p.detach("--network", network, "--name", network+"web", image, "sh", "-c", "mkdir /www && echo service >/www/index.html && echo up && exec httpd -f -p 8080 -h /www")
	p.wantLog(service, "up")
	serviceURL := "http://" + network + "web:8080/"
	if !p.rt.isEggrun() {
		r := p.run("--network", network, "-v", probePath()+":/probe:ro", image, "/probe", "fetch", serviceURL)
		contains(t, "control: service ("+r.stderr+")", r.stdout, "200 OK service")
		return
	}
	fetch := func(url string) string {
		r := p.run(append(append([]string{"--network", network, "-e", "HTTPS_PROXY=http://engine.example:1"}, s.withServer()...), image, "/probe", "fetch", url)...)
		return r.stdout + r.stderr
	}
	contains(t, "service by name", fetch(serviceURL), "200 OK service")
	contains(t, "allowed name", fetch(s.url()), "200 OK this is allowed.test")
	contains(t, "another name", fetch("https://"+evilName+"/"), "no such host")
	gateway := p.ok("network", "inspect", "--format", "{{(index .Subnets 0).Gateway}}", network)
	contains(t, "the host by its gateway", fetch("http://"+gateway+":"+s.httpPort+"/"), "403")
}

// podmanPublished serves, with a policy, to a client on the host.
func podmanPublished(t *testing.T, p *podman) {
	network := p.network()
	server := p.detach(append([]string{"--network", network, "-p", "127.0.0.1::8080"},
		p.walled(image, "sh", "-c", "mkdir /www && echo published >/www/index.html && echo up && exec httpd -f -p 8080 -h /www")...)...)
	p.wantLog(server, "up")
	address := p.ok("port", server, "8080")
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
		return strings.Contains(last, "published")
	})
}

// podmanJoined has a container without a request in the namespace of one that
// has a policy: it gets the same.
func podmanJoined(t *testing.T, p *podman) {
	s := newServer(t)
	first := p.detach(append(append([]string{"--no-hosts", "--network", p.network()}, p.walled()...), image, "sleep", "1000")...)
	if !p.rt.isEggrun() {
		p.output("true", "--network", "container:"+first)
		return
	}
	fetch := func(url string) string {
		r := p.run("--no-hosts", "--network", "container:"+first, "-v", probePath()+":/probe:ro", image, "/probe", "fetch", url)
		return r.stdout + r.stderr
	}
	contains(t, "another name", fetch("https://"+evilName+"/"), "no such host")
	contains(t, "a port that is not allowed", fetch("https://"+allowedName+":"+s.httpsPort+"/"), "access denied")
	r := p.run("--network", "container:"+first, "--annotation", "eggrun.domains=other.test", image, "true")
	equal(t, "exit status with another policy", r.code, 126)
	contains(t, "stderr with another policy", r.stderr, "[other.test]")
}

// podmanLockedPod: the infra container has no policy, the first of the others
// brings one.
func podmanLockedPod(t *testing.T, p *podman) {
	s := newServer(t)
	pod := p.ok("pod", "create", "--no-hosts", "--network", p.network(), "--infra-command", "/catatonit -P")
	t.Cleanup(func() { p.ok("pod", "rm", "-f", "-t", "0", pod) })
	first := p.ok(p.runArgs(append(append([]string{"-d", "--pod", pod}, p.walled("-v", probePath()+":/probe:ro")...), image, "sleep", "1000")...)...)
	if !p.rt.isEggrun() {
		return
	}
	r := p.call("exec", first, "/probe", "fetch", "https://"+allowedName+":"+s.httpsPort+"/")
	contains(t, "a port that is not allowed ("+r.stderr+")", r.stdout, "access denied")
	r = p.call(p.runArgs("--rm", "--pod", pod, "-v", probePath()+":/probe:ro", image, "/probe", "fetch", "https://"+evilName+"/")...)
	contains(t, "second container ("+r.stderr+")", r.stdout, "no such host")
}
