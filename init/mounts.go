package initproc

import (
	"errors"
	"fmt"
	"os"

	"eggrun/internal/linux"
	"eggrun/spec"

	"golang.org/x/sys/unix"
)

// attachRootfs puts the tree that create cloned over its own place in this
// namespace, where hooks that enter it expect it, or over "/" where the host's
// files are not to be seen in it, and keeps its handle: from here on the root
// file system is that handle, and nothing is looked up by the bundle's path.
func (s *setup) attachRootfs() error {
	if s.container == nil {
		return nil
	}
	tree := s.container.trees[rootfsTree]
	// A clone of a shared mount is its peer: what is mounted in the container
	// would appear on the host. Nor may the new root be shared, or pivot_root
	// refuses it.
	if err := linux.SetPropagation(tree, s.defaultPropagation()); err != nil {
		return err
	}
	below := s.container.place
	if below == nil {
		place := "/"
		if s.container.request.HostMounts {
			place = s.plan.Rootfs
		}
		var err error
		if below, err = os.OpenFile(place, unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
			return err
		}
	}
	defer below.Close()
	if err := linux.MoveMount(tree, below); err != nil {
		return fmt.Errorf("rootfs %q: %w", s.plan.Rootfs, err)
	}
	s.rootfs = tree
	// On a shared mount of the host it has become a shared one.
	if s.container.request.HostMounts {
		return linux.SetPropagation(tree, unix.MS_PRIVATE|unix.MS_REC)
	}
	return nil
}

// mountAll makes the mounts of config.json.
func (s *setup) mountAll() error {
	if s.container == nil {
		return nil
	}
	for i := range s.plan.Mounts {
		m := &s.plan.Mounts[i]
		if m.Type == "cgroup" {
			if err := s.mountCgroups(m); err != nil {
				return fmt.Errorf("mount cgroup on %q: %w", m.Target, err)
			}
			continue
		}
		tree, err := s.makeTree(i, m)
		if err != nil {
			return mountError(m, err)
		}
		// A read-only tmpfs may still have to take mount points and device
		// nodes: it is sealed when all mounts are made.
		if m.Type == "tmpfs" && m.Set&unix.MOUNT_ATTR_RDONLY != 0 {
			s.sealLast = append(s.sealLast, sealed{tree, m})
		}
		attach := s.attach
		if m.Type == "proc" || m.Type == "sysfs" {
			attach = s.attachPlain
		}
		if err := attach(tree, m.Target); err != nil {
			return mountError(m, err)
		}
	}
	return nil
}

// sealed is a mount that becomes read-only when nothing has to be made in it
// any more.
type sealed struct {
	tree  *os.File
	mount *spec.Mount
}

func (s *setup) sealMounts() error {
	for _, late := range s.sealLast {
		if err := linux.SetMountAttr(late.tree, unix.MOUNT_ATTR_RDONLY, 0, false); err != nil {
			return mountError(late.mount, err)
		}
	}
	return nil
}

func mountError(m *spec.Mount, err error) error {
	source := m.Source
	if !m.IsBind() {
		source = m.Type
	}
	return fmt.Errorf("mount %q on %q: %w", source, m.Target, err)
}

// hostSys returns the host's sysfs, read-only, in the place of a new one, which the
// kernel refuses where the network namespace is of another user namespace than the
// container's. All that is mounted below comes with it: the kernel does not let it
// go alone.
func hostSys() (*os.File, error) {
	tree, err := linux.CloneTree("/sys", true)
	if err != nil {
		return nil, err
	}
	return tree, applyAttr(tree, unix.MOUNT_ATTR_RDONLY, 0, true)
}

// makeTree returns the mount, detached, with its attributes and propagation.
func (s *setup) makeTree(index int, m *spec.Mount) (*os.File, error) {
	var tree *os.File
	var err error
	set := m.Set
	switch {
	case m.IsBind():
		tree, err = s.container.takeTree(index)
	case m.Type == "tmpfs":
		set &^= unix.MOUNT_ATTR_RDONLY
		tree, err = s.newTmpfs(m)
	default:
		tree, err = linux.NewMount(m.Type, m.Source, labelledData(m, s.plan), 0)
		if m.Type == "sysfs" && errors.Is(err, unix.EPERM) {
			tree, err = hostSys()
		}
	}
	if err != nil {
		return nil, err
	}
	if err := s.labelQueues(tree, m); err != nil {
		return nil, err
	}
	if err := applyAttr(tree, set, m.Clear, false); err != nil {
		return nil, err
	}
	if err := applyAttr(tree, m.RecSet, m.RecClear, true); err != nil {
		return nil, err
	}
	propagation := m.Propagation
	if propagation == 0 {
		propagation = s.defaultPropagation()
	}
	return tree, linux.SetPropagation(tree, propagation)
}

// defaultPropagation is that of a mount whose options name none: what it would
// have got had the whole namespace been given the root's propagation before it
// was made, which is a slave where config.json is silent.
func (s *setup) defaultPropagation() uint64 {
	if s.plan.RootPropagation&unix.MS_PRIVATE != 0 {
		return unix.MS_PRIVATE | unix.MS_REC
	}
	return unix.MS_SLAVE | unix.MS_REC
}

// applyAttr sets and clears attributes. A flag that a more privileged namespace
// has locked cannot be cleared; engines write "rw" and "exec" as a matter of
// course, so the mount then stays stricter than asked, never looser.
func applyAttr(tree *os.File, set, clear uint64, recursive bool) error {
	if set == 0 && clear == 0 {
		return nil
	}
	err := linux.SetMountAttr(tree, set, clear, recursive)
	if !errors.Is(err, unix.EPERM) || clear == 0 {
		return err
	}
	// Access times are locked as a whole, also against more.
	const accessTimes = unix.MOUNT_ATTR__ATIME | unix.MOUNT_ATTR_NODIRATIME
	if err := linux.SetMountAttr(tree, set&^accessTimes, 0, recursive); err != nil {
		return err
	}
	err = linux.SetMountAttr(tree, set&accessTimes, clear&accessTimes, recursive)
	for bit := uint64(1); bit <= clear && (err == nil || errors.Is(err, unix.EPERM)); bit <<= 1 {
		if bit&clear&^accessTimes != 0 {
			err = linux.SetMountAttr(tree, 0, bit, recursive)
		}
	}
	if errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}

// attach mounts tree on target inside the root, which is made where it is
// missing.
func (s *setup) attach(tree *os.File, target string) error {
	info, err := tree.Stat()
	if err != nil {
		return err
	}
	f, err := s.mountPoint(target, info.IsDir())
	if err != nil {
		return err
	}
	defer f.Close()
	return linux.MoveMount(tree, f)
}

// attachPlain is [setup.attach] on a directory that no link leads to. An image
// whose /proc points elsewhere would make whoever writes to /proc later write
// there instead (CVE-2019-19921).
func (s *setup) attachPlain(tree *os.File, target string) error {
	dir, err := s.openPlain(target)
	if errors.Is(err, unix.ELOOP) {
		return errors.New("must be mounted on ordinary directory, not through a link")
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	return linux.MoveMount(tree, dir)
}

// mountPoint opens unsafePath inside the root, or makes it.
func (s *setup) mountPoint(unsafePath string, isDir bool) (*os.File, error) {
	return linux.OpenMountPoint(s.rootfs, unsafePath, isDir)
}

// pivot makes the root file system this process's root.
func (s *setup) pivot() error {
	if s.container == nil {
		return nil
	}
	if err := s.sealMounts(); err != nil {
		return err
	}
	if s.container.request.HostMounts {
		return s.enterRoot()
	}
	if s.container.request.NoPivot {
		return s.chrootOnly()
	}
	return linux.PivotRoot(s.rootfs)
}
