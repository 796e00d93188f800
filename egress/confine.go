package egress

import (
	"fmt"
	"slices"
	"strings"

	"eggrun/policy"
	"eggrun/sandbox"
	"eggrun/spec"
)

// Surroundings are what [Confine] has to know beside the plan.
type Surroundings struct {
	// FDs are the caller's descriptors that the program gets, without those that
	// its terminal replaces.
	FDs []int
	// DevicesOpen is set where no cgroup keeps the program from a device that it
	// has made a node of.
	DevicesOpen bool
	// NotifyDir is a directory that an engine mounts with a socket, notify.sock, on
	// which it hears how the program is, and nothing that could do harm.
	NotifyDir string
	// Where is where the caller's sidecars and containers have their files.
	Where Where
}

// Confine takes from the plan of a container with a policy every right by which
// its program could undo the wall, and refuses, as an
// [sandbox.EnforcementError], what leads around it: processes and sockets of the
// host, devices, settings of the network, descriptors.
//
// Each gap comes with what mends it.
func Confine(plan *spec.Plan, pol *policy.Policy, around Surroundings) error {
	var g gaps
	clamp(plan, around.DevicesOpen)
	checkSysctls(&g, plan.Sysctl)
	checkDevices(&g, plan)
	if plan.Seccomp != nil && plan.Seccomp.ListenerPath != "" {
		// As those do that give rootless containers the host's network.
		g.add("use a profile without SCMP_ACT_NOTIFY", "linux.seccomp.listenerPath: an agent could hand it sockets of the host")
	}
	if err := checkPIDNamespace(&g, plan); err != nil {
		return err
	}
	if err := checkMounts(&g, plan, pol, around); err != nil {
		return err
	}
	if err := checkDescriptors(&g, around.FDs, networkOf(plan), pol.AllowFDs); err != nil {
		return err
	}
	return g.err()
}

// ConfineExec does for a further process of a container with a policy what
// [Confine] does for its first. initPID is the container's init.
func ConfineExec(process *spec.Process, initPID int, pol *policy.Policy, around Surroundings) error {
	process.Capabilities = clampCapabilities(process.Capabilities, around.DevicesOpen)
	var g gaps
	if err := checkDescriptors(&g, around.FDs, fmt.Sprintf("/proc/%d/ns/net", initPID), pol.AllowFDs); err != nil {
		return err
	}
	return g.err()
}

// gaps are what cannot be enforced, and what to do about each.
type gaps struct {
	found, fixes []string
}

func (g *gaps) add(fix, format string, args ...any) {
	g.found = append(g.found, "domains: "+fmt.Sprintf(format, args...))
	if !slices.Contains(g.fixes, fix) {
		g.fixes = append(g.fixes, fix)
	}
}

// err returns nil where nothing was found.
func (g *gaps) err() error {
	if g.found == nil {
		return nil
	}
	return &sandbox.EnforcementError{Gaps: g.found, Platform: strings.Join(g.fixes, ", ")}
}
