package container

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"
	"eggrun/spec"

	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// devNull stands in the images for all masked files, as with runc.
const devNull = "/dev/null"

// dumpedMounts pairs those mounts of a container that come from outside with the
// names under which a restore gets them again. A name is the destination in
// config.json, never a path that an image or a container could choose by a link:
// of what it names the restore mounts that file of the host.
func dumpedMounts(pid int, plan *spec.Plan, unified bool) ([]syncsocket.CriuMount, error) {
	d, err := newDumper(pid)
	if err != nil {
		return nil, err
	}
	defer d.root.Close()
	_, ownCgroups := plan.HasNamespace(specs.CgroupNamespace)
	for i := range plan.Mounts {
		m := &plan.Mounts[i]
		switch {
		case m.IsBind():
			err = d.add(m.Target, m.Target, func(f *os.File) error { return wantSource(f, m.Source) })
		case m.Type == "cgroup" && !ownCgroups && unified:
			err = d.add(m.Target, m.Target, wantFS(unix.CGROUP2_SUPER_MAGIC))
		case m.Type == "cgroup" && !ownCgroups:
			err = d.addHierarchies(m.Target)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, masked := range plan.Config.Deny {
		if err := d.add(masked, devNull, nil); err != nil {
			return nil, err
		}
	}
	for i := range plan.Devices {
		if err := d.add(plan.Devices[i].Path, plan.Devices[i].Path, nil); err != nil {
			return nil, err
		}
	}
	return d.mounts, nil
}

// dumper looks at the mounts of a container that runs.
type dumper struct {
	root   *os.File
	byID   map[int]*mountinfo.Info
	named  map[string]string // mount point → name
	mounts []syncsocket.CriuMount
}

func newDumper(pid int) (*dumper, error) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	table, err := os.Open(proc + "mountinfo")
	if err != nil {
		return nil, err
	}
	defer table.Close()
	infos, err := mountinfo.GetMountsFromReader(table, nil)
	if err != nil {
		return nil, err
	}
	d := &dumper{byID: map[int]*mountinfo.Info{}, named: map[string]string{}}
	for _, info := range infos {
		d.byID[info.ID] = info
	}
	d.root, err = os.OpenFile(proc+"root", unix.O_PATH|unix.O_DIRECTORY, 0)
	return d, err
}

// add gives a name to the mount that is at unsafePath, if there is one. A path
// that leads elsewhere than it says, through a link, must pass check: the
// container may have changed the link since, and one volume must not come back
// in the place of another. Without check it is a device, on a device.
func (d *dumper) add(unsafePath, name string, check func(*os.File) error) error {
	f, err := linux.OpenInRoot(d.root, unsafePath, unix.O_PATH, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("mount on %q: %w", unsafePath, err)
	}
	defer f.Close()
	id, isRoot, err := linux.MountOf(f)
	if err != nil {
		return err
	}
	at := d.byID[id]
	if !isRoot || at == nil {
		return nil
	}
	if check == nil {
		if info, err := f.Stat(); err != nil || info.Mode()&os.ModeDevice == 0 || d.isOwn(at) {
			return err
		}
	} else if at.Mountpoint != path.Clean(unsafePath) {
		if err := check(f); err != nil {
			return fmt.Errorf("mount on %q: found on %q: %w", unsafePath, at.Mountpoint, err)
		}
	}
	return d.name(at.Mountpoint, name)
}

// isOwn tells whether all of the mount's file system is the container's, so that
// criu can make the mount from it.
func (d *dumper) isOwn(at *mountinfo.Info) bool {
	for _, info := range d.byID {
		if info.Major == at.Major && info.Minor == at.Minor && info.Root == "/" {
			return true
		}
	}
	return false
}

// name adds a mount to the request. In criu's own notation, "mnt[KEY]:NAME", a
// mount point with brackets would be able to end the key and give the name
// (CVE-2026-115520).
func (d *dumper) name(mountPoint, name string) error {
	if strings.ContainsAny(mountPoint+name, "[]:\n") {
		return fmt.Errorf("mount on %q: cannot be checkpointed with one of [ ] : in its path", mountPoint)
	}
	if before, ok := d.named[mountPoint]; ok {
		if before != name {
			return fmt.Errorf("mount on %q: is also found on %q", name, before)
		}
		return nil
	}
	d.named[mountPoint] = name
	d.mounts = append(d.mounts, syncsocket.CriuMount{Key: mountPoint, Value: name})
	return nil
}

// addHierarchies names the directories of cgroup v1 below target.
func (d *dumper) addHierarchies(target string) error {
	for _, info := range d.byID {
		if info.FSType != "cgroup" || path.Dir(info.Mountpoint) != path.Clean(target) {
			continue
		}
		if err := d.name(info.Mountpoint, info.Mountpoint); err != nil {
			return err
		}
	}
	return nil
}

// wantSource tells whether f is still what the bind mount was made of.
func wantSource(f *os.File, source string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	want, err := os.Stat(source)
	if err != nil {
		return err
	}
	if !os.SameFile(info, want) {
		return fmt.Errorf("is not %q", source)
	}
	return nil
}

func wantFS(magic int64) func(*os.File) error {
	return func(f *os.File) error {
		var stat unix.Statfs_t
		if err := unix.Fstatfs(int(f.Fd()), &stat); err != nil {
			return os.NewSyscallError("statfs", err)
		}
		if stat.Type != magic {
			return errors.New("is of another file system")
		}
		return nil
	}
}

// restoredMounts pairs the names of [dumpedMounts] with paths on the host. pid is
// a process in the container's cgroups.
func restoredMounts(pid int, plan *spec.Plan, unified bool) ([]syncsocket.CriuMount, error) {
	mounts := []syncsocket.CriuMount{{Key: devNull, Value: devNull}}
	_, ownCgroups := plan.HasNamespace(specs.CgroupNamespace)
	for i := range plan.Mounts {
		m := &plan.Mounts[i]
		switch {
		case m.IsBind():
			mounts = append(mounts, syncsocket.CriuMount{Key: m.Target, Value: m.Source})
		case m.Type == "cgroup" && !ownCgroups:
			dirs, err := cgroupDirs(pid, m.Target, unified)
			if err != nil {
				return nil, fmt.Errorf("cgroup: %w", err)
			}
			mounts = append(mounts, dirs...)
		}
	}
	for i := range plan.Devices {
		mounts = append(mounts, syncsocket.CriuMount{Key: plan.Devices[i].Path, Value: plan.Devices[i].Path})
	}
	for _, m := range mounts {
		if strings.ContainsAny(m.Key, "[]:\n") {
			return nil, fmt.Errorf("mount on %q: cannot be restored with one of [ ] : in its path", m.Key)
		}
	}
	return mounts, nil
}

// cgroupDirs returns what a mount of type cgroup on target shows a process
// without a cgroup namespace of its own.
func cgroupDirs(pid int, target string, unified bool) ([]syncsocket.CriuMount, error) {
	own, err := cgroups.ParseCgroupFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, err
	}
	if unified {
		return []syncsocket.CriuMount{{Key: target, Value: filepath.Join("/sys/fs/cgroup", own[""])}}, nil
	}
	hierarchies, err := cgroups.GetCgroupMounts(false)
	if err != nil {
		return nil, err
	}
	var dirs []syncsocket.CriuMount
	for _, h := range hierarchies {
		dir, err := h.GetOwnCgroup(own)
		if err != nil {
			return nil, err
		}
		below, err := filepath.Rel(h.Root, dir)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, syncsocket.CriuMount{
			Key:   path.Join(target, filepath.Base(h.Mountpoint)),
			Value: filepath.Join(h.Mountpoint, filepath.Clean("/"+below)),
		})
	}
	return dirs, nil
}

// mountPoints are those places of mounts that criu does not make itself: what is
// on a tmpfs is in the images, and a cgroup mount has its place in one or in
// sysfs.
func mountPoints(mounts []spec.Mount) []syncsocket.CriuMountPoint {
	var points []syncsocket.CriuMountPoint
	for i := range mounts {
		m := &mounts[i]
		if m.Type == "cgroup" || isOnTmpfs(m.Target, mounts[:i]) {
			continue
		}
		points = append(points, syncsocket.CriuMountPoint{Target: m.Target, Source: m.Source})
		if !m.IsBind() {
			points[len(points)-1].Source = ""
		}
	}
	return points
}

func isOnTmpfs(target string, mounts []spec.Mount) bool {
	for i := range mounts {
		if mounts[i].Type == "tmpfs" && strings.HasPrefix(target, strings.TrimSuffix(mounts[i].Target, "/")+"/") {
			return true
		}
	}
	return false
}
