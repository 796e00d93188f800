package spec

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// translateSeccomp leaves nil for a profile that has nothing to apply, as runc
// does: no default action and no rule.
func translateSeccomp(src *source, plan *Plan) error {
	profile := src.linux.Seccomp
	if profile == nil {
		return nil
	}
	const field = "linux.seccomp."
	if profile.ListenerMetadata != "" && profile.ListenerPath == "" {
		return invalid(field+"listenerMetadata", "needs listenerPath")
	}
	if profile.DefaultAction == "" && len(profile.Syscalls) == 0 {
		return nil
	}
	// Every call of init's own would wait for an agent that nobody has told.
	if profile.DefaultAction == specs.ActNotify {
		return invalidValue(field+"defaultAction", profile.DefaultAction, "must be an action that needs no agent")
	}
	used := false
	for i, rule := range profile.Syscalls {
		if rule.Action != specs.ActNotify {
			continue
		}
		used = true
		// With write(2), under the filter already, init says which of its
		// descriptors the agent needs: it would wait for the agent to let it
		// tell the agent.
		if j := slices.Index(rule.Names, "write"); j >= 0 {
			return invalidValue(at(at(field+"syscalls", i)+".names", j), "write", "SCMP_ACT_NOTIFY would stop init before the agent is told; use another action")
		}
	}
	kept := *profile
	switch {
	case !used:
		kept.ListenerPath, kept.ListenerMetadata = "", ""
	case profile.ListenerPath == "":
		return invalid(field+"listenerPath", "must be set for SCMP_ACT_NOTIFY")
	default:
		if err := absolute(field+"listenerPath", profile.ListenerPath); err != nil {
			return err
		}
	}
	plan.Seccomp = &kept
	return nil
}
