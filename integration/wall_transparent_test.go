package integration

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// noProxyEnv leaves programs without a word about the proxy.
func noProxyEnv() edit { return annotate("eggrun.proxy-env", "off") }

// TestTransparent is a program that knows of no proxy: it asks for a name and
// connects to what it is told.
func TestTransparent(t *testing.T) {
	l, s := newLab(t, eggrunOnly(t)), newServer(t)
	fetch := func(url string) string {
		return l.output("/probe fetch "+url, withProbe, s.withAuthority(), domains(s.domains()), noProxyEnv())
	}
	equal(t, "HTTPS", fetch("https://"+allowedName+":"+s.httpsPort+"/"), "200 OK this is allowed.test, asked for allowed.test:"+s.httpsPort)
	equal(t, "HTTP", fetch("http://"+allowedName+":"+s.httpPort+"/"), "200 OK this is allowed.test, asked for allowed.test:"+s.httpPort)
	refused := fetch("https://" + evilName + ":" + s.httpsPort + "/")
	contains(t, "a name that is not allowed", refused, "no such host")
	equal(t, "resolv.conf", l.output("cat /etc/resolv.conf", domains("")), "nameserver 198.18.0.1")
	contains(t, "a port that is not allowed", fetch("https://"+allowedName+":1/"), "access denied")
}

// TestTransparentAudit has the name that was refused before there was any
// connection.
func TestTransparentAudit(t *testing.T) {
	l := newLab(t, eggrunOnly(t))
	id := l.newID()
	b := l.bundle(id, withProbe, sh("/probe fetch https://"+evilName+"/"), domains(allowedName), noProxyEnv())
	l.wantOK(l.call("run", "--bundle", b.dir, id))
	found := false
	for line := range strings.Lines(readIfThere(t, l.auditOf(id))) {
		var entry struct{ Proto, Host, Decision string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		found = found || entry.Proto == "dns" && entry.Host == evilName && entry.Decision == "deny"
	}
	if !found {
		t.Error("no line about the refused name")
	}
}

// TestSidecarKilled needs connections to be refused at once when the sidecar is
// gone, in the way of the fake addresses and of the proxy.
func TestSidecarKilled(t *testing.T) {
	l, s := newLab(t, eggrunOnly(t)), newServer(t)
	c := l.runDetached(withProbe, s.withAuthority(), domains(s.domains()), noProxyEnv(), sh("echo up; exec sleep 1000"))
	c.wantOutput("up\n")
	dial := func(address string) string {
		return l.call("exec", c.id, "/probe", "dial", address).stdout
	}
	contains(t, "proxy", dial("127.0.0.1:3128"), "dial ok")
	contains(t, "by name", l.call("exec", c.id, "/probe", "fetch", "https://"+allowedName+":"+s.httpsPort+"/").stdout, "200 OK")
	sidecar := l.oneSidecar(c)
	if err := unix.Kill(sidecar.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the proxy to be gone", func() bool { return strings.Contains(dial("127.0.0.1:3128"), "refused") })
	contains(t, "a fake address", dial("198.18.0.2:443"), "refused")
	l.wantSilent(l.call("delete", "--force", c.id))
}

// TestOnProxyExit needs a container to end with its sidecar where the policy says
// so, and to stay otherwise.
func TestOnProxyExit(t *testing.T) {
	l := newLab(t, eggrunOnly(t))
	for choice, ends := range map[string]bool{"deny": false, "kill": true} {
		c := l.runDetached(domains(allowedName), annotate("eggrun.on-proxy-exit", choice), sh("echo up; exec sleep 1000"))
		c.wantOutput("up\n")
		if err := unix.Kill(l.oneSidecar(c).pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if ends {
			equal(t, "exit status", c.wait(), 128+int(unix.SIGKILL))
		} else {
			contains(t, "still there", l.call("exec", c.id, "echo", "alive").stdout, "alive")
		}
		l.wantSilent(l.call("delete", "--force", c.id))
	}
}

// lockedNetwork is a network namespace with an interface, whose other end is in
// a namespace with a server on every port that a test asks for.
func (l *lab) lockedNetwork() edit {
	return withNamespace(specs.NetworkNamespace, l.pinnedNetwork(
		"ip link add eggpeer type veth peer name eth0 && ip address add 10.213.0.2/24 dev eth0 && ip link set eth0 up && ip link set eggpeer up && ip link set lo up && ip route add default via 10.213.0.1"))
}

// TestLocked is a namespace that the engine gave an interface: names go the way
// of the fake addresses, no variable is set, and the rest is refused.
func TestLocked(t *testing.T) {
	l, s := newLab(t, eggrunOnly(t)), newServer(t)
	network := l.lockedNetwork()
	output := func(script string) string {
		return l.output(script, withProbe, s.withAuthority(), domains(s.domains()), network, addEnv("HTTPS_PROXY=http://engine.example:1"))
	}
	equal(t, "HTTPS", output("/probe fetch https://"+allowedName+":"+s.httpsPort+"/"), "200 OK this is allowed.test, asked for allowed.test:"+s.httpsPort)
	equal(t, "variables", output("env | grep -i proxy; echo none"), "none")
	contains(t, "another address", output("/probe dial 192.0.2.1:443; /probe fetch https://192.0.2.1/"), "fail")
	contains(t, "another name", output("/probe fetch https://"+evilName+"/"), "no such host")
}

// TestJoin has several containers in one network namespace: who asks for
// nothing, or for the same, joins; another set is refused, in which both are
// named.
func TestJoin(t *testing.T) {
	l, s := newLab(t, eggrunOnly(t)), newServer(t)
	first := l.runDetached(domains(s.domains()), sh("echo up; exec sleep 1000"))
	first.wantOutput("up\n")
	joins := withNamespace(specs.NetworkNamespace, "/proc/"+itoa(first.pid)+"/ns/net")
	fetch := both(probe("fetch", "https://"+allowedName+":"+s.httpsPort+"/"), both(s.withAuthority(), joins))
	const served = "200 OK this is allowed.test"
	contains(t, "without a request", l.run(fetch).stdout, served)
	contains(t, "with the same", l.run(fetch, domains(s.domains())).stdout, served)
	netAdmin := l.output("sed -n 's/^CapBnd:.*\\(.\\)...$/\\1/p' /proc/self/status", joins, addCapabilities("CAP_NET_ADMIN"))
	equal(t, "bits 12 to 15 of the bounding set without a request", netAdmin, "0")
	r := l.run(fetch, domains("other.test"))
	equal(t, "exit status with another", r.code, 1)
	contains(t, "stderr with another", r.stderr, "[other.test]")
	contains(t, "stderr with another", r.stderr, allowedName+":"+s.httpsPort)
	// The first one goes, a later one stays.
	later := l.runDetached(joins, withProbe, s.withAuthority(), sh("echo up; exec sleep 1000"))
	later.wantOutput("up\n")
	sidecar := l.oneSidecar(later)
	l.wantSilent(l.call("delete", "--force", first.id))
	contains(t, "after the first one's end", l.call("exec", later.id, "/probe", "fetch", "https://"+allowedName+":"+s.httpsPort+"/").stdout, served)
	equal(t, "sidecar", l.oneSidecar(later).pid, sidecar.pid)
	l.wantSilent(l.call("delete", "--force", later.id))
	eventually(t, "the sidecar's end", func() bool { return unix.Kill(sidecar.pid, 0) != nil })
}
