package spec

import (
	"encoding/json"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// The files have what runc 1.5 wrote on a host with cgroup v1, on one with v2,
// and for user 1000 of group 1001.
func TestExampleIsRuncs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		file string
		got  *specs.Spec
	}{
		{"runc-1.5", Example(false)},
		{"runc-1.5-unified", Example(true)},
		{"runc-1.5-rootless", ExampleRootless(false, 1000, 1001)},
	} {
		want := load(t, test.file)
		want.Hostname = "eggrun"
		if got, want := text(t, test.got), text(t, want); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.file, got, want)
		}
		if _, err := Translate(test.got, testBundle, nil); err != nil {
			t.Errorf("%s: %v", test.file, err)
		}
	}
}

func text(t *testing.T, config *specs.Spec) string {
	t.Helper()
	data, err := json.MarshalIndent(config, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
