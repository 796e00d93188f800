package spec

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestAnnotations(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key, value string
		more       map[string]string
		want       Plan
		wantErr    string
	}{
		{key: "other", value: "x"},
		{key: KeyKeepGroups, value: "1", want: Plan{KeepGroups: true}},
		{key: KeyKeepGroups, value: "", want: Plan{KeepGroups: true}}, // it is there
		{key: KeyMountContext, value: "context", want: Plan{MountContext: "context"}},
		{key: KeyMountContext, value: "rootcontext", want: Plan{MountContext: "rootcontext"}},
		{key: KeyMountContext, value: "uid=0,context", wantErr: `config.json: annotations.run.oci.mount_context_type "uid=0,context": want context, fscontext, defcontext or rootcontext`},
		{key: KeySubgroup, value: "", want: Plan{}},
		{key: KeySubgroup, value: "a", want: Plan{Subgroup: "a"}},
		{key: KeySubgroup, value: "..", wantErr: `config.json: annotations.run.oci.systemd.subgroup "..": want the name of one cgroup`},
		{key: KeySubgroup, value: "a/b", wantErr: `config.json: annotations.run.oci.systemd.subgroup "a/b": want the name of one cgroup`},
		{key: KeyDelegateCgroup, value: "b", more: map[string]string{KeySubgroup: "a"}, want: Plan{Subgroup: "a", DelegateCgroup: "b"}},
		{key: KeyDelegateCgroup, value: "b", wantErr: `config.json: annotations.run.oci.delegate-cgroup: needs run.oci.systemd.subgroup, too`},
	} {
		annotations := map[string]string{tt.key: tt.value}
		for key, value := range tt.more {
			annotations[key] = value
		}
		plan := &Plan{}
		err := translateAnnotations(&source{Spec: &specs.Spec{Annotations: annotations}}, plan)
		if tt.wantErr != "" {
			if err == nil || err.Error() != tt.wantErr {
				t.Errorf("%s=%s: error %v, want %s", tt.key, tt.value, err, tt.wantErr)
			}
			continue
		}
		got := plan
		want := tt.want
		if err != nil || got.KeepGroups != want.KeepGroups || got.MountContext != want.MountContext || got.Subgroup != want.Subgroup || got.DelegateCgroup != want.DelegateCgroup {
			t.Errorf("%s=%s: %+v, error %v, want %+v", tt.key, tt.value, got, err, want)
		}
	}
}
