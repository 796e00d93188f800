package spec

import (
	"maps"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// MemoryPolicy is linux.memoryPolicy in the numbers of set_mempolicy(2).
type MemoryPolicy struct {
	// Mode is an MPOL_* number with MPOL_F_* bits.
	Mode  int       `json:"mode"`
	Nodes []IDRange `json:"nodes,omitempty"`
}

var memoryModes = map[specs.MemoryPolicyModeType]int{
	specs.MpolDefault:            unix.MPOL_DEFAULT,
	specs.MpolBind:               unix.MPOL_BIND,
	specs.MpolInterleave:         unix.MPOL_INTERLEAVE,
	specs.MpolWeightedInterleave: unix.MPOL_WEIGHTED_INTERLEAVE,
	specs.MpolPreferred:          unix.MPOL_PREFERRED,
	specs.MpolPreferredMany:      unix.MPOL_PREFERRED_MANY,
	specs.MpolLocal:              unix.MPOL_LOCAL,
}

var memoryFlags = map[specs.MemoryPolicyFlagType]int{
	specs.MpolFNumaBalancing: unix.MPOL_F_NUMA_BALANCING,
	specs.MpolFRelativeNodes: unix.MPOL_F_RELATIVE_NODES,
	specs.MpolFStaticNodes:   unix.MPOL_F_STATIC_NODES,
}

// MemoryPolicyModes returns the modes that linux.memoryPolicy may name, sorted.
func MemoryPolicyModes() []string { return sortedNames(memoryModes) }

// MemoryPolicyFlags returns the flags that linux.memoryPolicy may name, sorted.
func MemoryPolicyFlags() []string { return sortedNames(memoryFlags) }

func sortedNames[Name ~string](table map[Name]int) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(table)) {
		names = append(names, string(name))
	}
	return names
}

func translateMemoryPolicy(src *source, plan *Plan) error {
	from := src.linux.MemoryPolicy
	if from == nil {
		return nil
	}
	const field = "linux.memoryPolicy"
	mode, ok := memoryModes[from.Mode]
	if !ok {
		return invalidValue(field+".mode", string(from.Mode), "no such mode")
	}
	policy := &MemoryPolicy{Mode: mode}
	for i, name := range from.Flags {
		bit, ok := memoryFlags[name]
		if !ok {
			return invalidValue(at(field+".flags", i), string(name), "no such flag")
		}
		policy.Mode |= bit
	}
	const exclusive = unix.MPOL_F_STATIC_NODES | unix.MPOL_F_RELATIVE_NODES
	if policy.Mode&exclusive == exclusive {
		return invalid(field+".flags", "static and relative nodes exclude each other")
	}
	if from.Nodes != "" {
		nodes, err := ParseIDList(from.Nodes)
		if err != nil {
			return invalidValue(field+".nodes", from.Nodes, "%v", err)
		}
		policy.Nodes = nodes
	}
	switch mode {
	case unix.MPOL_DEFAULT, unix.MPOL_LOCAL:
		if len(policy.Nodes) > 0 {
			return invalidValue(field+".nodes", from.Nodes, "must be empty with %s", from.Mode)
		}
	case unix.MPOL_PREFERRED: // without nodes it means the local one
	default:
		if len(policy.Nodes) == 0 {
			return invalid(field+".nodes", "must not be empty with %s", from.Mode)
		}
	}
	plan.MemoryPolicy = policy
	return nil
}

// Execution domains of personality(2).
const (
	perLinux   = 0x0
	perLinux32 = 0x8
)

func translatePersonality(src *source, plan *Plan) error {
	from := src.linux.Personality
	if from == nil {
		return nil
	}
	var persona uint32
	switch from.Domain {
	case specs.PerLinux:
		persona = perLinux
	case specs.PerLinux32:
		persona = perLinux32
	default:
		return invalidValue("linux.personality.domain", string(from.Domain), "want LINUX or LINUX32")
	}
	if len(from.Flags) > 0 {
		return invalidValue("linux.personality.flags[0]", string(from.Flags[0]), "no such flag; the specification has none")
	}
	plan.Personality = &persona
	return nil
}
