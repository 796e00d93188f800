package container

import (
	"slices"
	"strings"
	"testing"

	"eggrun/internal/syncsocket"
	"eggrun/sandbox"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func bind(source, target string) spec.Mount {
	return spec.Mount{Mount: sandbox.Mount{Source: source, Target: target}}
}

func other(kind, target string) spec.Mount {
	return spec.Mount{Mount: sandbox.Mount{Source: kind, Target: target}, Type: kind}
}

func TestMountPoints(t *testing.T) {
	t.Parallel()
	got := mountPoints([]spec.Mount{
		other("proc", "/proc"), other("tmpfs", "/dev"), other("devpts", "/dev/pts"), bind("/host/a", "/a"),
		bind("/host/file", "/dev/file"), bind("/host/b", "/device"), other("sysfs", "/sys"), other("cgroup", "/sys/fs/cgroup"),
	})
	want := []syncsocket.CriuMountPoint{
		{Target: "/proc"}, {Target: "/dev"}, {Target: "/a", Source: "/host/a"}, {Target: "/device", Source: "/host/b"}, {Target: "/sys"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestRestoredMounts: names are destinations, and none of them ends criu's
// notation. What the host's path looks like does not matter.
func TestRestoredMounts(t *testing.T) {
	t.Parallel()
	plan := &spec.Plan{
		Mounts:     []spec.Mount{bind("/host/[a]:b", "/a"), other("tmpfs", "/t"), other("cgroup", "/sys/fs/cgroup")},
		Namespaces: []spec.Namespace{{Type: specs.CgroupNamespace}},
		Devices:    []spec.Device{{Path: "/dev/null"}},
	}
	got, err := restoredMounts(0, plan, true)
	want := []syncsocket.CriuMount{{Key: devNull, Value: devNull}, {Key: "/a", Value: "/host/[a]:b"}, {Key: "/dev/null", Value: "/dev/null"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	plan.Mounts = append(plan.Mounts, bind("/host", "/x]:/etc"))
	if _, err := restoredMounts(0, plan, true); err == nil || !strings.Contains(err.Error(), "cannot be restored with") {
		t.Errorf("error %v", err)
	}
}

func TestNamedMounts(t *testing.T) {
	t.Parallel()
	d := &dumper{named: map[string]string{}}
	for _, tt := range []struct{ at, name, wantErr string }{
		{"/a", "/a", ""},
		{"/real/b", "/b", ""},
		{"/a", "/a", ""}, // mounted twice
		{"/a", "/c", "is also found on"},
		{"/x]:", "/d", "[ ] :"},
		{"/e", "/x[", "[ ] :"},
	} {
		err := d.name(tt.at, tt.name)
		if (err == nil) != (tt.wantErr == "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
			t.Errorf("%s as %s: error %v, want %q", tt.at, tt.name, err, tt.wantErr)
		}
	}
	want := []syncsocket.CriuMount{{Key: "/a", Value: "/a"}, {Key: "/real/b", Value: "/b"}}
	if !slices.Equal(d.mounts, want) {
		t.Errorf("%v, want %v", d.mounts, want)
	}
}
