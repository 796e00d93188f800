package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// underPolicy lets the lab's runtime see a policy file of its own: each call is
// made in a mount namespace that has one in /etc/eggrun, as root until there. A
// script may change it.
func (l *lab) underPolicy(text, script string) {
	l.t.Helper()
	real := filepath.Join(l.dir, "real")
	if err := os.Mkdir(real, 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.MkdirAll("/etc/eggrun", 0o755); err != nil {
		l.t.Fatal(err)
	}
	file := filepath.Join(l.dir, "policy.toml")
	writeFile(l.t, file, text, 0o644)
	binary := l.rt.path
	as := ""
	if l.as != 0 {
		as = fmt.Sprintf("setpriv --reuid=%d --regid=%[1]d --clear-groups ", l.as)
	}
	wrapper := filepath.Join(real, "eggrun")
	writeFile(l.t, wrapper, "#!/bin/sh\nexec unshare --mount sh -ec '"+
		"mount -t tmpfs -o mode=755 policy /etc/eggrun; cp "+file+" /etc/eggrun/policy.toml; cd /etc/eggrun; "+script+"; "+
		"cd \"$OLDPWD\"; exec "+as+"\"${BINARY:-"+binary+"}\" \"$@\"' sh \"$@\"\n", 0o755)
	l.rt.path = wrapper
}

// walled is what a script prints that says whether the container has a proxy.
const walled = `echo "proxy:$HTTPS_PROXY"`

const demoPolicy = `
[groups]
good = ["good.test"]
[default]
domains = ["@good"]
[limit]
domains = ["@good", "*.good.test"]
[profile.ci]
selectable = true
domains = ["ci.test"]
[profile.small]
domains = []
`

// TestPolicyFile: the administrator's file walls in who asks for nothing, and
// binds who asks.
func TestPolicyFile(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	equal(t, "without a file", newLab(t, rt).output(walled), "proxy:")

	l := newLab(t, rt)
	l.underPolicy(demoPolicy, "true")
	contains(t, "without an annotation", l.output(walled), "proxy:http")
	contains(t, "with less", l.output(walled, domains("x.good.test")), "proxy:http")
	for _, tt := range []struct {
		key, value, want string
	}{
		{"eggrun.domains", "good.test evil.test", "annotations: more than [limit] of /etc/eggrun/policy.toml allows: domains evil.test; "},
		{"eggrun.network", "full", "allows: network full; "},
		{"eggrun.mode", "observe", "allows: mode observe; "},
		{"eggrun.domains", "@evil", `group "@evil": unknown; `},
	} {
		id := l.newID()
		b := l.bundle(id, sh("echo ran"), annotate(tt.key, tt.value))
		r := l.call("create", "--bundle", b.dir, id)
		l.wantFail(r, tt.want)
		equal(t, "output", r.stdout, "")
		l.wantGone(id)
	}
}

// TestPolicyFileFull: no wall must be written out, and is none then.
func TestPolicyFileFull(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	l.underPolicy("[default]\nnetwork = \"full\"\n", "true")
	equal(t, "network full", l.output(walled), "proxy:")
	contains(t, "network full, but asked for", l.output(walled, domains("")), "proxy:http")
}

// TestPolicyFileRefused: a file that the wrong ones can change, or that has an
// error, fails create instead of being passed over.
func TestPolicyFileRefused(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	for name, tt := range map[string]struct{ text, script, want string }{
		"control":        {demoPolicy, "true", ""},
		"stranger":       {demoPolicy, "chown 1000 policy.toml", `"/etc/eggrun/policy.toml" belongs to uid 1000; give it to root`},
		"directory":      {demoPolicy, "chown 1000 .", `"/etc/eggrun" belongs to uid 1000; give it to root`},
		"group":          {demoPolicy, "chmod g+w policy.toml", "can be written to by others"},
		"link":           {demoPolicy, "mv policy.toml x; ln -s x policy.toml", "is a link"},
		"unknown key":    {"[default]\nalow = []\n", "true", `/etc/eggrun/policy.toml:2: key "alow": unknown`},
		"not TOML":       {"[default\n", "true", "/etc/eggrun/policy.toml:1: "},
		"no file, fine":  {demoPolicy, "rm policy.toml", ""},
		"no file, group": {demoPolicy, "rm policy.toml; chmod g+w .", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, rt)
			l.underPolicy(tt.text, tt.script)
			id := l.newID()
			b := l.bundle(id, sh("exit 0"))
			r := l.call("create", "--bundle", b.dir, id)
			if tt.want == "" {
				l.wantSilent(r)
				return
			}
			l.wantFail(r, tt.want)
			l.wantGone(id)
		})
	}
}

// TestPolicyFileMounted: no container can write the policy of the next one.
func TestPolicyFileMounted(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	bind := func(source string, options ...string) edit {
		return addMounts(specs.Mount{Destination: "/x", Type: "bind", Source: source, Options: append(options, "bind")})
	}
	const full = "[default]\nnetwork = \"full\"\n"
	free := newLab(t, rt)
	free.underPolicy(full, "mv policy.toml other.toml")
	equal(t, "control", free.output("echo >>/x/other.toml && echo written", bind("/etc/eggrun")), "written")

	l := newLab(t, rt)
	l.underPolicy(full, "true")
	ownRoot := fmt.Sprintf("/proc/%d/root", os.Getpid())
	for _, source := range []string{"/etc", "/etc/eggrun", "/etc/eggrun/policy.toml", ownRoot + "/etc", "/"} {
		id := l.newID()
		b := l.bundle(id, sh("true"), bind(source))
		l.wantFail(l.call("create", "--bundle", b.dir, id),
			"cannot enforce policy file: mount ", `lets the container write "/etc/eggrun/policy.toml"; mount it read-only`)
		l.wantGone(id)
	}
	r := l.run(sh("echo >>/x/policy.toml"), bind("/etc/eggrun", "ro"))
	contains(t, "read-only", r.stderr, "Read-only file system")
}

// TestPolicyFileOfPlainUser: root's file binds a user, to whom root looks like a
// stranger, and his own takes away from it. One that he could have written in
// root's place does not count as root's.
func TestPolicyFileOfPlainUser(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	try := func(script, home string, edits ...edit) (*lab, result) {
		t.Helper()
		l := plainLab(t, rt, withSubIDs)
		l.underPolicy(demoPolicy, script)
		id := l.newID()
		b := l.plainBundle(id, append([]edit{sh(walled)}, edits...)...)
		l.as = 0 // underPolicy sees to that
		// He has no service manager.
		globals := []string{"--cgroup-manager", "cgroupfs", "--root", l.root}
		return l, l.invoke(invocation{globals: globals, args: []string{"run", "--bundle", b.dir, id}, env: []string{"HOME=" + home, "XDG_STATE_HOME=" + filepath.Join(l.dir, "state")}})
	}
	_, r := try("true", "/nowhere")
	contains(t, "bound", r.stdout+r.stderr, "proxy:http")
	_, r = try("rm policy.toml", "/nowhere")
	contains(t, "free", r.stdout+r.stderr, "proxy:\n")
	l, r := try("true", "/nowhere", domains("evil.test"))
	l.wantFail(r, "more than [limit] of /etc/eggrun/policy.toml allows: domains evil.test")
	l, r = try(fmt.Sprintf("chown %d policy.toml", withSubIDs), "/nowhere")
	l.wantFail(r, "policy.toml", "; give it to root")
	l, r = try(fmt.Sprintf("mkdir -p home/.config/eggrun; echo \"[default]\" >home/.config/eggrun/policy.toml; "+
		"echo \"domains = [\\\"evil.test\\\"]\" >>home/.config/eggrun/policy.toml; chown -R %d home", withSubIDs), "/etc/eggrun/home")
	l.wantFail(r, "[default] of /etc/eggrun/home/.config/eggrun/policy.toml: more than [limit] of /etc/eggrun/policy.toml allows: domains evil.test")
}

// TestEgressProfile: the caller picks a profile by a flag, or by the name of the
// program.
func TestEgressProfile(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	binary := l.rt.path
	l.underPolicy(demoPolicy, "true")
	link := filepath.Join(l.dir, "eggrun-ci")
	if err := os.Symlink(binary, link); err != nil {
		t.Fatal(err)
	}
	id := l.newID()
	b := l.bundle(id, sh("exit 0"))
	explain := func(env []string, arguments ...string) string {
		t.Helper()
		r := l.invoke(invocation{args: append([]string{"policy", "explain"}, arguments...), env: env})
		l.wantOK(r)
		return strings.Join(strings.Fields(r.stdout), " ")
	}
	contains(t, "default", explain(nil, b.dir), "network https follows from the domains domains good.test /etc/eggrun/policy.toml:3, for @good local-ports - default ")
	contains(t, "flag", explain(nil, "--egress-profile", "ci", b.dir), "profile ci network https follows from the domains domains ci.test /etc/eggrun/policy.toml:10 ")
	contains(t, "name", explain([]string{"BINARY=" + link}, b.dir), "profile ci ")
	l.wantFail(l.call("policy", "explain", "--egress-profile", "cy", b.dir), `profile "cy": unknown; the profiles are ci, small`)

	// As docker's runtimeArgs and podman's --runtime-flag come.
	global := []string{"--egress-profile=ci", "--root", l.root}
	r := l.invoke(invocation{globals: global, args: []string{"policy", "explain", b.dir}})
	contains(t, "global flag", r.stdout+r.stderr, "ci.test")
	r = l.invoke(invocation{globals: global, args: []string{"policy", "explain", "--egress-profile", "small", b.dir}})
	contains(t, "both flags", strings.Join(strings.Fields(r.stdout), " "), "profile small ")

	l.wantSilent(l.call("create", "--egress-profile", "ci", "--bundle", b.dir, id))
	contains(t, "container", explain(nil, id), "profile ci network https follows from the domains domains ci.test /etc/eggrun/policy.toml:10 ")
	l.wantFail(l.call("create", "--egress-profile", "cy", "--bundle", b.dir, "c99"), `profile "cy": unknown`)
}

// TestPolicyCheck: the exit status tells errors from warnings.
func TestPolicyCheck(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	for name, tt := range map[string]struct {
		text, stdout, stderr string
		code                 int
	}{
		"good":    {demoPolicy, "", "", 0},
		"warning": {"[default]\ndomains = [\"*.github.io\"]\n", "FILE:2: *.github.io: anybody can register a name below github.io\n", "", 2},
		"error":   {"[default]\ndomains = [\"x\"]\nsni = \"of\"\n", "", "eggrun: policy check FILE: FILE:3: sni: value \"of\"; want match, allowlisted, off\n", 1},
	} {
		file := filepath.Join(l.dir, name+".toml")
		writeFile(t, file, tt.text, 0o644)
		r := l.invoke(invocation{args: []string{"policy", "check", file}, globals: []string{"--root", l.root}})
		equal(t, name+": exit status", r.code, tt.code)
		equal(t, name+": stdout", r.stdout, strings.ReplaceAll(tt.stdout, "FILE", file))
		equal(t, name+": stderr", r.stderr, strings.ReplaceAll(tt.stderr, "FILE", file))
	}
	l.wantOK(l.call("policy", "check", "../contrib/policy.toml"))
	l.wantFail(l.call("policy"), "want check or explain")
}
