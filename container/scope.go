package container

import (
	"maps"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/systemd"
)

// legacyScope is a scope of systemd with cgroup v1. In the hierarchy of devices
// systemd moves processes about as units get device rules, or lose them: the first
// one of a slice takes all that is below the slice out of its cgroups there. So
// the container's processes are looked for in the hierarchy of systemd itself.
type legacyScope struct {
	cgroups.Manager
	// isNew tells that the container's program does not run yet.
	isNew bool
}

// systemdHierarchy is the name of that hierarchy.
const systemdHierarchy = "name=systemd"

func (s legacyScope) GetAllPids() ([]int, error) { return cgroups.GetAllPids(s.Path(systemdHierarchy)) }

func (s legacyScope) Exists() bool { return cgroups.PathExists(s.Path(systemdHierarchy)) }

// Set does without what the library does for a program that runs, which it freezes
// while systemd writes all device rules anew. Under load init may not be frozen in
// time.
func (s legacyScope) Set(r *cgroups.Resources) error {
	if !s.isNew {
		return s.Manager.Set(r)
	}
	others := *r
	others.SkipDevices, others.SkipFreezeOnSet = true, true
	if err := s.Manager.Set(&others); err != nil {
		return err
	}
	return cgroups.DevicesSetV1(s.Path("devices"), r)
}

// AddPid puts a further process where the container's are. One without device
// rules may have no cgroup for them any more: systemd removes it when the last
// other unit of the slice goes.
func (s legacyScope) AddPid(sub string, pid int) error {
	config, err := s.GetCgroups()
	if err != nil {
		return err
	}
	m, err := systemd.NewLegacyManager(config, existing(maps.Clone(s.GetPaths())))
	if err != nil {
		return err
	}
	return m.AddPid(sub, pid)
}

// isLegacyScope tells whether m is the library's manager of one. Where systemd has
// a hierarchy of v2 beside those of v1, it keeps one of v1 as well, but need not.
func isLegacyScope(m cgroups.Manager, config *cgroups.Cgroup) bool {
	return config.Systemd && !cgroups.IsCgroup2UnifiedMode() && m.Path(systemdHierarchy) != ""
}

// setDevicePolicy has systemd know of the device rules when it starts the scope.
// Told later, it would take init out of the cgroup that they are for, and they
// would bind nobody. The rules of this moment may be fewer than those of
// [joinCgroup]: how they are written depends on systemd's version, which is not
// asked for.
func setDevicePolicy(config *cgroups.Cgroup) (err error) {
	if !config.Systemd || cgroups.IsCgroup2UnifiedMode() {
		return nil
	}
	const version = 240 // older ones leave out what they do not know
	config.SystemdProps, err = systemd.GenerateDeviceProps(config.Resources, version)
	return err
}
