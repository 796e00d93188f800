package integration

import (
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// program is one that people use, and what it prints.
type program struct {
	name   string
	needs  string // a path on this machine, or a pattern
	script string // what a shell runs; $NAME is the server's name
	// allowed is printed for an allowed name, in whatever way it is reached.
	allowed string
	// told is printed for another one that the proxy refuses, "" where the program
	// does not know of a proxy.
	told string
	// notFound is printed for one that the name server refuses.
	notFound string
}

const (
	// served is the text of [serveClients] at /.
	served = "this is " + allowedName
	// reason is the proxy's, as programs show it that show all of it.
	reason = "eggrun: " + evilName + ":443 not on the allowlist"
	// noName is glibc's.
	noName = "Name or service not known"

	python     = "/usr/bin/python3 -c 'import os, sys; at = \"https://\" + os.environ[\"NAME\"]; "
	java       = "java -XX:TieredStopAtLevel=1 -Djavax.net.ssl.trustStore=/tmp/keys -Djavax.net.ssl.trustStorePassword=changeit -cp /tmp Fetch"
	javac      = "/usr/bin/javac"
	javaSetup  = "keytool -importcert -noprompt -file /ca.pem -keystore /tmp/keys -storepass changeit 2>&1; javac -d /tmp /Fetch.java 2>&1"
	musl       = "/usr/bin/musl-gcc"
	modules    = "/usr/lib/python3/dist-packages/"
	nodeHTTPS  = `node -e 'require("https").get("https://" + process.env.NAME, r => r.pipe(process.stdout)).on("error", console.log)'`
	nodeFetch  = `node -e 'fetch("https://" + process.env.NAME).then(r => r.text()).then(console.log, e => console.log(e, e.cause))'`
	gitClone   = "git clone -q https://$NAME/repo.git /tmp/clone && cat /tmp/clone/README; rm -rf /tmp/clone"
	sshConnect = "ssh -v -o StrictHostKeyChecking=no -o ConnectTimeout=10 x@$NAME"
)

// clients shows, for each program, how much of a refusal reaches its user.
var clients = []program{
	{"curl", "/usr/bin/curl", "curl -sS https://$NAME/", served, "403", "Could not resolve host"},
	{"curl verbose", "/usr/bin/curl", "curl -sv https://$NAME/", served, reason, "Could not resolve host"},
	{"curl HTTP", "/usr/bin/curl", "curl -sS http://$NAME/", served, "eggrun: GET " + evilName + ":80: not on the allowlist", "Could not resolve host"},
	{"wget", "/usr/bin/wget", "/usr/bin/wget --ca-certificate /ca.pem -nv -O - https://$NAME/", served, reason, "unable to resolve host address"},
	{"git", "/usr/bin/git", gitClone, "from the repository", "403", "Could not resolve host"},
	{"Go", "", "/probe fetch https://$NAME/", "200 OK " + served, reason, "no such host"},
	{"urllib", "/usr/bin/python3", python + "import urllib.request as r; print(r.urlopen(at).read())'", served, "403 " + reason, noName},
	{"requests", modules + "requests", python + "import requests; print(requests.get(at).text)'", served, "403 " + reason, noName},
	{"httpx", modules + "httpx", python + "import httpx; print(httpx.get(at).text)'", served, reason, noName},
	{"aiohttp", modules + "aiohttp", "/usr/bin/python3 /fetch.py", served, reason, noName},
	{"node https", "/usr/bin/node", nodeHTTPS, served, reason, "ENOTFOUND"},
	{"node fetch", "/usr/bin/node", nodeFetch, served, "Proxy response (403)", "ENOTFOUND"},
	{"npm", "/usr/bin/npm", "npm view egg description --registry https://$NAME/", "an egg", reason, "ENOTFOUND"},
	{"apt", "/usr/bin/apt-get", aptUpdate, "Reading package lists", "403  eggrun: " + evilName + ":80 not on the allowlist", "Could not resolve"},
	{"ssh", "/usr/bin/ssh", sshConnect, "remote software version egg", "", "Could not resolve hostname"},
	{"psql", "/usr/lib/postgresql/*/bin/psql", `$(ls /usr/lib/postgresql/*/bin/psql | tail -n 1) "host=$NAME user=x sslmode=disable"`, served, "", "could not translate host name"},
	{"busybox wget", "", "busybox wget -O - http://$NAME/", served, "403 eggrun: " + evilName, "bad address"},
	{"busybox nslookup", "", "busybox nslookup $NAME", "198.18.0.", "", "NXDOMAIN"},
	{"getent ahostsv4", "/usr/bin/getent", "getent ahostsv4 $NAME || echo nothing", "198.18.0.", "", "nothing"},
	{"getent ahosts", "/usr/bin/getent", "getent ahosts $NAME || echo nothing", "198.18.0.", "", "nothing"},
	{"musl", musl, "/musl $NAME", served, "", "does not resolve"},
	{"musl static", musl, "/musl-static $NAME", served, "", "does not resolve"},
	{"HttpURLConnection", javac, java + " old $NAME", served, "403 " + reason, "UnknownHostException"},
	{"java.net.http", javac, java + " new $NAME", served, "Tunnel failed, got: 403", "ConnectException"},
}

const aptUpdate = `echo "deb [trusted=yes] http://$NAME/apt ./" >/tmp/list; apt-get -o Dir::Etc::SourceList=/tmp/list -o Dir::Etc::SourceParts=/none -o Dir::State=/tmp/apt -o Dir::State::status=/dev/null -o Dir::Cache=/tmp/apt -o APT::Sandbox::User=root -o Acquire::Retries=0 update`

// TestClients has programs reach an allowed name, and be told of another one,
// with the proxy variables and without them, and where there is an interface.
func TestClients(t *testing.T) {
	l := newLab(t, eggrunOnly(t))
	var present []program
	for _, p := range clients {
		found, _ := filepath.Glob(p.needs)
		switch {
		case p.needs == "" || len(found) > 0:
			present = append(present, p)
		case p.name == "npm", p.needs == javac: // hundreds of packages; where they are installed
		default:
			need(t, p.needs, func() error { return os.ErrNotExist })
		}
	}
	allow := serveClients(t, l)
	for way, network := range map[string]edit{"proxy": func(*specs.Spec) {}, "transparent": noProxyEnv(), "locked": l.lockedNetwork()} {
		c := l.runDetached(allow, network, sh(javaSetup+"; echo up; exec sleep 1000"))
		c.wantOutput("up\n")
		show := func(name, script string) string {
			r := l.call("exec", "--env", "NAME="+name, c.id, "/bin/sh", "-c", script)
			return r.stdout + r.stderr
		}
		// Node obeys the variables from 22.21 and 24.5 on.
		nodeObeys := strings.Contains(show("", `node -p 'process.allowedNodeEnvironmentFlags.has("--use-env-proxy")'`), "true")
		for _, p := range present {
			t.Run(way+"/"+p.name, func(t *testing.T) {
				contains(t, "an allowed name", show(allowedName, p.script), p.allowed)
				want := p.told
				if isNode := strings.HasPrefix(p.name, "node"); want == "" || way != "proxy" || isNode && !nodeObeys {
					want = p.notFound
				}
				contains(t, "another name", show(evilName, p.script), want)
			})
		}
		l.wantSilent(l.call("delete", "--force", c.id))
	}
}

// serveClients has on the usual ports what clients ask for. It returns what gives
// a container the clients and lets them come.
func serveClients(t *testing.T, l *lab) edit {
	t.Helper()
	base := newServer(t)
	files := http.FileServer(http.Dir(makeSite(l)))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			_, _ = io.WriteString(w, served+"\n")
			return
		}
		files.ServeHTTP(w, r)
	})
	serve(t, "127.0.0.1:443", handler, base.tls)
	serve(t, "127.0.0.1:80", handler, nil)
	// A server that speaks first, and one whose protocol is neither HTTP nor TLS.
	accepting(t, "tcp4", "127.0.0.1:22", func(conn net.Conn) {
		_, _ = io.WriteString(conn, "SSH-2.0-egg\r\n")
		_, _ = io.CopyN(io.Discard, conn, 100)
	})
	accepting(t, "tcp4", "127.0.0.1:5432", func(conn net.Conn) {
		var length uint32
		if binary.Read(conn, binary.BigEndian, &length) == nil {
			_, _ = io.CopyN(io.Discard, conn, int64(length)-4)
			fields := "SFATAL\x00C28000\x00M" + served + "\x00\x00"
			_, _ = conn.Write(append(binary.BigEndian.AppendUint32([]byte("E"), uint32(4+len(fields))), fields...))
		}
	})
	list := allowedName + " " + allowedName + ":22!tcp " + allowedName + ":5432!tcp 127.0.0.1:22!tcp 127.0.0.1:5432!tcp 127.0.0.1:443 127.0.0.1:80"
	return func(spec *specs.Spec) {
		withClients(l, spec)
		base.withAuthority()(spec)
		withProbe(spec)
		domains(list)(spec)
	}
}

// makeSite returns a directory with a git repository, an apt repository and an npm
// package.
func makeSite(l *lab) string {
	l.t.Helper()
	site := makeDir(l.t, filepath.Join(l.dir, "site"))
	repository := filepath.Join(site, "repo.git")
	l.helper("git", "init", "-q", "--bare", repository)
	l.helper("sh", "-c", "cd "+repository+` && blob=$(echo from the repository | git hash-object -w --stdin) &&
		tree=$(printf "100644 blob $blob\tREADME\n" | git mktree) &&
		git update-ref HEAD $(git -c user.name=egg -c user.email=egg@egg.test commit-tree -m egg $tree) && git update-server-info`)
	writeFile(l.t, filepath.Join(makeDir(l.t, filepath.Join(site, "apt")), "Packages"), "", 0o644)
	writeFile(l.t, filepath.Join(site, "egg"), `{"name": "egg", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "egg", "version": "1.0.0", "description": "an egg"}}}`, 0o644)
	return site
}

// withClients binds this machine's programs into the container, and those that
// are made here.
func withClients(l *lab, spec *specs.Spec) {
	l.t.Helper()
	bind := func(source, destination string) {
		if _, err := os.Stat(source); err == nil {
			addMounts(specs.Mount{Destination: destination, Type: "bind", Source: source, Options: []string{"rbind", "ro"}})(spec)
		}
	}
	javas, _ := filepath.Glob("/etc/java*")
	for _, path := range append(javas, "/usr", "/lib", "/lib64", "/etc/alternatives", "/etc/ssl") {
		bind(path, path)
	}
	own := makeDir(l.t, filepath.Join(l.dir, "own"))
	buildMusl(l, filepath.Join(own, "musl"))
	buildMusl(l, filepath.Join(own, "musl-static"), "-static")
	writeFile(l.t, filepath.Join(own, "fetch.py"), aiohttpFetch, 0o644)
	writeFile(l.t, filepath.Join(own, "Fetch.java"), javaFetch, 0o644)
	for _, name := range []string{"musl", "musl-static", "fetch.py", "Fetch.java"} {
		bind(filepath.Join(own, name), "/"+name)
	}
	addEnv("GIT_SSL_CAINFO=/ca.pem", "REQUESTS_CA_BUNDLE=/ca.pem", "NODE_EXTRA_CA_CERTS=/ca.pem", "npm_config_cafile=/ca.pem",
		"npm_config_fetch_retries=0", "npm_config_update_notifier=false", "HOME=/tmp", "LC_ALL=C")(spec)
}

// buildMusl builds a program that looks a name up and asks port 80 for a page,
// with another C library than glibc.
func buildMusl(l *lab, path string, flags ...string) {
	l.t.Helper()
	writeFile(l.t, path+".c", muslFetch, 0o644)
	l.helper("musl-gcc", append(flags, "-o", path, path+".c")...)
}

const muslFetch = `
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *found;
	int status = getaddrinfo(argv[1], "80", &hints, &found);
	if (status) {
		printf("%s\n", gai_strerror(status));
		return 1;
	}
	char text[4096];
	int fd = socket(found->ai_family, found->ai_socktype, 0);
	if (connect(fd, found->ai_addr, found->ai_addrlen)) {
		perror("connect");
		return 1;
	}
	dprintf(fd, "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", argv[1]);
	for (ssize_t n; (n = read(fd, text, sizeof text)) > 0;)
		fwrite(text, 1, n, stdout);
}
`

const aiohttpFetch = `
import aiohttp, asyncio, os, ssl

async def fetch():
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.get("https://" + os.environ["NAME"]) as answer:
            print(await answer.text())

asyncio.run(fetch())
`

const javaFetch = `
import java.net.*;
import java.net.http.*;

class Fetch {
	public static void main(String[] args) throws Exception {
		URI uri = new URI("https://" + args[1] + "/");
		if (args[0].equals("old"))
			System.out.println(new String(uri.toURL().openStream().readAllBytes()));
		else
			System.out.println(HttpClient.newBuilder().build().send(HttpRequest.newBuilder(uri).build(), HttpResponse.BodyHandlers.ofString()).body());
	}
}
`
