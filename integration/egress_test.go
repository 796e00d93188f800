package integration

import (
	"strings"
	"testing"
)

// TestEgressVerbs: what a container asked for can be read, learnt from and
// allowed while it runs.
func TestEgressVerbs(t *testing.T) {
	l, s := newLab(t, eggrunOnly(t)), newServer(t)
	l.containers = 1000 // the log goes by the id, so it is to be nobody else's
	c := l.runDetached(withProbe, s.withAuthority(), domains("other.test 127.0.0.1:"+s.httpsPort), noProxyEnv(), sh("echo up; exec sleep 1000"))
	c.wantOutput("up\n")
	url := "https://" + allowedName + ":" + s.httpsPort + "/"
	fetch := func() result { return l.call("exec", c.id, "/probe", "fetch", url) }
	r := fetch()
	contains(t, "before", r.stdout, "no such host")
	egress := func(verb string, rest ...string) string {
		t.Helper()
		r := l.call(append(append([]string{"egress", verb}, rest...), c.id)...)
		if r.code != 0 {
			t.Fatalf("egress %s: exit %d, %s", verb, r.code, r.stderr)
		}
		return r.stdout
	}
	eventually(t, "the refusal in the log", func() bool { return strings.Contains(egress("log", "--denied"), "deny  dns "+allowedName) })
	contains(t, "learn", egress("learn"), "eggrun.domains="+allowedName+"\n")
	shown := egress("show")
	contains(t, "show", shown, "containers: "+c.id+"\n")
	contains(t, "show", shown, "other.test")
	contains(t, "reload", egress("reload", "--annotation", "eggrun.domains="+s.domains()), allowedName+":"+s.httpsPort)
	contains(t, "after", fetch().stdout, "200 OK this is allowed.test")
	egress("reload", "--annotation", "eggrun.domains=other.test")
	contains(t, "taken back", fetch().stdout, "no such host")
	contains(t, "top", egress("top"), allowedName+":"+s.httpsPort+"  1")
	contains(t, "metrics", egress("metrics"), `eggrun_decisions_total{proto="transparent",decision="allow",reason="allowed"} 1`)
	l.wantFail(l.call("egress", "reload", "--annotation", "eggrun.foo=x", c.id), "eggrun.foo")
	l.wantFail(l.call("egress", "reload", "--annotation", "eggrun.inbound=none", c.id), "create it anew")
	l.wantSilent(l.call("delete", "--force", c.id))
	contains(t, "log of a deleted one", egress("log", "--json"), `"host":"`+allowedName+`"`)
	l.wantFail(l.call("egress", "show", c.id), "container does not exist")

	plain := l.runDetached(sh("exec sleep 1000"))
	l.wantFail(l.call("egress", "show", plain.id), "has no policy")
}

// TestSummary: who runs a container in the foreground is told what it was
// refused, in one line, and nothing otherwise, nor where an engine has a log.
func TestSummary(t *testing.T) {
	l := newLab(t, eggrunOnly(t))
	foreground := func(edits ...edit) string {
		id := l.newID()
		b := l.bundle(id, append(edits, domains(allowedName))...)
		r := l.invoke(invocation{args: []string{"run", "--bundle", b.dir, id}, globals: []string{"--root", l.root}})
		return strings.ReplaceAll(r.stderr, id, "ID")
	}
	refused := both(probe("fetch", "https://"+evilName+"/"), noProxyEnv())
	equal(t, "refused", foreground(refused), "eggrun: refused: "+evilName+"; see eggrun egress log ID, and add what is needed to eggrun.domains\n")
	equal(t, "nothing refused", foreground(sh("true")), "")
	equal(t, "with a log", l.run(refused, domains(allowedName)).stderr, "")
}
