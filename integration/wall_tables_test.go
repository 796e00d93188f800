package integration

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// withoutTables has the runtime run as on a kernel without nftables.
func (l *lab) withoutTables() {
	l.t.Helper()
	wrapper := filepath.Join(l.dir, "without-tables")
	writeFile(l.t, wrapper, "#!/bin/sh\nexec "+probePath()+" without-tables "+l.rt.path+" \"$@\"\n", 0o755)
	l.rt.path = wrapper
}

// TestWithoutTables has a kernel without nftables: a closed namespace is as closed
// as ever, and programs that know of no proxy reach names at the ports that the
// rules name. The control, that there are no tables, is who listens where.
func TestWithoutTables(t *testing.T) {
	l, s, c := newLab(t, eggrunOnly(t)), newServer(t), newCanary(t)
	const listeners = "sed -n 's/.*: 00000000:\\(....\\) 00000000:0000 0A.*/\\1/p' /proc/net/tcp | sort | tr '\\n' ' '"
	equal(t, "listeners on all addresses, with tables", l.output(listeners, domains("a.test")), "")
	with := l.rt.path
	l.withoutTables()
	equal(t, "listeners on all addresses", l.output(listeners, domains("a.test b.test:256 c.test:3128")), "0035 0050 0100 01BB ")
	fetch := func(url string, edits ...edit) string {
		return l.output("/probe fetch "+url, append(edits, withProbe, s.withAuthority(), domains(s.domains()))...)
	}
	const served = "200 OK this is allowed.test"
	for _, url := range []string{"https://" + allowedName + ":" + s.httpsPort + "/", "http://" + allowedName + ":" + s.httpPort + "/"} {
		contains(t, "by the proxy", fetch(url), served)
		contains(t, "by name", fetch(url, noProxyEnv()), served)
	}
	contains(t, "another name", fetch("https://"+evilName+"/", noProxyEnv()), "no such host")
	contains(t, "another name by the proxy", fetch("https://"+evilName+"/"), "not on the allowlist")
	for name, outcome := range tries(t, l.run(l.attack(c), domains(s.domains()))) {
		if !strings.HasPrefix(outcome, "fail") {
			t.Errorf("%s: %s, want fail", name, outcome)
		}
	}
	equal(t, "visits", c.visits.Load(), 0)
	l.rt.path = with
}

// TestWithoutTablesOpened has an engine add an interface: before start, which
// refuses then, and to a container that runs, which is killed.
func TestWithoutTablesOpened(t *testing.T) {
	l := newLab(t, eggrunOnly(t))
	open := func(c *container) {
		l.helper("nsenter", "--net=/proc/"+itoa(c.pid)+"/ns/net", "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
	}
	control := l.sleeper(domains(allowedName))
	open(control)
	contains(t, "with tables", l.call("exec", control.id, "echo", "alive").stdout, "alive")
	l.withoutTables()
	created := l.create(domains(allowedName))
	open(created)
	r := l.call("start", created.id)
	l.wantFail(r)
	// Or whoever kills those that run was first, at whatever moment of start.
	if !strings.Contains(r.stderr, "cannot enforce domains") || !strings.Contains(r.stderr, "a way out by eth") {
		created.wantStatus("stopped")
	}
	running := l.sleeper(domains(allowedName))
	open(running)
	equal(t, "exit status", running.wait(), 128+int(unix.SIGKILL))
	for _, c := range []*container{control, created, running} {
		l.wantSilent(l.call("delete", "--force", c.id))
	}
}
