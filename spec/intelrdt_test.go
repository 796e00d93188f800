package spec

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestIntelRdt(t *testing.T) {
	t.Parallel()
	rdt := func(rdt specs.LinuxIntelRdt) func(*specs.Spec) {
		return func(c *specs.Spec) { c.Linux.IntelRdt = &rdt }
	}
	runErrorTests(t, false, []errorTest{
		{"empty", rdt(specs.LinuxIntelRdt{}), ""},
		{"default class", rdt(specs.LinuxIntelRdt{ClosID: "/"}), ""},
		{"class", rdt(specs.LinuxIntelRdt{ClosID: "gold", L3CacheSchema: "L3:0=f", MemBwSchema: "MB:0=20"}), ""},
		{"path", rdt(specs.LinuxIntelRdt{ClosID: "../x"}), `linux.intelRdt.closID "../x": not the name of a class of service`},
		{"parent", rdt(specs.LinuxIntelRdt{ClosID: ".."}), `linux.intelRdt.closID "..": not the name of a class of service`},
		{"a directory of the kernel's", rdt(specs.LinuxIntelRdt{ClosID: "info"}), `linux.intelRdt.closID "info": not the name of a class of service`},
		{"two lines", rdt(specs.LinuxIntelRdt{Schemata: []string{"a", "b\nc"}}), `linux.intelRdt.schemata[1] "b\nc": must be one line`},
		{"bandwidth of a cache", rdt(specs.LinuxIntelRdt{MemBwSchema: "L3:0=f"}), `linux.intelRdt.memBwSchema "L3:0=f": must start with MB:`},
	})
}
