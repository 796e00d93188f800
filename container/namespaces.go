package container

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	"eggrun/internal/linux"
	"eggrun/internal/state"
	"eggrun/spec"

	"github.com/moby/sys/user"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// cloneFlags are the CLONE_NEW* flags of the namespace types.
var cloneFlags = map[specs.LinuxNamespaceType]uintptr{
	specs.PIDNamespace:     unix.CLONE_NEWPID,
	specs.NetworkNamespace: unix.CLONE_NEWNET,
	specs.MountNamespace:   unix.CLONE_NEWNS,
	specs.IPCNamespace:     unix.CLONE_NEWIPC,
	specs.UTSNamespace:     unix.CLONE_NEWUTS,
	specs.UserNamespace:    unix.CLONE_NEWUSER,
	specs.CgroupNamespace:  unix.CLONE_NEWCGROUP,
	specs.TimeNamespace:    unix.CLONE_NEWTIME,
}

// setNamespaces fills in which namespaces init is spawned in. The caller closes
// the files of request.
func setNamespaces(request *linux.SpawnRequest, plan *spec.Plan) error {
	for _, ns := range plan.Namespaces {
		flag := cloneFlags[ns.Type]
		if ns.Path == "" {
			// Init makes its cgroup namespace itself, when it is in its
			// cgroup.
			if ns.Type != specs.CgroupNamespace {
				request.New |= flag
			}
			continue
		}
		f, err := openNamespace(ns, flag)
		if err != nil {
			return err
		}
		if ns.Type == specs.UserNamespace {
			request.JoinUser = f
		} else {
			request.Join = append(request.Join, f)
		}
	}
	for _, offset := range plan.TimeOffsets {
		request.TimeOffsets = fmt.Appendf(request.TimeOffsets, "%s %d %d\n", offset.Clock, offset.Secs, offset.Nanosecs)
	}
	request.MapIDs = func(pid int) error { return mapIDs(pid, plan.UIDMappings, plan.GIDMappings) }
	request.KeepGroups = plan.KeepGroups
	return nil
}

// spawnError explains those errors of [linux.SpawnIn] that have but one cause.
func spawnError(err error) error {
	if errors.Is(err, unix.ERANGE) {
		return fmt.Errorf("linux.timeOffsets: %w; a clock can be neither before 0 nor centuries ahead", err)
	}
	return err
}

// namespaceFiles are the names in /proc/PID/ns, in the order in which they are
// joined: the mount namespace last, for it takes the host's /proc away.
var namespaceFiles = []struct {
	kind specs.LinuxNamespaceType
	name string
}{
	{specs.CgroupNamespace, "cgroup"}, {specs.IPCNamespace, "ipc"}, {specs.UTSNamespace, "uts"},
	{specs.NetworkNamespace, "net"}, {specs.PIDNamespace, "pid"}, {specs.TimeNamespace, "time"},
	{specs.UserNamespace, "user"}, {specs.MountNamespace, "mnt"},
}

// namespaceName is the name of a namespace type in /proc/PID/ns, and for criu.
func namespaceName(kind specs.LinuxNamespaceType) string {
	for _, ns := range namespaceFiles {
		if ns.kind == kind {
			return ns.name
		}
	}
	return string(kind)
}

// checkSysctls refuses sysctls of a namespace that is joined and that the caller
// is in: they would change the host.
func checkSysctls(plan *spec.Plan) error {
	for _, sysctl := range slices.Sorted(maps.Keys(plan.Sysctl)) {
		kind := spec.SysctlNamespace(sysctl)
		path, _ := plan.HasNamespace(kind)
		if path == "" {
			continue
		}
		isHosts, err := samePlace(path, "/proc/thread-self/ns/"+namespaceName(kind))
		if err != nil {
			return fmt.Errorf("%s namespace: %w", kind, err)
		}
		if isHosts {
			return fmt.Errorf("linux.sysctl %q: not allowed in the host's %s namespace, which is joined", sysctl, kind)
		}
	}
	return nil
}

// joinNamespaces fills in the namespaces of a running container, without those
// that it shares with this process. The caller closes the files of request.
func joinNamespaces(request *linux.SpawnRequest, plan *spec.Plan, init linux.Process) error {
	for _, ns := range namespaceFiles {
		if _, ok := plan.HasNamespace(ns.kind); !ok {
			continue
		}
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", init.PID, ns.name))
		if err != nil {
			return fmt.Errorf("%s namespace: %w", ns.kind, err)
		}
		shared, err := isShared(f, ns.name)
		switch {
		case err != nil || shared:
			f.Close()
		case ns.kind == specs.UserNamespace:
			request.JoinUser = f
		default:
			request.Join = append(request.Join, f)
		}
		if err != nil {
			return fmt.Errorf("%s namespace: %w", ns.kind, err)
		}
	}
	request.KeepGroups = plan.KeepGroups
	// What was opened belongs to this init only if it still lives.
	if !init.Alive() {
		return state.ErrNotRunning
	}
	return nil
}

func isShared(f *os.File, name string) (bool, error) {
	own, err := os.Open("/proc/thread-self/ns/" + name)
	if err != nil {
		return false, err
	}
	defer own.Close()
	return linux.SameFile(f, own)
}

func openNamespace(ns spec.Namespace, flag uintptr) (*os.File, error) {
	f, err := os.Open(ns.Path)
	if err != nil {
		return nil, fmt.Errorf("%s namespace: %w", ns.Type, err)
	}
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || uintptr(kind) != flag {
		f.Close()
		return nil, fmt.Errorf("%s namespace: %q is not one", ns.Type, ns.Path)
	}
	return f, nil
}

// mapIDs writes the id maps of a new user namespace.
func mapIDs(pid int, uids, gids []specs.LinuxIDMapping) error {
	if !IsAsRoot() {
		return writeMaps(pid, uids, gids)
	}
	ownUIDs, err := user.CurrentProcessUIDMap()
	if err != nil {
		return err
	}
	ownGIDs, err := user.CurrentProcessGIDMap()
	if err != nil {
		return err
	}
	if uids, err = inOwnIDs(uids, ownUIDs); err != nil {
		return err
	}
	if gids, err = inOwnIDs(gids, ownGIDs); err != nil {
		return err
	}
	return writeMaps(pid, uids, gids)
}

func writeMaps(pid int, uids, gids []specs.LinuxIDMapping) error {
	proc := "/proc/" + strconv.Itoa(pid) + "/"
	for _, m := range []struct {
		file     string
		mappings []specs.LinuxIDMapping
	}{{"uid_map", uids}, {"gid_map", gids}} {
		var lines bytes.Buffer
		for _, id := range m.mappings {
			fmt.Fprintf(&lines, "%d %d %d\n", id.ContainerID, id.HostID, id.Size)
		}
		err := os.WriteFile(proc+m.file, lines.Bytes(), 0)
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("user namespace: %s: the caller may not use these host ids", m.file)
		}
		if err != nil {
			return fmt.Errorf("user namespace: %w", err)
		}
	}
	return nil
}

// setScore sets oom_score_adj, which no user namespace's root may lower.
func setScore(pid int, score *int) error {
	if score == nil {
		return nil
	}
	err := os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(strconv.Itoa(*score)), 0)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("process.oomScoreAdj %d: lowering it needs CAP_SYS_RESOURCE", *score)
	}
	return err
}

// raiseRlimits raises those hard limits that init could not.
func raiseRlimits(pid int, rlimits []spec.Rlimit) error {
	for _, r := range rlimits {
		var now unix.Rlimit
		if err := unix.Prlimit(pid, r.Resource, nil, &now); err != nil {
			return os.NewSyscallError("get rlimit", err)
		}
		if r.Hard <= now.Max {
			continue
		}
		now.Max = r.Hard
		err := unix.Prlimit(pid, r.Resource, &now, nil)
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("process.rlimits: hard limit %d of resource %d: raising it needs CAP_SYS_RESOURCE (for the number of open files also a higher fs.nr_open)", r.Hard, r.Resource)
		}
		if err != nil {
			return os.NewSyscallError("raise rlimit", err)
		}
	}
	return nil
}
