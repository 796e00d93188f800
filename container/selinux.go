package container

import "eggrun/spec"

// dropLabels takes the SELinux labels out of a plan for a host without SELinux.
// They are no wish for a wall that could then be missed, but what the engine
// that wrote config.json would have the container called, if anybody asked;
// a bundle may well come from another host. crun ignores them too, while runc
// refuses the label of the process.
func dropLabels(plan *spec.Plan, hasSELinux bool) {
	if hasSELinux {
		return
	}
	plan.MountLabel = ""
	if plan.Process != nil {
		plan.Process.SelinuxLabel = ""
	}
}

// dropProfile does the same with the AppArmor profile.
func dropProfile(plan *spec.Plan, hasAppArmor bool) {
	if !hasAppArmor && plan.Process != nil {
		plan.Process.ApparmorProfile = ""
	}
}
