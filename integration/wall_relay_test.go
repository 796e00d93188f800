package integration

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestHelloInPieces greets an allowed server in records of one byte, of a size that
// cuts the name, with more than fits one packet, and in one write with the CONNECT:
// the server sees all of it. With another name in it, it sees nothing; the control
// has the check off.
func TestHelloInPieces(t *testing.T) {
	l := newLab(t, eggrunOnly(t))
	certificate, _ := newCertificate(t, evilName)
	greeted := make(chan string, 16)
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		greeted <- hello.ServerName
		return nil, nil
	}}
	accepting(t, "tcp4", "127.0.0.1:443", func(conn net.Conn) { _ = tls.Server(conn, config).Handshake() })
	for _, way := range []string{"pieces 1 0", "pieces 100 0", "pieces 511 0", "pieces 1000 30", "pieces 16000 30", "early 16000 0", "early 1 30"} {
		how, rest, _ := strings.Cut(way, " ")
		greet := func(name string, edits ...edit) string {
			return l.output("/probe hello "+how+" 127.0.0.1:3128 "+allowedName+" "+name+" "+rest, append(edits, withProbe, domains(allowedName+" 127.0.0.1"))...)
		}
		equal(t, way, greet(allowedName), "hello ok")
		equal(t, way+": the server is greeted", <-greeted, allowedName)
		equal(t, way+", another name", greet(evilName), "hello fail: alert 49")
		equal(t, way+": the server is greeted", len(greeted), 0)
		equal(t, way+", control", greet(evilName, annotate("eggrun.sni", "off")), "hello ok")
		equal(t, way+": the server is greeted, control", <-greeted, evilName)
	}
}

// TestHopByHop has a request and an answer with what is for the proxy alone.
func TestHopByHop(t *testing.T) {
	l := newLab(t, eggrunOnly(t))
	seen := make(chan http.Header, 1)
	port := serve(t, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen <- r.Header }), nil)
	at := "127.0.0.1:" + port
	answers := l.answers([]string{"GET http://" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\nConnection: close, X-Named\r\nX-Named: 1\r\nProxy-Authorization: Basic eA==\r\n" +
		"Proxy-Connection: keep-alive\r\nKeep-Alive: 1\r\nUpgrade: h2c\r\nTE: trailers, gzip\r\nX-Other: 1\r\nCookie: a=b\r\n\r\n"}, domains(at))
	equal(t, "answer", answers[0], "HTTP/1.1 200 OK")
	var names []string
	for name := range <-seen {
		names = append(names, name)
	}
	slices.Sort(names)
	equal(t, "headers that are left", strings.Join(names, " "), "Connection Cookie Te X-Other")
}

// TestHalfClose ends a client's direction: what comes in the other one, later, is
// whole.
func TestHalfClose(t *testing.T) {
	l := newLab(t, eggrunOnly(t))
	const size = 1 << 20
	uploads := make(chan string, 2)
	at := accepting(t, "tcp4", "127.0.0.1:0", func(conn net.Conn) {
		all, err := io.ReadAll(conn)
		uploads <- fmt.Sprint(string(all), err)
		_, _ = conn.Write(make([]byte, size))
	}).Addr().String()
	equal(t, "download", l.output("/probe half 127.0.0.1:3128 "+at, withProbe, domains(at+"!tcp")), fmt.Sprintf("%d bytes\nhalf ok", size))
	equal(t, "upload", <-uploads, "upload<nil>")
}

// TestStreamed has a server that waits in the middle of its answer until the client
// has what came before.
func TestStreamed(t *testing.T) {
	l := newLab(t, eggrunOnly(t))
	got := make(chan struct{})
	port := serve(t, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		w.(http.Flusher).Flush()
		select {
		case <-got:
			_, _ = io.WriteString(w, "second\n")
		case <-r.Context().Done():
		}
	}), nil)
	at := "127.0.0.1:" + port
	c := l.runDetached(sh("printf 'GET http://"+at+"/ HTTP/1.1\\r\\nHost: "+at+"\\r\\n\\r\\n' | nc 127.0.0.1 3128"), domains(at))
	c.wantOutput("first")
	if strings.Contains(readFile(t, c.outFile), "second") {
		t.Error("control: the second piece came before it was sent")
	}
	close(got)
	c.wantOutput("second")
	l.wantSilent(l.call("delete", "--force", c.id))
}

// TestUpstreamProxy has the administrator's file name a proxy, by which all goes:
// names are not looked up here. A container's own variables are nothing to it. The
// control has no such file.
func TestUpstreamProxy(t *testing.T) {
	l := newLab(t, eggrunOnly(t))
	heads, other := make(chan string, 4), make(chan string, 4)
	proxy := func(to chan string) string {
		return accepting(t, "tcp4", "127.0.0.1:0", func(conn net.Conn) {
			line, _ := bufio.NewReader(conn).ReadString('\n')
			to <- strings.TrimSpace(line)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		}).Addr().String()
	}
	const name = "nowhere.example.com"
	requests := []string{connectTo(name + ":8443"), "GET http://" + name + "/x HTTP/1.1\r\nHost: " + name + "\r\n\r\n", connectTo("evil.example.com:8443")}
	others := "http://" + proxy(other)
	ask := func() (codes []string) {
		for _, answer := range l.answers(requests, domains(name+":8443 "+name+":80"), addEnv("HTTPS_PROXY="+others, "HTTP_PROXY="+others, "https_proxy="+others)) {
			codes = append(codes, status(answer))
		}
		return codes
	}
	if codes := ask(); len(heads) > 0 || codes[0] == "200" || codes[1] == "200" {
		t.Errorf("control: %v", codes)
	}
	l.underPolicy("upstream-proxy = \"http://"+proxy(heads)+"\"\n[limit]\ndomains = [\""+name+":*\"]\n", "true")
	equal(t, "answers", strings.Join(ask(), " "), "200 200 403")
	equal(t, "first", <-heads, "CONNECT "+name+":8443 HTTP/1.1")
	equal(t, "second", <-heads, "GET http://"+name+"/x HTTP/1.1")
	equal(t, "more", len(heads), 0)
	equal(t, "by the container's proxy", len(other), 0)
}

// TestWhoAsked has two users ask; the audit tells them apart.
func TestWhoAsked(t *testing.T) {
	l := newLab(t, eggrunOnly(t))
	c := l.sleeper(withProbe, domains(allowedName))
	for _, user := range []string{"0", "1234"} {
		l.wantOK(l.call("exec", "--user", user, c.id, "/probe", "connect", "127.0.0.1:3128", "u"+user+".test:443"))
	}
	log := l.call("egress", "log", c.id).stdout
	for _, user := range []string{"0", "1234"} {
		contains(t, "audit", log, "deny  connect u"+user+".test:443 uid "+user+": not_listed")
	}
	l.wantSilent(l.call("delete", "--force", c.id))
}
