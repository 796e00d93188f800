package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
)

// joinCgroup moves init into its cgroup, unless pid is alreadyIn, and sets all
// limits but those that the runtime itself could break: see [lateLimits].
func joinCgroup(m cgroups.Manager, pid int, resources *cgroups.Resources) error {
	if pid != alreadyIn {
		if err := m.Apply(pid); err != nil && !errors.Is(err, cgroups.ErrRootless) {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	early, _ := splitLimits(withoutUnlimited(resources, hasController(m)))
	if err := orderDeviceRules(m, early); err != nil {
		return err
	}
	if err := m.Set(early); err != nil {
		return limitError(err)
	}
	return nil
}

// splitLimits returns resources without the limits of memory, processes and CPU
// time, and, where there are any, all of it but the device rules, else nil: with
// each change systemd writes all that it knows of a unit, and what it does not
// know, as the weight of block I/O, is then the default again.
func splitLimits(resources *cgroups.Resources) (early, late *cgroups.Resources) {
	rest := *resources
	rest.Memory, rest.MemorySwap, rest.MemoryReservation, rest.PidsLimit = 0, 0, 0, nil
	rest.CpuQuota, rest.CpuPeriod, rest.CpuBurst = 0, 0, nil
	rest.Unified = nil
	isLate := resources.Memory != 0 || resources.MemorySwap != 0 || resources.MemoryReservation != 0 || resources.PidsLimit != nil ||
		resources.CpuQuota != 0 || resources.CpuPeriod != 0 || resources.CpuBurst != nil
	for file, value := range resources.Unified {
		if strings.HasPrefix(file, "memory.") || strings.HasPrefix(file, "pids.") || strings.HasPrefix(file, "cpu.max") {
			isLate = true
			continue
		}
		if rest.Unified == nil {
			rest.Unified = make(map[string]string)
		}
		rest.Unified[file] = value
	}
	if !isLate {
		return &rest, nil
	}
	all := *resources
	all.Devices, all.SkipDevices = nil, true
	return &rest, &all
}

// limitError tells a limit for which this system has no controller from a
// program that is missing: engines look for the kernel's words.
func limitError(err error) error {
	var file *os.PathError
	if errors.As(err, &file) && errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cgroup limits: this cgroup has no %s; enable its controller or drop the limit", filepath.Base(file.Path))
	}
	return fmt.Errorf("cgroup limits: %w", err)
}

// lateLimits sets the limits of memory, processes and CPU time once init is
// ready: until then it is a Go program with its threads and some megabytes, which
// would take seconds with a hundredth of a CPU, after it the user's.
func lateLimits(m cgroups.Manager, resources *cgroups.Resources) error {
	_, late := splitLimits(withoutUnlimited(resources, hasController(m)))
	if late == nil {
		return nil
	}
	if err := m.Set(late); err != nil {
		return limitError(err)
	}
	return nil
}

// hasController tells which controllers, by their names in v2, a cgroup that is
// there has.
func hasController(m cgroups.Manager) func(name string) bool {
	if !cgroups.IsCgroup2UnifiedMode() {
		return func(name string) bool { return m.Path(name) != "" }
	}
	available, _ := cgroups.ReadFile(m.Path(""), "cgroup.controllers")
	return func(name string) bool { return slices.Contains(strings.Fields(available), name) }
}

// withoutUnlimited leaves out each "no limit" for which there is no controller:
// there is no limit.
func withoutUnlimited(resources *cgroups.Resources, has func(name string) bool) *cgroups.Resources {
	rest := *resources
	if rest.PidsLimit != nil && *rest.PidsLimit < 0 && !has("pids") {
		rest.PidsLimit = nil
	}
	for _, limit := range []struct {
		controller string
		value      *int64
	}{
		{"memory", &rest.Memory}, {"memory", &rest.MemorySwap}, {"memory", &rest.MemoryReservation}, {"cpu", &rest.CpuQuota},
	} {
		if *limit.value < 0 && !has(limit.controller) {
			*limit.value = 0
		}
	}
	return &rest
}
