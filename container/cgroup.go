package container

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"eggrun/internal/state"
	"eggrun/internal/syncsocket"
	"eggrun/spec"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // device rules, v1 and eBPF
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Cgroup managers.
const (
	ManagerCgroupfs = "cgroupfs"
	ManagerSystemd  = "systemd"
	ManagerDisabled = "disabled"
)

// newCgroup returns the cgroup that config.json asks for and its limits, nil with
// ManagerDisabled. Nothing is made yet.
func newCgroup(id, managerName string, rootless bool, plan *spec.Plan) (cgroups.Manager, *cgroups.Resources, error) {
	if managerName == ManagerDisabled {
		return nil, nil, nil
	}
	resources, err := cgroupResources(plan.Resources)
	if err != nil {
		return nil, nil, err
	}
	config := &cgroups.Cgroup{Resources: resources, Systemd: managerName == ManagerSystemd, Rootless: rootless}
	if err := setCgroupPath(config, id, plan.CgroupsPath); err != nil {
		return nil, nil, err
	}
	m, err := manager.New(config)
	if err != nil {
		return nil, nil, fmt.Errorf("cgroup: %w", err)
	}
	return m, resources, nil
}

func setCgroupPath(config *cgroups.Cgroup, id, path string) error {
	switch {
	case !config.Systemd && path == "":
		config.Name = id
	case !config.Systemd:
		config.Path = filepath.Clean("/" + path)
		if config.Path == "/" {
			return fmt.Errorf("linux.cgroupsPath %q: names no cgroup", path)
		}
		if !filepath.IsAbs(path) {
			config.Path = config.Path[1:]
		}
	case path == "":
		config.ScopePrefix, config.Name = "eggrun", id
	default:
		parts := strings.Split(path, ":")
		if len(parts) != 3 {
			return fmt.Errorf("linux.cgroupsPath %q: want slice:prefix:name with the systemd cgroup manager", path)
		}
		config.Parent, config.ScopePrefix, config.Name = parts[0], parts[1], parts[2]
	}
	return nil
}

// openCgroup returns the cgroup of an existing container.
func openCgroup(s *state.State) (cgroups.Manager, error) {
	if s.Cgroup.Manager == ManagerDisabled || len(s.Cgroup.Paths) == 0 {
		return nil, nil
	}
	config := &cgroups.Cgroup{Resources: &cgroups.Resources{}, Systemd: s.Cgroup.Manager == ManagerSystemd}
	if err := setCgroupPath(config, s.ID, s.Cgroup.Path); err != nil {
		return nil, err
	}
	return manager.NewWithPaths(config, s.Cgroup.Paths)
}

// existing leaves out the cgroups that a caller without privileges could not
// make, for which no limit was asked.
func existing(paths map[string]string) map[string]string {
	maps.DeleteFunc(paths, func(_, path string) bool {
		_, err := os.Stat(path)
		return errors.Is(err, os.ErrNotExist)
	})
	return paths
}

func (c *Container) isPaused() bool {
	m, err := openCgroup(c.state)
	if err != nil || m == nil {
		return false
	}
	frozen, err := m.GetFreezerState()
	return err == nil && frozen == cgroups.Frozen
}

// checkFresh refuses a cgroup that somebody else uses: its limits would bind
// them, and delete would end them.
func checkFresh(m cgroups.Manager) error {
	if m == nil || !m.Exists() {
		return nil
	}
	pids, err := m.GetAllPids()
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	if len(pids) > 0 {
		return fmt.Errorf("cgroup %q: not empty, %d processes in it; choose another linux.cgroupsPath", m.Path(""), len(pids))
	}
	if frozen, err := m.GetFreezerState(); err == nil && frozen == cgroups.Frozen {
		return fmt.Errorf("cgroup %q: frozen; thaw it first", m.Path(""))
	}
	return nil
}

// joinCgroup moves init into its cgroup, unless pid is alreadyIn, and sets all
// limits but those that the runtime itself could break: see [lateLimits].
func joinCgroup(m cgroups.Manager, pid int, resources *cgroups.Resources) error {
	if pid != alreadyIn {
		if err := m.Apply(pid); err != nil && !errors.Is(err, cgroups.ErrRootless) {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	early, _ := splitLimits(resources)
	if err := orderDeviceRules(m, early); err != nil {
		return err
	}
	if err := m.Set(early); err != nil {
		return limitError(err)
	}
	return nil
}

// splitLimits returns resources without the limits of memory and processes, and
// those limits, nil for none.
func splitLimits(resources *cgroups.Resources) (early, late *cgroups.Resources) {
	rest := *resources
	rest.Memory, rest.MemorySwap, rest.MemoryReservation, rest.PidsLimit = 0, 0, 0, nil
	rest.Unified = nil
	late = &cgroups.Resources{
		Memory:                  resources.Memory,
		MemorySwap:              resources.MemorySwap,
		MemoryReservation:       resources.MemoryReservation,
		MemoryCheckBeforeUpdate: resources.MemoryCheckBeforeUpdate,
		PidsLimit:               resources.PidsLimit,
		SkipDevices:             true,
	}
	for file, value := range resources.Unified {
		to := &rest.Unified
		if strings.HasPrefix(file, "memory.") || strings.HasPrefix(file, "pids.") {
			to = &late.Unified
		}
		if *to == nil {
			*to = make(map[string]string)
		}
		(*to)[file] = value
	}
	if late.Memory == 0 && late.MemorySwap == 0 && late.MemoryReservation == 0 && late.PidsLimit == nil && late.Unified == nil {
		late = nil
	}
	return &rest, late
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

// lateLimits sets the memory and pids limits once init is ready: until then it
// is a Go program with its threads and some megabytes, after it the user's.
func lateLimits(m cgroups.Manager, resources *cgroups.Resources) error {
	_, late := splitLimits(resources)
	if late == nil {
		return nil
	}
	if err := m.Set(late); err != nil {
		return limitError(err)
	}
	return nil
}

// hierarchies returns what a mount of type cgroup shows a process in pid's
// cgroups, and, unless it has a cgroup namespace, the directories themselves.
func hierarchies(pid int, plan *spec.Plan) (*syncsocket.Hierarchies, error) {
	if !slices.ContainsFunc(plan.Mounts, func(m spec.Mount) bool { return m.Type == "cgroup" }) {
		return &syncsocket.Hierarchies{}, nil
	}
	_, ownNamespace := plan.HasNamespace(specs.CgroupNamespace)
	own, err := cgroups.ParseCgroupFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	h := &syncsocket.Hierarchies{Unified: cgroups.IsCgroup2UnifiedMode()}
	if h.Unified {
		if ownNamespace {
			return h, nil
		}
		return h, h.AddTree(filepath.Join("/sys/fs/cgroup", own[""]))
	}
	mounts, err := cgroups.GetCgroupMounts(false)
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	for _, m := range mounts {
		name := filepath.Base(m.Mountpoint)
		v1 := syncsocket.HierarchyV1{Name: name}
		for _, controller := range m.Subsystems {
			if _, isNamed := own[cgroups.CgroupNamePrefix+controller]; isNamed {
				v1.Data = append(v1.Data, "none", cgroups.CgroupNamePrefix+controller)
				continue
			}
			v1.Data = append(v1.Data, controller)
			if controller != name {
				v1.Links = append(v1.Links, controller)
			}
		}
		h.V1 = append(h.V1, v1)
		if ownNamespace {
			continue
		}
		path, err := m.GetOwnCgroup(own)
		if err != nil {
			return nil, fmt.Errorf("cgroup: %w", err)
		}
		below, err := filepath.Rel(m.Root, path)
		if err != nil {
			return nil, fmt.Errorf("cgroup: %w", err)
		}
		if err := h.AddTree(filepath.Join(m.Mountpoint, filepath.Clean("/"+below))); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// sealCgroups makes cgroup mounts read-only in a container of an unprivileged
// user that has no cgroup namespace: they show cgroups of his that are not the
// container's (CVE-2023-25809).
func sealCgroups(plan *spec.Plan) {
	if _, ok := plan.HasNamespace(specs.CgroupNamespace); ok {
		return
	}
	for i := range plan.Mounts {
		if m := &plan.Mounts[i]; m.Type == "cgroup" {
			m.ReadOnly = true
			m.Set |= unix.MOUNT_ATTR_RDONLY
			m.Clear &^= unix.MOUNT_ATTR_RDONLY
		}
	}
}
