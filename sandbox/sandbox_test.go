package sandbox

import (
	"errors"
	"io/fs"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestNetworkNeedOrder(t *testing.T) {
	t.Parallel()
	if !(NetworkNone < NetworkLocal && NetworkLocal < NetworkHTTPS && NetworkHTTPS < NetworkFull) {
		t.Error("needs are not ordered none < local < https < full")
	}
}

func TestNetworkNeedString(t *testing.T) {
	t.Parallel()
	for need, want := range map[NetworkNeed]string{
		NetworkNone: "none", NetworkLocal: "local", NetworkHTTPS: "https", NetworkFull: "full",
		-1: "unknown", 4: "unknown",
	} {
		if got := need.String(); got != want {
			t.Errorf("NetworkNeed(%d).String() = %q, want %q", int(need), got, want)
		}
	}
}

func TestNetworkNeedFromDomains(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		domains []string
		want    NetworkNeed
	}{
		{"nil", nil, NetworkNone},
		{"empty", []string{}, NetworkNone},
		{"star", []string{"*"}, NetworkFull},
		{"star beside others", []string{"a.test", "*", "localhost"}, NetworkFull},
		{"star with space", []string{" *\t"}, NetworkFull},
		{"localhost", []string{"localhost"}, NetworkLocal},
		{"127.0.0.1", []string{"127.0.0.1"}, NetworkLocal},
		{"::1", []string{"::1"}, NetworkLocal},
		{"all three", []string{"localhost", "127.0.0.1", "::1"}, NetworkLocal},
		{"one remote", []string{"api.anthropic.com"}, NetworkHTTPS},
		{"two remote", []string{"api.anthropic.com", "github.com"}, NetworkHTTPS},
		{"mix", []string{"localhost", "api.anthropic.com"}, NetworkHTTPS},
		{"wildcard", []string{"*.anthropic.com"}, NetworkHTTPS},

		// Each of these was https where the seed compared bytes.
		{"upper case", []string{"LOCALHOST"}, NetworkLocal},
		{"trailing dot", []string{"localhost."}, NetworkLocal},
		{"white space", []string{"  localhost \n"}, NetworkLocal},
		{"port", []string{"localhost:11434"}, NetworkLocal},
		{"dot and port", []string{"localhost.:11434"}, NetworkLocal},
		{"any port", []string{"127.0.0.1:*"}, NetworkLocal},
		{"brackets", []string{"[::1]"}, NetworkLocal},
		{"brackets and port", []string{"[::1]:11434"}, NetworkLocal},
		{"long form", []string{"0:0:0:0:0:0:0:1"}, NetworkLocal},
		{"mapped", []string{"::ffff:127.0.0.1"}, NetworkLocal},
		{"empty string", []string{""}, NetworkNone},
		{"empty beside local", []string{"", " ", "localhost"}, NetworkLocal},
		{"empty beside remote", []string{"", "a.test"}, NetworkHTTPS},

		{"two dots", []string{"localhost.."}, NetworkHTTPS},
		{"other loopback", []string{"127.0.0.2"}, NetworkHTTPS},
		{"any address", []string{"0.0.0.0"}, NetworkHTTPS},
		{"below localhost", []string{"x.localhost"}, NetworkHTTPS},
		{"wildcard localhost", []string{"*.localhost"}, NetworkHTTPS},
		{"suffix", []string{"notlocalhost"}, NetworkHTTPS},
		{"bad port", []string{"localhost:0"}, NetworkHTTPS},
		{"port too big", []string{"localhost:65536"}, NetworkHTTPS},
		{"star with port", []string{"*:443"}, NetworkHTTPS},
		{"open bracket", []string{"[::1"}, NetworkHTTPS},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := NetworkNeedFromDomains(tt.domains); got != tt.want {
				t.Errorf("NetworkNeedFromDomains(%q) = %v, want %v", tt.domains, got, tt.want)
			}
		})
	}
}

func TestEnforcementError(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  EnforcementError
		want string
	}{
		{"one gap and advice", EnforcementError{
			Gaps: []string{"domains: host network requested"}, Platform: "run with --network none or a bridge",
		}, "cannot enforce domains: host network requested; run with --network none or a bridge"},
		{"two gaps", EnforcementError{
			Gaps: []string{"domains: no nftables", "deny \"/x\": no user namespace"}, Platform: "load nf_tables",
		}, `cannot enforce domains: no nftables, deny "/x": no user namespace; load nf_tables`},
		{"no advice", EnforcementError{Gaps: []string{"domains: no loopback"}}, "cannot enforce domains: no loopback"},
		{"cause stays out of the text", EnforcementError{Gaps: []string{"domains: no loopback"}, Err: fs.ErrExist}, "cannot enforce domains: no loopback"},
		{"nothing but a cause", EnforcementError{Err: fs.ErrExist}, "cannot enforce the sandbox: file already exists"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.err.Error(); got != tt.want {
				t.Errorf("Error() = %q, want %q", got, tt.want)
			}
			if tt.err.Err != nil && !errors.Is(&tt.err, tt.err.Err) {
				t.Error("the cause cannot be found with errors.Is")
			}
		})
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		config  Config
		wantErr string
	}{
		{"zero", Config{}, ""},
		{"full", Config{
			Mounts: []Mount{{Source: "/a", Target: "/b", ReadOnly: true}}, Deny: []string{"/c"}, DenyWrite: []string{"/d"},
			NetworkNeed: NetworkFull, Domains: []string{"a.test"}, ProxyPort: 65535,
			CPULimit: 2 * time.Second, MemLimit: 1, MaxFDs: 3,
		}, ""},
		{"half a second", Config{CPULimit: 500 * time.Millisecond}, `cpu limit "500ms": not a whole number of seconds; use 1s`},
		{"a bit over", Config{CPULimit: 2*time.Second + 1}, `cpu limit "2.000000001s": not a whole number of seconds; use 3s`},
		{"largest", Config{CPULimit: math.MaxInt64}, `cpu limit "2562047h47m16.854775807s": not a whole number of seconds; use 2562047h47m16s`},
		{"negative", Config{CPULimit: -time.Second}, `cpu limit "-1s": negative; use 0 for no limit`},
		{"proxy port too big", Config{ProxyPort: 65536}, `proxy port "65536": not a TCP port; use 1 to 65535, or 0 for no proxy`},
		{"proxy port negative", Config{ProxyPort: -1}, `proxy port "-1": not a TCP port; use 1 to 65535, or 0 for no proxy`},
		{"unknown need", Config{NetworkNeed: 4}, `network need "4": unknown; use none, local, https or full`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.config.Validate()
			if got := text(err); got != tt.wantErr {
				t.Errorf("Validate() = %q, want %q", got, tt.wantErr)
			}
			if enforcement := new(EnforcementError); errors.As(err, &enforcement) {
				t.Errorf("a value without a meaning is an enforcement gap: %v", err)
			}
		})
	}
}

func TestConfigValidateRegexMount(t *testing.T) {
	t.Parallel()
	err := Config{Mounts: []Mount{{Source: "/ok"}, {Source: "/root/.claude", UseRegex: true}}}.Validate()
	if runtime.GOOS != "linux" {
		if err != nil {
			t.Fatalf("Validate() = %v, want nil", err)
		}
		return
	}
	var enforcement *EnforcementError
	if !errors.As(err, &enforcement) {
		t.Fatalf("Validate() = %v, want an *EnforcementError", err)
	}
	want := `cannot enforce mount "/root/.claude": a bind mount covers one path, not every name that begins with it; list each path as a mount of its own`
	if err.Error() != want {
		t.Errorf("Error() = %q, want %q", err, want)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Error("the message has more than one line")
	}
}

// text returns the text of err, empty for nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
