package integration

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestZZSmall(t *testing.T) {
	each(t, func(t *testing.T, l *lab) {
		for _, pids := range []int64{2, 3, 5, 8, 12} {
			c := l.sleeper(func(spec *specs.Spec) { spec.Linux.Resources = &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &pids}} })
			r := c.exec(nil, "true")
			t.Logf("pids %d: %d %q", pids, r.code, r.stderr)
		}
		for _, mb := range []int64{2, 4, 6, 10, 16} {
			memory := mb << 20
			c := l.sleeper(func(spec *specs.Spec) { spec.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &memory, Swap: &memory}} })
			bad := 0
			for range 5 { r := c.exec(nil, "true"); if r.code != 0 { bad++; t.Logf("%q", r.stderr) } }
			t.Logf("memory %d: %d bad, status %s", mb, bad, c.state().Status)
		}
	})
}
