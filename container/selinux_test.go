package container

import (
	"testing"

	"eggrun/spec"
)

func TestDropLabels(t *testing.T) {
	t.Parallel()
	for _, hasSELinux := range []bool{true, false} {
		plan := &spec.Plan{MountLabel: "m", Process: &spec.Process{SelinuxLabel: "p"}}
		dropLabels(plan, hasSELinux)
		if kept := plan.MountLabel == "m" && plan.Process.SelinuxLabel == "p"; kept != hasSELinux {
			t.Errorf("with SELinux %v: left with %q and %q", hasSELinux, plan.MountLabel, plan.Process.SelinuxLabel)
		}
	}
	dropLabels(&spec.Plan{MountLabel: "m"}, false) // without a process
}

func TestDropProfile(t *testing.T) {
	t.Parallel()
	for _, hasAppArmor := range []bool{true, false} {
		plan := &spec.Plan{Process: &spec.Process{ApparmorProfile: "p", SelinuxLabel: "l"}}
		dropProfile(plan, hasAppArmor)
		if kept := plan.Process.ApparmorProfile == "p"; kept != hasAppArmor || plan.Process.SelinuxLabel != "l" {
			t.Errorf("with AppArmor %v: left with %+v", hasAppArmor, plan.Process)
		}
	}
	dropProfile(&spec.Plan{}, false) // without a process
}
