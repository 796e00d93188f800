// Package egress gives a container with a policy its one way out: a sidecar
// process outside the container, which holds a listener that was opened inside
// and connects only where the policy allows.
//
// The wall itself is that the network namespace is closed, see package inside;
// proxy variables in the environment are a convenience for programs.
package egress

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"eggrun/egress/inside"
	"eggrun/internal/linux"
	"eggrun/sandbox"
	"eggrun/spec"
)

// Prepare makes the plan of a container with a policy: where its proxy listens
// and the environment that says so. A container that shares the host's network is
// an [sandbox.EnforcementError]. See [Confine] for all else that leads out.
func Prepare(plan *spec.Plan) error {
	host, err := isHostNetwork(plan)
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	if host {
		return &sandbox.EnforcementError{
			Gaps:     []string{"domains: host network requested"},
			Platform: "run with --network none",
		}
	}
	plan.Config.ProxyPort = inside.Port
	if plan.Process != nil {
		plan.Process.Env = proxyEnv(plan.Process.Env, plan.Hostname)
	}
	return nil
}

// PrepareExec gives a further process of a container with a policy the same
// environment: an engine sends the one that it knows from before create.
func PrepareExec(plan *spec.Plan) {
	plan.Process.Env = proxyEnv(plan.Process.Env, plan.Hostname)
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

// proxyEnv returns env with every spelling of the proxy variables replaced by
// eggrun's own, each once. The address is literal: "localhost" may mean ::1.
func proxyEnv(env []string, hostname string) []string {
	var out []string
	for _, variable := range env {
		name, _, _ := strings.Cut(variable, "=")
		if !isProxyVariable(name) {
			out = append(out, variable)
		}
	}
	proxy := fmt.Sprintf("http://127.0.0.1:%d", inside.Port)
	// No ::1: old versions of a common HTTP library refuse to start with it.
	direct := "localhost,127.0.0.1"
	if hostname != "" {
		direct += "," + hostname
	}
	for _, v := range []struct{ name, value string }{
		{"http_proxy", proxy}, {"https_proxy", proxy}, {"all_proxy", proxy}, {"no_proxy", direct},
	} {
		out = append(out, v.name+"="+v.value, strings.ToUpper(v.name)+"="+v.value)
	}
	// Node reads the variables only when told to.
	return append(out, "NODE_USE_ENV_PROXY=1")
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

// CheckStillClosed refuses to start a container whose network namespace has
// been opened since create, by the engine or by anybody else. initPID is the
// container's init.
func CheckStillClosed(initPID int) error {
	netNS, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", initPID))
	if err != nil {
		return err
	}
	defer netNS.Close()
	err = inside.CheckClosedIn(netNS)
	var enforcement *sandbox.EnforcementError
	if err == nil || errors.As(err, &enforcement) {
		return err
	}
	return fmt.Errorf("network namespace: %w", err)
}
