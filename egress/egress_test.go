package egress

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"eggrun/internal/need"
	"eggrun/sandbox"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func wantGap(t *testing.T, err error, want string) {
	t.Helper()
	var enforcement *sandbox.EnforcementError
	if !errors.As(err, &enforcement) || err.Error() != want {
		t.Errorf("error %v, want the EnforcementError %s", err, want)
	}
}

func TestProxyEnv(t *testing.T) {
	t.Parallel()
	const proxy = "http://127.0.0.1:3128"
	own := func(direct string) []string {
		return []string{
			"http_proxy=" + proxy, "HTTP_PROXY=" + proxy,
			"https_proxy=" + proxy, "HTTPS_PROXY=" + proxy,
			"all_proxy=" + proxy, "ALL_PROXY=" + proxy,
			"no_proxy=" + direct, "NO_PROXY=" + direct,
			"NODE_USE_ENV_PROXY=1",
		}
	}
	for _, tt := range []struct {
		name     string
		in       []string
		hostname string
		kept     []string
		direct   string
	}{
		{"empty", nil, "", nil, "localhost,127.0.0.1"},
		{"hostname", []string{"PATH=/bin"}, "web1", []string{"PATH=/bin"}, "localhost,127.0.0.1,web1"},
		{
			"every spelling", []string{
				"A=1", "http_proxy=http://user:secret@host:1", "HTTP_PROXY=x", "Http_Proxy=x", "https_proxy=x", "HTTPS_PROXY=x",
				"all_proxy=x", "ALL_PROXY=x", "no_proxy=*", "NO_PROXY=*", "ftp_proxy=x", "FTP_PROXY=x", "rsync_proxy=x",
				"grpc_proxy=x", "npm_config_proxy=x", "NPM_CONFIG_HTTPS_PROXY=x", "npm_config_http_proxy=x",
				"npm_config_noproxy=x", "NODE_USE_ENV_PROXY=0", "B=2",
			}, "", []string{"A=1", "B=2"}, "localhost,127.0.0.1",
		},
		{"without a value, and twice", []string{"HTTP_PROXY", "no_proxy=", "http_proxy=a", "http_proxy=b"}, "", nil, "localhost,127.0.0.1"},
		{
			"others stay", []string{"MY_HTTP_PROXY=x", "HTTP_PROXY_HOST=x", "PROXY=x", "node_use_env_proxy=0", "=x", "odd"}, "",
			[]string{"MY_HTTP_PROXY=x", "HTTP_PROXY_HOST=x", "PROXY=x", "node_use_env_proxy=0", "=x", "odd"}, "localhost,127.0.0.1",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := slices.Clone(tt.in)
			got := proxyEnv(tt.in, tt.hostname)
			if want := append(slices.Clone(tt.kept), own(tt.direct)...); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			// A container made from the environment of another one, as by exec.
			if again := proxyEnv(got, tt.hostname); !slices.Equal(again, got) {
				t.Errorf("the second time %q, want %q", again, got)
			}
			if !slices.Equal(tt.in, before) {
				t.Error("the argument was changed")
			}
		})
	}
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	network := func(path string) []spec.Namespace {
		return []spec.Namespace{{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace, Path: path}}
	}
	const host = "cannot enforce domains: host network requested; run with --network none"
	for name, namespaces := range map[string][]spec.Namespace{
		"no network namespace": {{Type: specs.MountNamespace}},
		"the caller's":         network("/proc/self/ns/net"),
		"the caller's by pid":  network(fmt.Sprintf("/proc/%d/ns/net", os.Getpid())),
	} {
		plan := &spec.Plan{Namespaces: namespaces, Process: &spec.Process{Env: []string{"HTTP_PROXY=x"}}}
		wantGap(t, Prepare(plan), host)
		if plan.Config.ProxyPort != 0 || !slices.Equal(plan.Process.Env, []string{"HTTP_PROXY=x"}) {
			t.Errorf("%s: refused, but changed", name)
		}
	}
	err := Prepare(&spec.Plan{Namespaces: network("/none/such")})
	if want := "network namespace: stat /none/such: no such file or directory"; fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
	plan := &spec.Plan{Namespaces: network(""), Hostname: "web1", Process: &spec.Process{Env: []string{"HTTP_PROXY=x"}}}
	if err := Prepare(plan); err != nil {
		t.Fatal(err)
	}
	if plan.Config.ProxyPort != 3128 || !slices.Contains(plan.Process.Env, "NO_PROXY=localhost,127.0.0.1,web1") || slices.Contains(plan.Process.Env, "HTTP_PROXY=x") {
		t.Errorf("port %d, environment %q", plan.Config.ProxyPort, plan.Process.Env)
	}
	if err := Prepare(&spec.Plan{Namespaces: network("")}); err != nil {
		t.Errorf("without a process: %v", err)
	}
}

// TestOtherNamespace takes one by its path, which is closed, and looks again
// when the container starts.
func TestOtherNamespace(t *testing.T) {
	t.Parallel()
	need.Root(t)
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	path := fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
	if err := Prepare(&spec.Plan{Namespaces: []spec.Namespace{{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace, Path: path}}}); err != nil {
		t.Error(err)
	}
	if err := CheckStillClosed(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	ip := func(args ...string) {
		need.That(t, fmt.Sprint("ip ", args), func() error {
			out, err := exec.Command("ip", args...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	pid := fmt.Sprint(cmd.Process.Pid)
	ip("link", "add", "name", "eg"+pid, "netns", pid, "type", "veth", "peer", "name", "ep"+pid, "netns", pid)
	err := CheckStillClosed(cmd.Process.Pid)
	if enforcement := new(sandbox.EnforcementError); !errors.As(err, &enforcement) {
		t.Errorf("error %v, want an EnforcementError", err)
	}
	if err := CheckStillClosed(1 << 30); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no process: %v", err)
	}
}
