// Package egress gives a container with a policy its one way out: a sidecar
// process outside the container, which holds a listener that was opened inside
// and connects only where the policy allows.
//
// The wall itself is that the network namespace is closed, see package inside;
// proxy variables in the environment are a convenience for programs.
package egress

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"eggrun/egress/inside"
	"eggrun/egress/resolver"
	"eggrun/internal/linux"
	"eggrun/policy"
	"eggrun/sandbox"
	"eggrun/spec"
)

// Prepare makes the plan of a container with a policy that is to be in n: where
// its proxy listens, its environment, and its resolv.conf. stateDir is the
// container's, which need not be there yet. A container that shares the host's
// network is an [sandbox.EnforcementError]. See [Confine] for all else that leads
// out.
func Prepare(plan *spec.Plan, n *Network, pol *policy.Policy, stateDir string) (*Prepared, error) {
	host, err := isHostNetwork(plan)
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	if host {
		return nil, &sandbox.EnforcementError{
			Gaps:     []string{"domains: host network requested"},
			Platform: "run with --network none",
		}
	}
	if !n.Closed {
		if err := checkPasta(n.file); err != nil {
			return nil, err
		}
	}
	plan.Config.ProxyPort = inside.Port
	conf, err := readConf(plan)
	if err != nil {
		return nil, fmt.Errorf("mount on %q: %w", resolvConf, err)
	}
	p := &Prepared{Network: n, Policy: pol, conf: conf, confFile: filepath.Join(stateDir, "resolv.conf")}
	// In a new namespace it can't be known yet.
	if n.IsNew() || needsOwnConf(conf, n.Closed) {
		p.confText = ownConf(conf, n.Closed)
	}
	p.ProxyEnv = pol.ProxyEnv == policy.ProxyEnvOn || n.Closed && pol.ProxyEnv == policy.ProxyEnvAuto
	m := confMount(plan)
	// Podman 5 mounts an empty file that it fills in later.
	if n.IsNew() || m != nil && len(conf.Nameservers) == 0 {
		p.unsettled = &Unsettled{ProxyEnv: n.IsNew() && pol.ProxyEnv == policy.ProxyEnvAuto, OwnConf: p.confFile}
		if m != nil {
			p.unsettled.EngineConf = m.Source
		}
	}
	if plan.Process != nil {
		p.setEnvironment(plan)
	}
	return p, nil
}

// setEnvironment has the environment name the proxy, or lets start decide that.
func (p *Prepared) setEnvironment(plan *spec.Plan) {
	env := plan.Process.Env
	if p.unsettled == nil || !p.unsettled.ProxyEnv {
		plan.Process.Env = Environment(env, plan.Hostname, p.ProxyEnv)
		return
	}
	plain := Environment(env, plan.Hostname, false)
	plan.Process.Env = plain
	plan.Process.ClosedEnv = slices.DeleteFunc(Environment(env, plan.Hostname, true), func(v string) bool { return slices.Contains(plain, v) })
}

// Prepared is what [Prepare] found out and decided.
type Prepared struct {
	Network *Network
	Policy  *policy.Policy
	// ProxyEnv tells whether the environment names the proxy.
	ProxyEnv bool
	// NoTables is that of [inside.Sockets], known once the container has entered.
	NoTables bool
	conf     *resolver.Conf
	// unsettled is nil where nothing is left to start.
	unsettled *Unsettled
	// confText is the resolv.conf that the container gets, "" to keep the
	// engine's.
	confText, confFile string
}

// MountFiles writes eggrun's own files for the container into the state dir, which
// is there by now, and mounts them. [Confine], which judges what others mount,
// comes before.
func (p *Prepared) MountFiles(plan *spec.Plan) error {
	if p.confText == "" {
		return nil
	}
	if err := os.WriteFile(p.confFile, []byte(p.confText), 0o644); err != nil {
		return err
	}
	return mountConf(plan, p.confFile)
}

// isOwnNamespace tells whether path is this process's own namespace of a kind,
// called as in /proc/PID/ns.
func isOwnNamespace(path, kind string) (bool, error) {
	theirs, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer theirs.Close()
	own, err := os.Open("/proc/thread-self/ns/" + kind)
	if err != nil {
		return false, err
	}
	defer own.Close()
	return linux.SameFile(theirs, own)
}

// proxyVariables are those that programs read. Engines copy the host's into the
// container, where they lead nowhere or hold a password.
var proxyVariables = []string{
	"http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy", "rsync_proxy", "grpc_proxy",
	"npm_config_proxy", "npm_config_http_proxy", "npm_config_https_proxy", "npm_config_noproxy",
}

// Environment returns env without any spelling of the proxy variables, and with
// eggrun's own where named is set, each once. A locked namespace has none: names
// of peers must not go to the proxy, and the table brings everything else there.
// The address is literal: "localhost" may mean ::1.
func Environment(env []string, hostname string, named bool) []string {
	var out []string
	for _, variable := range env {
		name, _, _ := strings.Cut(variable, "=")
		if !isProxyVariable(name) {
			out = append(out, variable)
		}
	}
	if !named {
		return out
	}
	proxy := fmt.Sprintf("http://127.0.0.1:%d", inside.Port)
	// No ::1: old versions of a common HTTP library refuse to start with it.
	direct := []string{"localhost", "127.0.0.1"}
	if hostname != "" {
		direct = append(direct, hostname)
	}
	out = withJavaOptions(out, direct)
	for _, v := range []struct{ name, value string }{
		{"http_proxy", proxy}, {"https_proxy", proxy}, {"all_proxy", proxy}, {"no_proxy", strings.Join(direct, ",")},
	} {
		out = append(out, v.name+"="+v.value, strings.ToUpper(v.name)+"="+v.value)
	}
	// Node reads the variables only when told to.
	return append(out, "NODE_USE_ENV_PROXY=1")
}

const javaVariable = "JAVA_TOOL_OPTIONS"

// withJavaOptions appends the proxy to the options of every Java machine, which
// reads no other variable, unless they name one already, in whatever way.
func withJavaOptions(env, direct []string) []string {
	for i, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case name != javaVariable:
		case strings.Contains(value, "proxyHost"):
			return env
		default:
			env[i] = javaVariable + "=" + strings.TrimSpace(value+" "+javaOptions(direct))
			return env
		}
	}
	return append(env, javaVariable+"="+javaOptions(direct))
}

func javaOptions(direct []string) string {
	return fmt.Sprintf("-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=%d -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=%[1]d -Dhttp.nonProxyHosts=%s",
		inside.Port, strings.Join(direct, "|"))
}

func isProxyVariable(name string) bool {
	if name == "NODE_USE_ENV_PROXY" {
		return true
	}
	for _, known := range proxyVariables {
		if strings.EqualFold(name, known) {
			return true
		}
	}
	return false
}
