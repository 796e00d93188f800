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
	if config.Systemd && rootless {
		if err := findUserBus(os.Getenv); err != nil {
			return nil, nil, err
		}
	}
	if isLegacyScope(config) {
		if config.SystemdProps, err = scopeProperties(resources); err != nil {
			return nil, nil, fmt.Errorf("cgroup: %w", err)
		}
	}
	m, err := manager.New(config)
	if err != nil {
		return nil, nil, fmt.Errorf("cgroup: %w", err)
	}
	if isLegacyScope(config) {
		m = legacyScope{m}
	}
	if plan.Subgroup != "" && config.Systemd {
		if m, err = newSubgroup(m, config, plan.Subgroup, plan.DelegateCgroup); err != nil {
			return nil, nil, fmt.Errorf("annotations %s and %s: %w", spec.KeySubgroup, spec.KeyDelegateCgroup, err)
		}
	}
	return m, resources, nil
}

// findUserBus looks for what package cgroups needs to talk to the service manager
// of a user. It calls busctl(1), by which it learns who the root of a user
// namespace is outside, and engines call some verbs without PATH.
func findUserBus(getenv func(string) string) error {
	if getenv("DBUS_SESSION_BUS_ADDRESS") == "" && getenv("XDG_RUNTIME_DIR") == "" {
		return errors.New("cgroup manager systemd: no session bus; set XDG_RUNTIME_DIR or DBUS_SESSION_BUS_ADDRESS, or use the manager cgroupfs")
	}
	if getenv("PATH") == "" {
		return os.Setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
	}
	return nil
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
	config := &cgroups.Cgroup{Resources: &cgroups.Resources{}, Systemd: s.Cgroup.Manager == ManagerSystemd, Rootless: s.Cgroup.Rootless}
	if err := setCgroupPath(config, s.ID, s.Cgroup.Path); err != nil {
		return nil, err
	}
	if config.Systemd && config.Rootless {
		_ = findUserBus(os.Getenv) // most verbs do without
	}
	m, err := manager.NewWithPaths(config, s.Cgroup.Paths)
	if err == nil && s.Cgroup.Subgroup != "" {
		m, err = newSubgroup(m, config, s.Cgroup.Subgroup, s.Cgroup.Delegate)
	}
	return m, err
}

// readyToMove has the kernel get ready to move processes between cgroups, for
// which it waits for a grace period of RCU, 6–14 ms, unless it has just moved
// one. Nothing is moved: this process is put where it is.
func readyToMove(s *state.State) {
	for controller := range s.Cgroup.Paths { // each hierarchy will do
		dir, err := ownCgroupDir(controller)
		if err == nil {
			_ = cgroups.WriteCgroupProc(dir, os.Getpid())
		}
		return
	}
}

// ownCgroupDir returns the cgroup that this process is in.
func ownCgroupDir(controller string) (string, error) {
	if !cgroups.IsCgroup2UnifiedMode() {
		return cgroups.GetOwnCgroupPath(controller)
	}
	own, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
	return filepath.Join("/sys/fs/cgroup", own[""]), err
}

// allPids returns the processes in a cgroup and below it; none where it went in
// the meantime, for systemd removes a scope as soon as that is empty.
func allPids(m cgroups.Manager) ([]int, error) {
	pids, err := m.GetAllPids()
	for try := 0; isGone(err) && try < 10; try++ {
		if !m.Exists() {
			return nil, nil
		}
		pids, err = m.GetAllPids()
	}
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	return pids, nil
}

// isGone tells of a file of a cgroup, which may be open, that the cgroup has been
// removed.
func isGone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// existing leaves out the cgroups that are not there: a caller without privileges
// could not make them, and no limit was asked for.
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
	if m == nil {
		return nil
	}
	// With v1 it may be there in the freezer's hierarchy alone.
	if frozen, err := m.GetFreezerState(); err == nil && frozen == cgroups.Frozen {
		return fmt.Errorf("cgroup %q: container's cgroup unexpectedly frozen; thaw it first", m.Path("freezer"))
	}
	if !m.Exists() {
		return nil
	}
	pids, err := allPids(m)
	if err != nil {
		return err
	}
	if len(pids) > 0 {
		return fmt.Errorf("cgroup %q: container's cgroup is not empty, %d processes in it; choose another linux.cgroupsPath", m.Path(""), len(pids))
	}
	return nil
}

// hierarchies returns what a mount of type cgroup shows a process in pid's
// cgroups, and, unless it has a cgroup namespace, the directories themselves:
// with v1 the container's own, with v2 the caller's root, as under other
// runtimes. Programs look below it for the path of /proc/self/cgroup, which is
// that of the same namespace.
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
		return h, h.AddTree("/sys/fs/cgroup")
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
