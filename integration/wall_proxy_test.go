package integration

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func itoa(n int) string { return strconv.Itoa(n) }

// withAuthority gives the container the server's certificate authority where
// Go and curl look.
func (s *server) withAuthority() edit {
	return both(
		addMounts(specs.Mount{Destination: "/ca.pem", Type: "bind", Source: s.caFile, Options: []string{"bind", "ro"}}),
		addEnv("SSL_CERT_FILE=/ca.pem", "CURL_CA_BUNDLE=/ca.pem"),
	)
}

// TestProxy goes to an allowed server by name, as programs do that obey the
// proxy variables: TLS must end at the right server.
func TestProxy(t *testing.T) {
	l, s := newLab(t, eggrunOnly(t)), newServer(t)
	fetch := func(list, url string) string {
		return l.output("/probe fetch "+url, withProbe, s.withAuthority(), domains(list))
	}
	https, plain := "https://"+allowedName+":"+s.httpsPort+"/", "http://"+allowedName+":"+s.httpPort+"/"
	equal(t, "HTTPS", fetch(s.domains(), https), "200 OK this is allowed.test, asked for allowed.test:"+s.httpsPort)
	equal(t, "HTTP", fetch(s.domains(), plain), "200 OK this is allowed.test, asked for allowed.test:"+s.httpPort)

	for what, tt := range map[string]struct{ list, url, want string }{
		"another name":          {s.domains(), "https://" + evilName + ":" + s.httpsPort + "/", evilName + ":" + s.httpsPort + " not on the allowlist"},
		"another name by HTTP":  {s.domains(), "http://" + evilName + ":" + s.httpPort + "/", evilName + ":" + s.httpPort},
		"another port":          {allowedName + ":1234 127.0.0.1:" + s.httpsPort, https, "allowlist"},
		"name below":            {"*." + allowedName + ":" + s.httpsPort, https, "not on the allowlist"},
		"empty list":            {"", https, "not on the allowlist"},
		"loopback by name only": {allowedName + ":" + s.httpsPort, https, "address"},
	} {
		got := fetch(tt.list, tt.url)
		if strings.HasPrefix(got, "200") {
			t.Errorf("%s: %s", what, got)
		}
		contains(t, what, got, tt.want)
	}
}

// TestProxyAnswers reads the bare answers to CONNECT.
func TestProxyAnswers(t *testing.T) {
	l, s := newLab(t, eggrunOnly(t)), newServer(t)
	connect := func(target string) string {
		return l.output("/probe connect 127.0.0.1:3128 "+target, withProbe, domains(s.domains()))
	}
	equal(t, "allowed", strings.Fields(connect(allowedName + ":" + s.httpsPort))[1], "200")
	equal(t, "allowed, in capitals", strings.Fields(connect("ALLOWED.Test:" + s.httpsPort))[1], "200")
	denied := strings.Split(connect(evilName+":443"), "\n")
	equal(t, "status line", denied[0], "HTTP/1.1 403 eggrun: evil.test:443 not on the allowlist")
	contains(t, "body", strings.Join(denied[1:], "\n"), "eggrun.domains")
	for _, target := range []string{"allowed.test.evil.test:" + s.httpsPort, "evil.test.:443", "127.0.0.2:" + s.httpsPort, "[::1]:" + s.httpsPort, "169.254.169.254:80", "localhost:" + s.httpsPort, canaryIPv4 + ":53", "allowed.test:22"} {
		status := strings.Fields(connect(target))[1]
		if status != "403" {
			t.Errorf("CONNECT %s: %s, want 403", target, status)
		}
	}
}

// TestProxyVariables: eggrun's replace those that came with the config, in
// both cases, and nothing else changes.
func TestProxyVariables(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	got := strings.Split(l.output("env | grep -i -e proxy -e KEPT", domains(allowedName), func(spec *specs.Spec) { spec.Hostname = "egg" },
		addEnv("HTTPS_PROXY=http://user:password@corp.example:8080", "https_proxy=http://corp.example:8080", "NO_PROXY=*", "All_Proxy=x", "KEPT=yes")), "\n")
	want := []string{
		"HTTP_PROXY=http://127.0.0.1:3128", "HTTPS_PROXY=http://127.0.0.1:3128", "ALL_PROXY=http://127.0.0.1:3128", "NO_PROXY=localhost,127.0.0.1,egg",
		"http_proxy=http://127.0.0.1:3128", "https_proxy=http://127.0.0.1:3128", "all_proxy=http://127.0.0.1:3128", "no_proxy=localhost,127.0.0.1,egg", "KEPT=yes",
	}
	for _, line := range want {
		count := 0
		for _, have := range got {
			if have == line {
				count++
			}
		}
		equal(t, "lines "+line, count, 1)
	}
	for _, line := range got {
		if strings.Contains(line, "corp.example") || strings.HasPrefix(line, "All_Proxy") {
			t.Errorf("left from the engine: %s", line)
		}
	}
}

// TestProxyIsOnLoopbackOnly: the listener is inside, and not on the host.
func TestProxyIsOnLoopbackOnly(t *testing.T) {
	l := newLab(t, eggrunOnly(t))
	c := l.runDetached(withProbe, sh("cat /proc/net/tcp /proc/net/tcp6; echo done; exec sleep 1000"), domains(allowedName))
	c.wantOutput("done\n")
	var listening []string
	for line := range strings.Lines(c.stdout()) {
		if fields := strings.Fields(line); len(fields) > 3 && fields[3] == "0A" {
			listening = append(listening, fields[1])
		}
	}
	slices.Sort(listening)
	const host4, host6 = "0100007F:", "00000000000000000000000001000000:"
	want := []string{host6 + "0C38", host6 + "0C39", host6 + "0C51", host4 + "0C38", host4 + "0C39", host4 + "0C51"} // 3128, 3129, 3153
	if !slices.Equal(listening, want) {
		t.Errorf("listening inside: %v, want %v", listening, want)
	}
	contains(t, "the host's port", l.run(probe("dial", "127.0.0.1:3128"), withoutNamespace(specs.NetworkNamespace)).stdout, "dial fail")
	l.wantSilent(l.call("delete", "--force", c.id))
}

// TestServerInside: programs of the container still reach each other.
func TestServerInside(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	got := l.output("/probe serve 127.0.0.1:8080 & while ! /probe dial 127.0.0.1:8080 | grep ok; do :; done; kill $!", withProbe, domains(allowedName))
	contains(t, "output", got, "dial ok")
}

// TestGuardFilter is on top of the profile of config.json, which allows all.
func TestGuardFilter(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	filters := func(edits ...edit) string {
		return l.output("grep ^Seccomp_filters: /proc/self/status | cut -f2", edits...)
	}
	equal(t, "without a profile", filters(domains(allowedName)), "1")
	equal(t, "with a profile", filters(domains(allowedName), profile()), "2")
	equal(t, "without a policy", filters(), "0")
}

// TestCurl is a real client with its libraries.
func TestCurl(t *testing.T) {
	rt := eggrunOnly(t)
	need(t, "curl and ldd", func() error {
		_, err := os.Stat("/usr/bin/curl")
		return err
	})
	l, s := newLab(t, rt), newServer(t)
	curl := func(url string) result {
		id := l.newID()
		b := l.bundle(id, args("/usr/bin/curl", "-sS", url), s.withAuthority(), domains(s.domains()))
		l.copyProgram("/usr/bin/curl", b.rootfs)
		return l.call("run", "--bundle", b.dir, id)
	}
	r := curl("https://" + allowedName + ":" + s.httpsPort + "/")
	equal(t, "output ("+r.stderr+")", r.stdout, "this is allowed.test, asked for allowed.test:"+s.httpsPort)
	r = curl("https://" + evilName + ":" + s.httpsPort + "/")
	equal(t, "exit status for a refused name", r.code, 56)
	contains(t, "stderr", r.stderr, "403")
}

// copyProgram copies a dynamic program of the host and its libraries.
func (l *lab) copyProgram(path, rootfs string) {
	l.t.Helper()
	files := []string{path}
	for _, word := range strings.Fields(l.helper("ldd", path)) {
		if strings.HasPrefix(word, "/") {
			files = append(files, word)
		}
	}
	for _, file := range files {
		target := filepath.Join(rootfs, file)
		makeDir(l.t, filepath.Dir(target))
		l.helper("cp", "-L", file, target)
	}
}

// auditOf returns the file of a container's audit.
func (l *lab) auditOf(id string) string {
	return fmt.Sprintf("/var/log/eggrun/%s@%.4x.jsonl", id, sha256.Sum256([]byte(l.root)))
}

// TestAuditOfTwoRoots has containers of one id below two directories.
func TestAuditOfTwoRoots(t *testing.T) {
	t.Parallel()
	l, other := newLab(t, eggrunOnly(t)), newLab(t, eggrunOnly(t))
	id := l.newID() + "-" + filepath.Base(l.dir)
	labs := map[string]*lab{"first.test": l, "second.test": other}
	for name, one := range labs {
		b := one.bundle(id, probe("connect", "127.0.0.1:3128", name+":443"), domains(allowedName))
		one.wantOK(one.call("run", "--bundle", b.dir, id))
	}
	for name, one := range labs {
		log := one.call("egress", "log", id)
		contains(t, "log ("+log.stderr+")", log.stdout, "deny  connect "+name+":443")
		equal(t, "lines", strings.Count(log.stdout, "\n"), 1)
	}
	anywhere := func() result { return l.invoke(invocation{globals: []string{}, args: []string{"egress", "log", id}}) }
	contains(t, "without --root", anywhere().stderr, "2 containers of that id have an audit; say by --root which one is meant")
	if err := os.Remove(l.auditOf(id)); err != nil {
		t.Fatal(err)
	}
	contains(t, "without --root, where there is one", anywhere().stdout, "second.test")
	contains(t, "with the --root of the other one", l.call("egress", "log", id).stderr, "no audit")
}

// TestAudit stays after delete and names what was refused.
func TestAudit(t *testing.T) {
	l, s := newLab(t, eggrunOnly(t)), newServer(t)
	id := l.newID()
	b := l.bundle(id, withProbe, sh("/probe connect 127.0.0.1:3128 "+allowedName+":"+s.httpsPort+"; /probe connect 127.0.0.1:3128 "+evilName+":443"), domains(s.domains()))
	l.wantOK(l.call("run", "--bundle", b.dir, id))
	l.wantGone(id)
	path := l.auditOf(id)
	var decisions []string
	eventuallyOr(t, func() string { return fmt.Sprintf("two decisions in the audit %q", readIfThere(t, path)) }, func() bool {
		decisions = nil
		for line := range strings.Lines(readIfThere(t, path)) {
			var entry struct{ Host, Decision, Container string }
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				return false // half a line
			}
			if entry.Decision != "" {
				decisions = append(decisions, entry.Container+" "+entry.Host+" "+entry.Decision)
			}
		}
		return len(decisions) >= 2
	})
	want := []string{id + " " + allowedName + " allow", id + " " + evilName + " deny"}
	if !slices.Equal(decisions, want) {
		t.Errorf("decisions: %q, want %q", decisions, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("audit: %v (%v), want mode 0600", info, err)
	}
}

// TestPodmanWall is the way of the README.
func TestPodmanWall(t *testing.T) {
	rt := eggrunOnly(t)
	s := newServer(t)
	store := newPodmanStore(t, nil)
	p := &podman{t: t, store: store, rt: rt, dir: t.TempDir()}
	t.Cleanup(p.close)
	run := func(options ...string) result {
		common := []string{"--rm", "-v", probePath() + ":/probe:ro", "-v", s.caFile + ":/ca.pem:ro", "-e", "SSL_CERT_FILE=/ca.pem"}
		return p.call(p.runArgs(append(common, options...)...)...)
	}
	annotation := "eggrun.domains=" + s.domains()
	r := run("--annotation", annotation, image, "/probe", "fetch", "https://"+allowedName+":"+s.httpsPort+"/")
	contains(t, "allowed ("+r.stderr+")", r.stdout, "200 OK this is allowed.test")
	r = run("--annotation", annotation, image, "/probe", "fetch", "https://"+evilName+"/")
	contains(t, "refused", r.stdout, "evil.test:443 not on the allowlist")
	r = run("--network", "host", "--annotation", annotation, image, "true")
	equal(t, "exit status with the host's network", r.code, 126)
	contains(t, "stderr with the host's network", r.stderr, "cannot enforce domains")
	r = run("--annotation", "eggrun.foo=x", image, "true")
	equal(t, "exit status with an unknown key", r.code, 126)
	contains(t, "stderr with an unknown key", r.stderr, "eggrun.foo")
}
