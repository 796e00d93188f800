package integration

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// quoted is what the shell passes on of a text for the probe's bytes.
func quoted(texts ...string) string {
	var words []string
	for _, text := range texts {
		q := strconv.QuoteToASCII(text)
		words = append(words, "'"+q[1:len(q)-1]+"'")
	}
	return strings.Join(words, " ")
}

// answers sends each text to the proxy, as a connection of its own, and returns
// the first lines of what comes back.
func (l *lab) answers(texts []string, edits ...edit) []string {
	l.t.Helper()
	out := l.output("/probe bytes 127.0.0.1:3128 "+quoted(texts...), append(edits, withProbe)...)
	lines := strings.Split(out, "\n")
	if len(lines) != len(texts) {
		l.t.Fatalf("%d answers to %d requests: %q", len(lines), len(texts), lines)
	}
	for i := range lines {
		line, err := strconv.Unquote(lines[i])
		if err != nil {
			l.t.Fatal(err)
		}
		lines[i] = line
	}
	return lines
}

// TestRawRequests writes targets and heads that two parsers could understand in
// two ways. None of them may get anywhere. The control is the plain one.
func TestRawRequests(t *testing.T) {
	l, c := newLab(t, eggrunOnly(t)), newCanary(t)
	evil := net.JoinHostPort(canaryIPv4, c.port)
	loopback := "127.0.0.1:" + c.port
	connect := func(target string) string { return "CONNECT " + target + " HTTP/1.1\r\n\r\n" }
	get := func(head string) string { return "GET http://" + allowedName + "/ HTTP/1.1\r\n" + head + "\r\n" }
	requests := []string{
		connect(evil), connect(allowedName + ":" + c.port + "@" + evil), connect(allowedName + ":443@" + evil), connect("user@" + evil), connect("http://" + evil), connect("//" + evil), connect("/" + evil),
		connect(evil + "/"), connect(evil + "#" + allowedName + ":443"), connect(evil + "?" + allowedName + ":443"), connect(allowedName + "%00." + evil), connect(allowedName + "\x00." + evil),
		connect("[" + allowedName + "]:443"), connect("[::ffff:" + canaryIPv4 + "]:" + c.port), connect("[::1%25lo]:" + c.port), connect("[::1]:" + c.port), connect("[64:ff9b::" + canaryIPv4 + "]:" + c.port),
		connect("127.1:" + c.port), connect("0x7f.1:" + c.port), connect("2130706433:" + c.port), connect("017700000001:" + c.port), connect("0:" + c.port), connect("0.0.0.0:" + c.port), connect("localhost:" + c.port), connect("LOCALHOST.:" + c.port),
		connect("１２７.0.0.1:" + c.port), connect("ａllowed.test:" + c.port), connect(loopback), connect(loopback + ":443"), connect(evilName + ":443"), connect(evilName + ".:443"), connect("." + allowedName + ":443"), connect(allowedName + "..:443"),
		connect("evil" + allowedName + ":443"), connect(allowedName + "." + evilName + ":443"), connect("sub." + allowedName + ":443"),
		connect(allowedName), connect(allowedName + ":"), connect(allowedName + ":0"), connect(allowedName + ":22"), connect(allowedName + ":0443"), connect(allowedName + ":+443"), connect(allowedName + ":65979"), connect(allowedName + ":-1"), connect(allowedName + ": 443"), connect(allowedName + ":443:443"),
		"CONNECT " + allowedName + ":443 HTTP/1.1\n\n", "CONNECT  " + evil + " HTTP/1.1\r\n\r\n", "CONNECT\t" + evil + " HTTP/1.1\r\n\r\n", "connect " + evil + " HTTP/1.1\r\n\r\n", "CONNECT " + evil + "\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"GET http://" + evil + "/ HTTP/1.1\r\nHost: " + allowedName + "\r\n\r\n", "GET / HTTP/1.1\r\nHost: " + allowedName + "\r\n\r\n", "GET https://" + evil + "/ HTTP/1.1\r\nHost: " + evil + "\r\n\r\n",
		"GET http://" + allowedName + "@" + evil + "/ HTTP/1.1\r\nHost: " + allowedName + "\r\n\r\n", "GET http://" + allowedName + "\\@" + evil + "/ HTTP/1.1\r\nHost: " + allowedName + "\r\n\r\n", "GET http://" + evil + "#@" + allowedName + "/ HTTP/1.1\r\nHost: " + allowedName + "\r\n\r\n",
		get("Host: " + evil + "\r\n"), get("Host: " + allowedName + "\r\nHost: " + evil + "\r\n"), get("Host: " + allowedName + "\r\n " + evil + "\r\n"), get("Host : " + allowedName + "\r\n"), get("Host: " + allowedName + "\x00\r\n"), get("Host: " + allowedName + "\xff\r\n"), get("Host: " + allowedName + ",\r\n"),
		get("Host: " + allowedName + "\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n"), get("Host: " + allowedName + "\r\nContent-Length: 4\r\nContent-Length: 5\r\n"), get("Host: " + allowedName + "\r\nTransfer-Encoding: xchunked\r\n"), get("Host: " + allowedName + "\r\nTransfer-Encoding: chunked, identity\r\n"),
		"\x05\x01\x00\x05\x01\x00\x03\x09127.0.0.1" + port16(c.port), "\x05\x01\x00\x05\x01\x00\x01\xc0\x00\x02\x01" + port16(c.port), "\x05\x01\x00\x05\x01\x00\x03\x0fallowed.test\x00.x\x01\xbb", "\x05\x01\x00\x05\x03\x00\x01\xc0\x00\x02\x01\x00\x35", "\x04\x01\x00\x35\xc0\x00\x02\x01\x00",
	}
	list := domains(allowedName)
	for i, answer := range l.answers(requests, list) {
		isRefused := strings.HasPrefix(answer, "HTTP/1.1 4") || strings.HasPrefix(answer, "HTTP/1.1 5")
		isSOCKS := strings.HasPrefix(answer, "\x05") && !strings.HasPrefix(answer, "\x05\x00\x05\x00")
		if !isRefused && !isSOCKS && answer != "" {
			t.Errorf("%q: %q, want a refusal", requests[i], answer)
		}
	}
	equal(t, "visits", c.visits.Load(), 0)
	controls := []string{connect(loopback), "GET http://" + loopback + "/ HTTP/1.1\r\nHost: " + loopback + "\r\n\r\n", "\x05\x01\x00\x05\x01\x00\x03\x09127.0.0.1" + port16(c.port)}
	for i, answer := range l.answers(controls, domains(loopback)) {
		if !strings.HasPrefix(answer, "HTTP/1.1 200") && !strings.HasPrefix(answer, "\x05\x00\x05\x00") && i != 1 {
			t.Errorf("control %q: %q", controls[i], answer)
		}
	}
	eventually(t, "visits of the control", func() bool { return c.visits.Load() >= 2 })
}

// port16 is a port in the two bytes of SOCKS5.
func port16(port string) string {
	n, _ := strconv.Atoi(port)
	return string([]byte{byte(n >> 8), byte(n)})
}

// TestSecondRequest sends a second request behind the first one, in the same
// connection, as if the proxy kept it for the same server.
func TestSecondRequest(t *testing.T) {
	l, c := newLab(t, eggrunOnly(t)), newCanary(t)
	asked := make(chan string, 16)
	port := serve(t, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked <- r.Host + r.URL.Path }), nil)
	at, evil := "127.0.0.1:"+port, "127.0.0.1:"+c.port
	second := "GET http://" + evil + "/second HTTP/1.1\r\nHost: " + evil + "\r\n\r\n"
	answers := l.answers([]string{
		"GET http://" + at + "/first HTTP/1.1\r\nHost: " + at + "\r\n\r\n" + second,
		"POST http://" + at + "/first HTTP/1.1\r\nHost: " + at + "\r\nContent-Length: 0\r\n\r\n" + second,
		"POST http://" + at + "/first HTTP/1.1\r\nHost: " + at + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second,
	}, domains(at))
	for _, answer := range answers {
		equal(t, "first", answer, "HTTP/1.1 200 OK")
		equal(t, "asked for", <-asked, at+"/first")
	}
	equal(t, "more that was asked for", len(asked), 0)
	equal(t, "visits", c.visits.Load(), 0)
}

// TestFronting goes to an allowed name, and asks there for another one, which the
// same server has: by the name of TLS on port 443, and by Host on port 80. The
// control has that check off.
func TestFronting(t *testing.T) {
	l := newLab(t, eggrunOnly(t))
	certificate, _ := newCertificate(t, evilName)
	asked := make(chan string, 16)
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Host })
	for _, port := range []string{"443", "80"} {
		listener, err := net.Listen("tcp4", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		if port == "443" {
			listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
		}
		web := &http.Server{Handler: handler, ReadHeaderTimeout: patience}
		go func() { _ = web.Serve(listener) }()
		t.Cleanup(func() { _ = web.Close() })
	}
	const rules = allowedName + " 127.0.0.1"
	for _, tt := range []struct {
		way, list string
		sni       string
		reaches   bool
	}{
		{"tls", rules, "", false}, {"tls", rules, "off", true}, {"tls", allowedName + ":443!tcp 127.0.0.1", "", true}, {"tls", rules + " other.test", "allowlisted", false}, {"tls", rules + " " + evilName, "allowlisted", true},
		{"http", rules, "", false}, {"http", allowedName + ":80!tcp 127.0.0.1", "", true},
	} {
		edits := []edit{domains(tt.list), probe("front", tt.way, "127.0.0.1:3128", allowedName, evilName)}
		if tt.sni != "" {
			edits = append(edits, annotate("eggrun.sni", tt.sni))
		}
		r := l.run(edits...)
		what := fmt.Sprintf("%s, %s, sni %q (%s)", tt.way, tt.list, tt.sni, strings.TrimSpace(r.stdout))
		equal(t, what, len(asked) > 0, tt.reaches)
		for len(asked) > 0 {
			equal(t, what+": asked for", <-asked, evilName)
		}
	}
}

// TestNothingIsAskedFor has the canary as the host's name server: names that are
// not allowed say nothing to it, by whatever way they come. The control observes
// only.
func TestNothingIsAskedFor(t *testing.T) {
	l, c := newLab(t, eggrunOnly(t)), newCanary(t)
	before := readFile(t, "/etc/resolv.conf")
	writeFile(t, "/etc/resolv.conf", "nameserver "+canaryIPv4+"\noptions timeout:1 attempts:1\n", 0o644)
	t.Cleanup(func() { writeFile(t, "/etc/resolv.conf", before, 0o644) })
	const script = `for i in 1 2; do
		/probe ask 198.18.0.1:53 1:leak$i.example.com 28:leak$i.example.com 1:leak$i.allowed.test
		/probe bytes 127.0.0.1:3128 'CONNECT leak'$i'.example.com:443 HTTP/1.1\r\n\r\n' 'GET http://leak'$i'.example.com/ HTTP/1.1\r\nHost: leak'$i'.example.com\r\n\r\n' '\x05\x01\x00\x05\x01\x00\x03\x0fleak'$i'.example.co\x01\xbb'
		done`
	l.output(script, withProbe, domains(allowedName))
	equal(t, "visits", c.visits.Load(), 0)
	l.output("/probe bytes 127.0.0.1:3128 'CONNECT leak.example.com:443 HTTP/1.1\\r\\n\\r\\n'", withProbe, domains(allowedName), annotate("eggrun.mode", "observe"))
	if c.visits.Load() == 0 {
		t.Error("control: nothing was asked for")
	}
}

// TestContainersHosts gives the container a hosts file that calls the canary by
// an allowed name: names are looked up outside.
func TestContainersHosts(t *testing.T) {
	l, c, s := newLab(t, eggrunOnly(t)), newCanary(t), newServer(t)
	hosts := filepath.Join(l.dir, "hosts")
	writeFile(t, hosts, canaryIPv4+" "+allowedName+"\n", 0o644)
	mount := addMounts(specs.Mount{Destination: "/etc/hosts", Type: "bind", Source: hosts, Options: []string{"bind", "ro"}})
	url := "http://" + allowedName + ":" + s.httpPort + "/"
	contains(t, "by the proxy", l.output("/probe fetch "+url, withProbe, mount, domains(s.domains())), "200 OK this is allowed.test")
	got := l.output("/probe fetch "+url+"; /probe dial "+allowedName+":"+c.port, withProbe, mount, noProxyEnv(), domains(s.domains()+" "+allowedName+":"+c.port))
	if strings.Contains(got, "200 OK") || strings.Contains(got, " ok") {
		t.Errorf("to the address in hosts: %q", got)
	}
	equal(t, "visits", c.visits.Load(), 0)
	contains(t, "control", l.output("/probe dial "+allowedName+":"+c.port, withProbe, mount, withoutNamespace(specs.NetworkNamespace)), "dial ok")
}

// TestStoppedSidecar: clients of a sidecar that does not run wait, and are served
// when it does. Nothing opens meanwhile.
func TestStoppedSidecar(t *testing.T) {
	l, s, canary := newLab(t, eggrunOnly(t)), newServer(t), newCanary(t)
	c := l.sleeper(withProbe, domains(s.domains()))
	sidecar := l.oneSidecar(c)
	if err := unix.Kill(sidecar.pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	script := "/probe dial " + net.JoinHostPort(canaryIPv4, canary.port) + "; /probe ask 198.18.0.1:53 1:" + allowedName + "; echo asking; /probe connect 127.0.0.1:3128 " + allowedName + ":" + s.httpsPort
	client, r, log := l.command(invocation{args: c.execArgs(nil, "sh", "-c", script)})
	if err := suite.reaper.start(client); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the client's question", func() bool { return strings.Contains(readFile(t, r.outFile), "asking\n") })
	contains(t, "directly", readFile(t, r.outFile), "dial fail")
	contains(t, "by name", readFile(t, r.outFile), "0 answers")
	if err := unix.Kill(sidecar.pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	r = l.finish(client, r, log)
	contains(t, "in the end", r.stdout, "HTTP/1.1 200 ")
	equal(t, "visits", canary.visits.Load(), 0)
}

// TestRevokedTunnel takes a name back while a tunnel to it is open.
func TestRevokedTunnel(t *testing.T) {
	l, s := newLab(t, eggrunOnly(t)), newServer(t)
	c := l.runDetached(probe("hold", "127.0.0.1:3128", allowedName+":"+s.httpsPort), domains(s.domains()))
	c.wantOutput("open\n")
	same := l.call("egress", "reload", "--annotation", "eggrun.domains="+s.domains()+" other.test", c.id)
	l.wantOK(same)
	contains(t, "after a reload that has it still", c.state().Status, "running")
	l.wantOK(l.call("egress", "reload", "--annotation", "eggrun.domains=other.test", c.id))
	c.wantOutput("ended\n")
	equal(t, "exit status", c.wait(), 0)
}

// TestFullDisk leaves no room for the audit: connections go on.
func TestFullDisk(t *testing.T) {
	l, s := newLab(t, eggrunOnly(t)), newServer(t)
	dir := makeDir(t, "/var/log/eggrun")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16k,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	c := l.sleeper(withProbe, domains(s.domains()))
	writeFile(t, filepath.Join(dir, "full"), strings.Repeat("x", 8<<10), 0o600)
	_ = os.WriteFile(filepath.Join(dir, "rest"), make([]byte, 64<<10), 0o600) // as much as fits
	got := c.execOutput("for i in 1 2 3 4 5 6 7 8; do /probe connect 127.0.0.1:3128 " + allowedName + ":" + s.httpsPort + "; done; /probe connect 127.0.0.1:3128 " + evilName + ":443 | head -n 1")
	equal(t, "tunnels", strings.Count(got, "HTTP/1.1 200 "), 8)
	contains(t, "refused", got, "HTTP/1.1 403 eggrun: "+evilName)
	// The control: nothing of it was written.
	equal(t, "audit", readIfThere(t, l.auditOf(c.id)), "")
	l.wantSilent(l.call("delete", "--force", c.id))
}

// TestHoggedSidecar takes all descriptors that a sidecar can have. Who asks for it
// from outside meanwhile waits, and it serves again when they are free.
func TestHoggedSidecar(t *testing.T) {
	rt := eggrunOnly(t)
	l, s := newLab(t, rt), newServer(t)
	const most = 64
	l.rt.path = filepath.Join(l.dir, "limited")
	writeFile(t, l.rt.path, fmt.Sprintf("#!/bin/sh\nulimit -n %d && exec %s \"$@\"\n", most, rt.path), 0o755)
	c := l.sleeper(withProbe, domains(s.domains()), func(spec *specs.Spec) { spec.Process.Rlimits = nil })
	l.rt.path = rt.path
	sidecar := l.oneSidecar(c)
	pid, out := c.execDetached(invocation{}, nil, "/probe", "hog", "127.0.0.1:3128", "100")
	eventually(t, "the last descriptor", func() bool {
		return len(descriptors(t, sidecar.pid)) >= most && strings.Contains(readFile(t, out.outFile), "holding")
	})
	show, r, log := l.command(invocation{args: []string{"egress", "show", c.id}})
	if err := suite.reaper.start(show); err != nil {
		t.Fatal(err)
	}
	eventually(t, "connection to the control socket", func() bool {
		for _, target := range descriptors(t, show.Process.Pid) {
			if strings.HasPrefix(target, "socket:") {
				return true
			}
		}
		return hasEnded(show.Process.Pid)
	})
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	suite.reaper.status(t, pid)
	r = l.finish(show, r, log)
	contains(t, "show ("+r.stderr+")", r.stdout, allowedName)
	equal(t, "sidecar", l.oneSidecar(c).pid, sidecar.pid)
	contains(t, "in the end", c.execOutput("/probe connect 127.0.0.1:3128 "+allowedName+":"+s.httpsPort), "HTTP/1.1 200 ")
}
