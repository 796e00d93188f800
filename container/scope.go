package container

import (
	"slices"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/opencontainers/cgroups"
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/cgroups/systemd"
)

// legacyScope is a scope of systemd with cgroup v1 that is being made.
//
// In the hierarchy of devices systemd moves processes about as units get device
// rules, or lose them: the first one of a slice takes all that is below the slice
// out of its cgroups there, whose rules then bind nobody, and which are removed. So
// it has to know from the start that a scope has rules, also where they allow all.
type legacyScope struct{ cgroups.Manager }

// Set does without what the library does for a program that runs, which it freezes
// while systemd writes all device rules anew. Under load init may not be frozen in
// time.
func (s legacyScope) Set(r *cgroups.Resources) error {
	others := *r
	others.SkipDevices, others.SkipFreezeOnSet = true, true
	if err := s.Manager.Set(&others); err != nil {
		return err
	}
	return cgroups.DevicesSetV1(s.Path("devices"), r)
}

// isLegacyScope tells whether config is for one.
func isLegacyScope(config *cgroups.Cgroup) bool {
	return config.Systemd && !cgroups.IsCgroup2UnifiedMode()
}

// scopeProperties are the device rules as systemd words them. They may be fewer
// than those that Set writes: systemd leaves out what its version does not know.
func scopeProperties(r *cgroups.Resources) ([]dbus.Property, error) {
	const version = 240 // not asked for; older ones know less
	properties, err := systemd.GenerateDeviceProps(r, version)
	if err != nil || !slices.ContainsFunc(properties, allowsAll) {
		return properties, err
	}
	every := &cgroups.Resources{}
	for _, kind := range []devices.Type{devices.CharDevice, devices.BlockDevice} {
		every.Devices = append(every.Devices, &devices.Rule{Type: kind, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "rwm", Allow: true})
	}
	return systemd.GenerateDeviceProps(every, version)
}

// allowsAll tells of a property whether with it a unit has no device rules.
func allowsAll(p dbus.Property) bool { return p.Name == "DevicePolicy" && p.Value.Value() == "auto" }
