package container

import (
	"fmt"

	"github.com/opencontainers/cgroups"
	devices "github.com/opencontainers/cgroups/devices/config"
)

// orderDeviceRules gives a cgroup of v1 the device rules of config.json one by
// one. The specification wants them applied in their order, which devices.list
// shows to whoever looks, while package cgroups sorts what it gets at once.
func orderDeviceRules(m cgroups.Manager, resources *cgroups.Resources) error {
	config, err := m.GetCgroups()
	path := m.Path("devices")
	if err != nil || config.Rootless || cgroups.IsCgroup2UnifiedMode() || path == "" {
		return err
	}
	for _, rules := range ruleSteps(resources.Devices) {
		if err := cgroups.DevicesSetV1(path, &cgroups.Resources{Devices: rules}); err != nil {
			return fmt.Errorf("cgroup limits: %w", err)
		}
	}
	return nil
}

// ruleSteps returns the beginnings of rules, each longer by one of those rules
// of config.json that allow something and are followed by no rule that denies:
// what they allow is allowed in the end, too, and the order of others does not
// survive in the kernel.
func ruleSteps(rules []*devices.Rule) [][]*devices.Rule {
	own := len(rules) - len(defaultDeviceRules())
	first := own
	for first > 0 && rules[first-1].Allow && rules[first-1].Type != devices.WildcardDevice {
		first--
	}
	var steps [][]*devices.Rule
	for end := first + 1; end <= own; end++ {
		steps = append(steps, rules[:end])
	}
	return steps
}
