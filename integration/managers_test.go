package integration

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// managerName is a cgroup manager of runtimes.
type managerName string

const (
	cgroupfs managerName = "cgroupfs"
	systemd  managerName = "systemd"
)

// cgroupManager says which manager the containers of the suite have, and where
// it puts them. Below the suite's own cgroup each lab has one, and below that
// each container.
//
// With systemd the suite has no PID namespace of its own, since systemd takes the
// numbers that it is told for those of its own one, and then no network
// namespace either. That is for machines that are thrown away.
type cgroupManager struct {
	manager managerName
	suite   string // name of the suite's cgroup
}

func managerOfSuite() managerName {
	if os.Getenv("EGGRUN_TEST_CGROUPS") == string(systemd) {
		return systemd
	}
	return cgroupfs
}

// ownPIDs is CLONE_NEWPID where the suite has its own PID namespace, else 0.
func ownPIDs() uintptr {
	if managerOfSuite() == systemd {
		return 0
	}
	return syscall.CLONE_NEWPID
}

// ownNetwork is CLONE_NEWNET where the suite has its own network namespace, else
// 0: /proc/1/ns/net is to be the caller's.
func ownNetwork() uintptr {
	if ownPIDs() == 0 {
		return 0
	}
	return syscall.CLONE_NEWNET
}

func newManager(suite string) cgroupManager { return cgroupManager{managerOfSuite(), suite} }

// unit makes a name into one part of a slice's, where "-" tells parts apart.
func unit(name string) string { return strings.ReplaceAll(name, "-", "") }

// managerFlags are those global ones that choose the manager. A user without a
// session has no service manager.
func (l *lab) managerFlags() []string {
	if suite.cgroups.manager == systemd && l.as == 0 {
		return []string{"--systemd-cgroup"}
	}
	return nil
}

// slice is the lab's, as systemd calls it.
func (m cgroupManager) slice(lab string) string {
	return unit(m.suite) + "-" + unit(lab) + ".slice"
}

// above is the absolute cgroup of a lab.
func (m cgroupManager) above(lab string) string {
	if m.manager == systemd {
		return filepath.Join("/", unit(m.suite)+".slice", m.slice(lab))
	}
	return filepath.Join("/", m.suite, lab)
}

// parent is how docker calls the lab's.
func (m cgroupManager) parent(lab string) string {
	if m.manager == systemd {
		return m.slice(lab)
	}
	return m.above(lab)
}

// below is the absolute cgroup of a container that an engine, whose prefix it has
// with systemd, makes below the lab's.
func (m cgroupManager) below(lab, engine, id string) string {
	if m.manager == systemd {
		return filepath.Join(m.above(lab), engine+"-"+id+".scope")
	}
	return filepath.Join(m.above(lab), id)
}

// cgroupsPath is what config.json says for a container of the lab.
func (m cgroupManager) cgroupsPath(lab, id string) string {
	if m.manager == systemd {
		return m.slice(lab) + ":" + unit(lab) + ":" + id
	}
	return filepath.Join(m.above(lab), id)
}

// of is the absolute cgroup of a container of the lab.
func (m cgroupManager) of(lab, id string) string {
	return m.below(lab, unit(lab), id)
}

// cgroupOf is the absolute cgroup of a container.
func (l *lab) cgroupOf(id string) string { return suite.cgroups.of(filepath.Base(l.dir), id) }

// ofPodman is the absolute cgroup of one of podman's containers.
func (m cgroupManager) ofPodman(id string) string {
	if m.manager == systemd {
		return "/machine.slice/libpod-" + id + ".scope"
	}
	return "/libpod_parent/libpod-" + id
}

// remove removes the cgroups that the suite's paths brought into being; those
// that still hold a process stay, and slices are left to systemd.
func (m cgroupManager) remove(lab string) {
	if m.manager == systemd {
		return
	}
	for _, dir := range cgroupDirs(m.above(lab)) {
		_ = syscall.Rmdir(dir)
	}
	for _, folder := range cgroupFolders(m.above(lab)) {
		_ = syscall.Rmdir(folder)
	}
}

// pidsDefault keeps podman from asking for its usual limit of processes where
// there is no controller for it.
func pidsDefault() string {
	if controllers("pids")() == nil {
		return ""
	}
	return "pids_limit = 0"
}
