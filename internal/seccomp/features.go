package seccomp

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go/features"
)

// Features returns the linux.seccomp part of what `eggrun features` prints: what
// [Compile] accepts, and which flags libseccomp and the running kernel know.
func Features() *features.Seccomp {
	on := enabled
	f := &features.Seccomp{Enabled: &on}
	if !on {
		return f
	}
	for _, a := range actions {
		f.Actions = append(f.Actions, string(a.name))
	}
	for _, op := range operators {
		f.Operators = append(f.Operators, string(op))
	}
	for _, a := range abis {
		f.Archs = append(f.Archs, string(a.name))
	}
	for _, flag := range flagNames {
		f.KnownFlags = append(f.KnownFlags, string(flag))
		if flagSupported(flag) {
			f.SupportedFlags = append(f.SupportedFlags, string(flag))
		}
	}
	slices.Sort(f.Actions)
	slices.Sort(f.Operators)
	slices.Sort(f.Archs)
	return f
}
