package spec

import (
	"reflect"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestTranslateMemoryPolicy(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		from specs.LinuxMemoryPolicy
		want MemoryPolicy
	}{
		{specs.LinuxMemoryPolicy{Mode: specs.MpolDefault}, MemoryPolicy{}},
		{specs.LinuxMemoryPolicy{Mode: specs.MpolLocal}, MemoryPolicy{Mode: unix.MPOL_LOCAL}},
		{specs.LinuxMemoryPolicy{Mode: specs.MpolPreferred}, MemoryPolicy{Mode: unix.MPOL_PREFERRED}},
		{
			specs.LinuxMemoryPolicy{Mode: specs.MpolBind, Nodes: "0-1,3", Flags: []specs.MemoryPolicyFlagType{specs.MpolFStaticNodes, specs.MpolFNumaBalancing}},
			MemoryPolicy{Mode: unix.MPOL_BIND | unix.MPOL_F_STATIC_NODES | unix.MPOL_F_NUMA_BALANCING, Nodes: []IDRange{{0, 1}, {3, 3}}},
		},
	} {
		config := minimal()
		config.Linux.MemoryPolicy = &test.from
		plan, err := Translate(config, testBundle, nil)
		if err != nil {
			t.Errorf("%+v: %v", test.from, err)
			continue
		}
		if !reflect.DeepEqual(*plan.MemoryPolicy, test.want) {
			t.Errorf("%+v: got %+v, want %+v", test.from, *plan.MemoryPolicy, test.want)
		}
	}
}

func TestTranslateRefusesMemoryPolicy(t *testing.T) {
	t.Parallel()
	policy := func(mode specs.MemoryPolicyModeType, nodes string, flags ...specs.MemoryPolicyFlagType) func(*specs.Spec) {
		return func(c *specs.Spec) {
			c.Linux.MemoryPolicy = &specs.LinuxMemoryPolicy{Mode: mode, Nodes: nodes, Flags: flags}
		}
	}
	const field = `linux.memoryPolicy`
	runErrorTests(t, false, []errorTest{
		{"none", policy("", ""), field + `.mode "": no such mode`},
		{"odd mode", policy("BIND", "0"), field + `.mode "BIND": no such mode`},
		{"odd flag", policy(specs.MpolBind, "0", "x"), field + `.flags[0] "x": no such flag`},
		{"static", policy(specs.MpolBind, "0", specs.MpolFStaticNodes), ""},
		{"static and relative", policy(specs.MpolBind, "0", specs.MpolFStaticNodes, specs.MpolFRelativeNodes), field + `.flags: static and relative nodes exclude each other`},
		{"odd nodes", policy(specs.MpolBind, "0,x"), field + `.nodes "0,x": "x" is neither a number nor a range, at most 65535`},
		{"default with nodes", policy(specs.MpolDefault, "0"), field + `.nodes "0": must be empty with MPOL_DEFAULT`},
		{"local with nodes", policy(specs.MpolLocal, "0"), field + `.nodes "0": must be empty with MPOL_LOCAL`},
		{"bind without", policy(specs.MpolBind, ""), field + `.nodes: must not be empty with MPOL_BIND`},
		{"interleave without", policy(specs.MpolInterleave, ""), field + `.nodes: must not be empty with MPOL_INTERLEAVE`},
		{"weighted without", policy(specs.MpolWeightedInterleave, ""), field + `.nodes: must not be empty with MPOL_WEIGHTED_INTERLEAVE`},
		{"many without", policy(specs.MpolPreferredMany, ""), field + `.nodes: must not be empty with MPOL_PREFERRED_MANY`},
	})
	if got := MemoryPolicyModes(); len(got) != 7 || !slices.IsSorted(got) {
		t.Errorf("modes: %q", got)
	}
	if got, want := MemoryPolicyFlags(), []string{"MPOL_F_NUMA_BALANCING", "MPOL_F_RELATIVE_NODES", "MPOL_F_STATIC_NODES"}; !slices.Equal(got, want) {
		t.Errorf("flags: got %q, want %q", got, want)
	}
}

func TestTranslatePersonality(t *testing.T) {
	t.Parallel()
	for domain, want := range map[specs.LinuxPersonalityDomain]uint32{specs.PerLinux: 0, specs.PerLinux32: 8} {
		config := minimal()
		config.Linux.Personality = &specs.LinuxPersonality{Domain: domain}
		plan, err := Translate(config, testBundle, nil)
		if err != nil || plan.Personality == nil || *plan.Personality != want {
			t.Errorf("%s: got %+v, %v, want %d", domain, plan, err, want)
		}
	}
	personality := func(p specs.LinuxPersonality) func(*specs.Spec) {
		return func(c *specs.Spec) { c.Linux.Personality = &p }
	}
	runErrorTests(t, false, []errorTest{
		{"empty", personality(specs.LinuxPersonality{}), `linux.personality.domain "": want LINUX or LINUX32`},
		{"lower case", personality(specs.LinuxPersonality{Domain: "linux"}), `linux.personality.domain "linux": want LINUX or LINUX32`},
		{"flag", personality(specs.LinuxPersonality{Domain: specs.PerLinux, Flags: []specs.LinuxPersonalityFlag{"ADDR_NO_RANDOMIZE"}}),
			`linux.personality.flags[0] "ADDR_NO_RANDOMIZE": no such flag; the specification has none`},
	})
}
