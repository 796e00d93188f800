package egress

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"eggrun/sandbox"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestWayOut has each kind of mount that leads to a process of the host, and
// its harmless neighbour.
func TestWayOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	makeDir := func(path string) string {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	listen := func(path string) string {
		path = filepath.Join(makeDir(path), "s")
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		return path
	}
	socket := listen("volume/deep")
	listen("far/1/2/3")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Dir(socket), link); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(makeDir("clean"), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	const services = "is where services of the host listen"
	for _, tt := range []struct{ source, want string }{
		{socket, "a socket of the host"},
		{filepath.Dir(socket), "is in it"},
		{link, "is in it"},
		{filepath.Join(dir, "volume"), "is in it"},
		{"/", services},
		{"/run", services},
		{"/var/run", services},
		{"/var/", services},
		{"/tmp/", services},
		{filepath.Join(dir, "clean"), ""},
		{file, ""},
		{filepath.Join(dir, "far"), ""}, // deeper than is looked
		{filepath.Join(dir, "missing"), ""},
		{"/dev/null", ""},
	} {
		got, err := wayOut(tt.source)
		if err != nil || tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, %v, want %q", tt.source, got, err, tt.want)
		}
	}
}

func TestOtherWays(t *testing.T) {
	t.Parallel()
	own := []spec.Namespace{{Type: specs.PIDNamespace}}
	run := spec.Mount{Mount: sandbox.Mount{Source: "/run", Target: "/host"}}
	tmpfs := spec.Mount{Mount: sandbox.Mount{Source: "/run", Target: "/run"}, Type: "tmpfs"}
	for what, plan := range map[string]*spec.Plan{
		"no pid namespace": {},
		"the caller's":     {Namespaces: []spec.Namespace{{Type: specs.PIDNamespace, Path: "/proc/self/ns/pid"}}},
		"a mount":          {Namespaces: own, Mounts: []spec.Mount{tmpfs, run}},
	} {
		if err := checkOtherWays(plan); err == nil || !strings.Contains(err.Error(), "cannot enforce domains: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := checkOtherWays(&spec.Plan{Namespaces: own, Mounts: []spec.Mount{tmpfs}}); err != nil {
		t.Error(err)
	}
}
