package integration

import (
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// privileged is what podman exec --privileged sends: every capability, and no
// word of the container's confinement.
func privileged(spec *specs.Spec) {
	all := append(allCapabilities[:len(allCapabilities):len(allCapabilities)], "CAP_MKNOD", "CAP_SYS_RAWIO", "CAP_SYS_MODULE", "CAP_SYS_BOOT", "CAP_BPF", "CAP_PERFMON", "CAP_SYS_TIME", "CAP_SYSLOG")
	spec.Process.Capabilities = &specs.LinuxCapabilities{Bounding: all, Permitted: all, Effective: all, Inheritable: all, Ambient: all}
	spec.Process.NoNewPrivileges = false
	spec.Process.ApparmorProfile, spec.Process.SelinuxLabel = "", ""
}

// TestExecWall tries every way out as a further process of a container with a
// policy. The control is the same in a container without one on the host's
// network.
func TestExecWall(t *testing.T) {
	l, c := newLab(t, eggrunOnly(t)), newCanary(t)
	sleep := args("sleep", "1000")
	control := l.runDetached(l.attack(c), sleep, withoutNamespace(specs.NetworkNamespace))
	for name, outcome := range tries(t, control.execProcess(l.attack(c), privileged)) {
		equal(t, "control: "+name, outcome, "ok")
	}
	before := c.visits.Load()
	if before < 10 {
		t.Errorf("canary: %d visits of the control, want one from most tries", before)
	}
	walled := l.runDetached(l.attack(c), sleep, domains(allowedName))
	for name, r := range map[string]result{
		"by a file":       walled.execProcess(l.attack(c)),
		"privileged":      walled.execProcess(l.attack(c), privileged),
		"by flags":        walled.exec([]string{"--cap", "CAP_SYS_ADMIN", "--cap", "CAP_NET_RAW", "--cap", "CAP_NET_ADMIN"}, append([]string{"/probe", "out"}, canaryIPv4, canaryIPv6, c.port, c.unixName, "/hostnet")...),
		"another user":    walled.exec([]string{"--user", "1000"}, append([]string{"/probe", "out"}, canaryIPv4, canaryIPv6, c.port, c.unixName, "/hostnet")...),
		"without privs":   walled.exec([]string{"--no-new-privs"}, append([]string{"/probe", "out"}, canaryIPv4, canaryIPv6, c.port, c.unixName, "/hostnet")...),
		"in a sub-cgroup": walled.exec([]string{"--cgroup", map[bool]string{true: "/", false: "pids:/"}[isCgroup2()]}, append([]string{"/probe", "out"}, canaryIPv4, canaryIPv6, c.port, c.unixName, "/hostnet")...),
	} {
		for try, outcome := range tries(t, r) {
			if !strings.HasPrefix(outcome, "fail") {
				t.Errorf("%s: %s: %s, want fail", name, try, outcome)
			}
		}
	}
	equal(t, "visits of the canary", c.visits.Load(), before)
}

// TestExecWallProxy reaches the allowed name and no other, whatever an engine
// sends for variables: it knows those from before create.
func TestExecWallProxy(t *testing.T) {
	l, s := newLab(t, eggrunOnly(t)), newServer(t)
	c := l.sleeper(withProbe, s.withAuthority(), domains(s.domains()))
	https := "https://" + allowedName + ":" + s.httpsPort + "/"
	const allowed = "200 OK this is allowed.test"
	for name, change := range map[string]edit{
		"lacking":       func(spec *specs.Spec) { spec.Process.Env = nil },
		"contradicting": addEnv("HTTPS_PROXY=http://192.0.2.1:1", "https_proxy=http://192.0.2.1:1", "NO_PROXY=*", "no_proxy=*"),
		"privileged":    privileged,
	} {
		fetch := func(url string) string {
			return c.processOutput(args("/probe", "fetch", url), change, addEnv("SSL_CERT_FILE=/ca.pem"))
		}
		contains(t, name, fetch(https), allowed)
		contains(t, name, fetch("https://"+evilName+":"+s.httpsPort+"/"), "not on the allowlist")
	}
	contains(t, "by flags", c.execOutput("/probe fetch "+https, "--env", "HTTPS_PROXY=http://192.0.2.1:1", "--env", "SSL_CERT_FILE=/ca.pem"), allowed)
	env := c.processOutput(sh("env | grep -i -e proxy | sort"), func(spec *specs.Spec) {
		spec.Process.Env = []string{"PATH=/bin", "NO_PROXY=*", "Http_Proxy=x"}
	})
	equal(t, "variables", env, l.output("env | grep -i -e proxy | sort", domains(s.domains())))
}

// TestExecWallGuard: the guard is there where a process has no filter of its own,
// and holds with all capabilities.
func TestExecWallGuard(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	const filters = "grep ^Seccomp_filters: /proc/self/status | cut -f2"
	for _, tt := range []struct {
		name  string
		edits []edit
		want  string
	}{
		{"with a policy", []edit{domains(allowedName)}, "1"},
		{"with a policy and a profile", []edit{domains(allowedName), profile()}, "2"},
		{"without a policy", nil, "0"},
	} {
		c := l.sleeper(tt.edits...)
		equal(t, tt.name, c.execOutput(filters), tt.want)
		equal(t, tt.name+", privileged", c.processOutput(sh(filters), privileged), tt.want)
		equal(t, tt.name+", another user", c.execOutput(filters, "--user", "1000"), tt.want)
	}
	const forbidden = "mount -t tmpfs tmpfs /tmp 2>/dev/null && echo mounted; unshare -n true 2>/dev/null && echo unshared; unshare -U true 2>/dev/null && echo unshared; nsenter -n -t 1 true 2>/dev/null && echo entered; chroot / true && echo end"
	equal(t, "what a privileged one may do", l.sleeper(domains(allowedName)).processOutput(sh(forbidden), privileged), "end")
	equal(t, "the same without a policy", l.sleeper().processOutput(sh(forbidden), privileged), "mounted\nunshared\nunshared\nentered\nend")
}
