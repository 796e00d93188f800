package spec

import (
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestTimeOffsets(t *testing.T) {
	t.Parallel()
	config := minimal()
	config.Linux.Namespaces = namespace(specs.TimeNamespace)
	config.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{
		"monotonic": {Secs: -5, Nanosecs: 999_999_999},
		"boottime":  {Secs: 1 << 40},
	}
	plan, err := Translate(config, testBundle, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []TimeOffset{{Clock: "boottime", Secs: 1 << 40}, {Clock: "monotonic", Secs: -5, Nanosecs: 999_999_999}}
	if !slices.Equal(plan.TimeOffsets, want) {
		t.Errorf("got %+v, want %+v", plan.TimeOffsets, want)
	}
}

func TestTranslateRefusesTimeOffsets(t *testing.T) {
	t.Parallel()
	offsets := func(namespaces []specs.LinuxNamespace, clock string, offset specs.LinuxTimeOffset) func(*specs.Spec) {
		return func(c *specs.Spec) {
			c.Linux.Namespaces = namespaces
			c.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{clock: offset}
		}
	}
	fresh := namespace(specs.TimeNamespace)
	joined := append(namespace(), specs.LinuxNamespace{Type: specs.TimeNamespace, Path: "/proc/1/ns/time"})
	const needsNew = `linux.timeOffsets: needs a new time namespace in linux.namespaces`
	runErrorTests(t, false, []errorTest{
		{"namespace", func(c *specs.Spec) { c.Linux.Namespaces = fresh }, ""},
		{"joined namespace", func(c *specs.Spec) { c.Linux.Namespaces = joined }, ""},
		{"new", offsets(fresh, "boottime", specs.LinuxTimeOffset{}), ""},
		{"none", offsets(namespace(), "boottime", specs.LinuxTimeOffset{}), needsNew},
		{"joined", offsets(joined, "boottime", specs.LinuxTimeOffset{}), needsNew},
		{"clock", offsets(fresh, "realtime", specs.LinuxTimeOffset{}), `linux.timeOffsets "realtime": want monotonic or boottime`},
		{"nanosecs", offsets(fresh, "monotonic", specs.LinuxTimeOffset{Nanosecs: 1e9}), `linux.timeOffsets.monotonic.nanosecs 1000000000: must be less than 1000000000`},
	})
}
