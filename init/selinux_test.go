package initproc

import (
	"slices"
	"testing"

	"eggrun/spec"
)

func TestLabelledData(t *testing.T) {
	t.Parallel()
	const label = "system_u:object_r:container_file_t:s0:c1,c2"
	for _, test := range []struct {
		name  string
		mount spec.Mount
		label string
		want  []string
	}{
		{"tmpfs", spec.Mount{Type: "tmpfs", Data: []string{"size=1m"}}, label, []string{"size=1m", "context=" + label}},
		{"devpts", spec.Mount{Type: "devpts"}, label, []string{"context=" + label}},
		{"no label", spec.Mount{Type: "tmpfs", Data: []string{"size=1m"}}, "", []string{"size=1m"}},
		{"a label of its own", spec.Mount{Type: "tmpfs", Data: []string{"rootcontext=a:b:c"}}, label, []string{"rootcontext=a:b:c"}},
		{"proc", spec.Mount{Type: "proc"}, label, nil},
		{"sysfs", spec.Mount{Type: "sysfs"}, label, nil},
		{"mqueue", spec.Mount{Type: "mqueue"}, label, nil},
		{"cgroup", spec.Mount{Type: "cgroup2"}, label, nil},
	} {
		if got := labelledData(&test.mount, &spec.Plan{MountLabel: test.label}); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
	got := labelledData(&spec.Mount{Type: "tmpfs"}, &spec.Plan{MountLabel: label, MountContext: "rootcontext"})
	if want := []string{"rootcontext=" + label}; !slices.Equal(got, want) {
		t.Errorf("with an annotation: got %q, want %q", got, want)
	}
}
