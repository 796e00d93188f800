package egress

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"eggrun/egress/resolver"
	"eggrun/policy"
	"eggrun/sandbox"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
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
			"JAVA_TOOL_OPTIONS=-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128 -Dhttp.nonProxyHosts=" + strings.ReplaceAll(direct, ",", "|"),
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
			got := Environment(tt.in, tt.hostname, true)
			if want := append(slices.Clone(tt.kept), own(tt.direct)...); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			// A container made from the environment of another one, as by exec.
			if again := Environment(got, tt.hostname, true); !slices.Equal(again, got) {
				t.Errorf("the second time %q, want %q", again, got)
			}
			if plain := Environment(got, tt.hostname, false); !slices.Equal(plain, append(slices.Clone(tt.kept), own(tt.direct)[0])) {
				t.Errorf("without a proxy %q, want %q", plain, tt.kept)
			}
			if !slices.Equal(tt.in, before) {
				t.Error("the argument was changed")
			}
		})
	}
}

// TestJavaOptions needs what is there to be kept, and a proxy that it names to
// be left alone.
func TestJavaOptions(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"JAVA_TOOL_OPTIONS=-Xmx1g":               "JAVA_TOOL_OPTIONS=-Xmx1g " + javaOptions([]string{"localhost"}),
		"JAVA_TOOL_OPTIONS=":                     "JAVA_TOOL_OPTIONS=" + javaOptions([]string{"localhost"}),
		"JAVA_TOOL_OPTIONS=-Dhttp.proxyHost=own": "JAVA_TOOL_OPTIONS=-Dhttp.proxyHost=own",
	} {
		if got := withJavaOptions([]string{"A=1", in}, []string{"localhost"}); !slices.Equal(got, []string{"A=1", want}) {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	pol, err := policyOf("good.example")
	if err != nil {
		t.Fatal(err)
	}
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
		_, err := Prepare(plan, &Network{Closed: true}, pol, "/state")
		wantGap(t, err, host)
		if plan.Config.ProxyPort != 0 || !slices.Equal(plan.Process.Env, []string{"HTTP_PROXY=x"}) {
			t.Errorf("%s: refused, but changed", name)
		}
	}
	rootfs := t.TempDir()
	old, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	for _, tt := range []struct {
		network Network
		env     policy.ProxyEnv
		want    bool // the environment names the proxy
		atStart bool // unless the namespace is open by start
	}{
		{Network{Closed: true}, policy.ProxyEnvAuto, true, true},
		{Network{Closed: true}, policy.ProxyEnvOff, false, false},
		{Network{Closed: true}, policy.ProxyEnvOn, true, false},
		{Network{Closed: true, file: old}, policy.ProxyEnvAuto, true, false},
		{Network{Closed: true, file: old}, policy.ProxyEnvOff, false, false},
		{Network{file: old}, policy.ProxyEnvAuto, false, false},
		{Network{file: old}, policy.ProxyEnvOn, true, false},
	} {
		plan := &spec.Plan{Rootfs: rootfs, Namespaces: network(""), Hostname: "web1", Process: &spec.Process{Env: []string{"HTTP_PROXY=x"}}}
		asked := *pol
		asked.ProxyEnv = tt.env
		prepared, err := Prepare(plan, &tt.network, &asked, rootfs)
		if err != nil {
			t.Fatal(err)
		}
		const variable = "NO_PROXY=localhost,127.0.0.1,web1"
		if plan.Config.ProxyPort != 3128 || slices.Contains(plan.Process.Env, "HTTP_PROXY=x") || prepared.ProxyEnv != tt.want ||
			slices.Contains(plan.Process.Env, variable) != (tt.want && !tt.atStart) ||
			slices.Contains(plan.Process.ClosedEnv, variable) != tt.atStart {
			t.Errorf("%+v: port %d, environment %q and %q", tt, plan.Config.ProxyPort, plan.Process.Env, plan.Process.ClosedEnv)
		}
		if err := prepared.MountFiles(plan); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(rootfs + "/resolv.conf")
		if err != nil || string(text) != "nameserver 198.18.0.1\n" || len(plan.Mounts) != 1 || plan.Mounts[0].Source != rootfs+"/resolv.conf" {
			t.Errorf("%+v: resolv.conf %q (%v), mounts %+v", tt, text, err, plan.Mounts)
		}
	}
	if _, err := Prepare(&spec.Plan{Rootfs: rootfs, Namespaces: network("")}, &Network{Closed: true}, pol, "/state"); err != nil {
		t.Errorf("without a process: %v", err)
	}
}

// TestSettle is what start makes of a namespace that an engine has opened.
func TestSettle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	theirs, own := dir+"/theirs", dir+"/own"
	if err := os.WriteFile(theirs, []byte("nameserver 127.0.0.11\nsearch corp.example\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, []byte("nameserver 198.18.0.1\n# the rest of a longer one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	mounted, err := os.Open(own)
	if err != nil {
		t.Fatal(err)
	}
	defer mounted.Close()
	for _, tt := range []struct {
		unsettled   Unsettled
		proxyEnv    bool
		nameservers string
		conf        string
	}{
		{Unsettled{ProxyEnv: true, EngineConf: theirs, OwnConf: own}, false, "[127.0.0.11]", "nameserver 198.18.0.1\nsearch corp.example\n"},
		{Unsettled{EngineConf: theirs, OwnConf: own}, true, "[127.0.0.11]", "nameserver 198.18.0.1\nsearch corp.example\n"},
		{Unsettled{ProxyEnv: true, OwnConf: own}, false, "[]", "nameserver 198.18.0.1\n"},
	} {
		k := &Kept{ProxyEnv: true, Unsettled: &tt.unsettled}
		conf, err := k.settle()
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", mounted.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		if k.ProxyEnv != tt.proxyEnv || fmt.Sprint(k.Nameservers) != tt.nameservers || fmt.Sprint(conf.Nameservers) != tt.nameservers || string(text) != tt.conf {
			t.Errorf("%+v: %+v, conf %+v, mounted %q", tt, k, conf, text)
		}
	}
}

// TestOwnConf is what becomes of the engine's resolv.conf.
func TestOwnConf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in     string
		closed bool
		want   string // "" to keep it
	}{
		{"", true, "nameserver 198.18.0.1\n"},
		{"nameserver 10.89.0.1\nsearch dns.podman\n", false, ""},
		{"nameserver 10.89.0.1\nsearch dns.podman\n", true, "nameserver 198.18.0.1\n"},
		{"nameserver 127.0.0.53\nsearch corp.example\noptions ndots:3\n", false, "nameserver 198.18.0.1\nsearch corp.example\noptions ndots:3\n"},
		{"nameserver 127.0.0.11\noptions ndots:0\n", false, ""},
		{"nameserver 10.89.0.1\nnameserver ::1\n", false, "nameserver 198.18.0.1\n"},
	} {
		conf := resolver.ParseConf([]byte(tt.in))
		got := ""
		if needsOwnConf(&conf, tt.closed) {
			got = ownConf(&conf, tt.closed)
		}
		if got != tt.want {
			t.Errorf("%q, closed %v: %q, want %q", tt.in, tt.closed, got, tt.want)
		}
	}
}

// TestMountConf needs the engine's mount to be replaced, one to be added where
// there is a file or can be one, and no link to nowhere to be followed.
func TestMountConf(t *testing.T) {
	t.Parallel()
	plan := &spec.Plan{Mounts: []spec.Mount{{Mount: sandbox.Mount{Source: "/engine/resolv.conf", Target: "/etc/../etc/resolv.conf"}, Recursive: true}}}
	if err := mountConf(plan, "/own"); err != nil || len(plan.Mounts) != 1 || plan.Mounts[0].Source != "/own" {
		t.Errorf("error %v, mounts %+v", err, plan.Mounts)
	}
	for name, tt := range map[string]struct {
		link string
		want int
	}{"absent": {"", 1}, "dangling": {"/run/none", 0}, "absolute link": {"/etc/other", 1}} {
		root := t.TempDir()
		if err := errors.Join(os.Mkdir(root+"/etc", 0o755), os.WriteFile(root+"/etc/other", nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		if tt.link != "" {
			if err := os.Symlink(tt.link, root+"/etc/resolv.conf"); err != nil {
				t.Fatal(err)
			}
		}
		plan := &spec.Plan{Rootfs: root}
		if err := mountConf(plan, "/own"); err != nil || len(plan.Mounts) != tt.want {
			t.Errorf("%s: error %v, mounts %+v", name, err, plan.Mounts)
		}
	}
}
