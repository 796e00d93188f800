package initproc

import (
	"errors"
	"fmt"
	"os"

	"eggrun/internal/linux"

	"golang.org/x/sys/unix"
)

// denyWrites makes every DenyWrite path and what is mounted below it read-only.
func (s *setup) denyWrites() error {
	if s.container == nil {
		return s.coverPlaces("--deny-write", s.plan.Config.DenyWrite, s.seal)
	}
	return s.coverExisting("read-only path", s.plan.Config.DenyWrite, s.seal)
}

// denyPaths hides every Deny path: a directory below an empty one, a file below
// /dev/null.
func (s *setup) denyPaths() error {
	if s.container == nil {
		return s.coverPlaces("--deny", s.plan.Config.Deny, s.hide)
	}
	return s.coverExisting("masked path", s.plan.Config.Deny, s.hide)
}

// denyPolicy covers the paths of the policy. The container's root can make and
// rename what it likes, so a path that cannot be covered for certain, or that is
// not there, is an [*sandbox.EnforcementError], as in the stand-alone wrapper.
func (s *setup) denyPolicy() error {
	if s.container == nil {
		return nil
	}
	if err := s.coverPlaces("deny-write", s.plan.PolicyDenyWrite, s.seal); err != nil {
		return err
	}
	return s.coverPlaces("deny", s.plan.PolicyDeny, s.hide)
}

// coverExisting covers paths of config.json as they are; the specification
// skips what is missing.
func (s *setup) coverExisting(what string, paths []string, cover func(*os.File) error) error {
	for _, unsafePath := range paths {
		f, err := linux.OpenInRoot(s.rootfs, unsafePath, unix.O_PATH, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = cover(f)
			f.Close()
		}
		if err != nil {
			return fmt.Errorf("%s %q: %w", what, unsafePath, err)
		}
	}
	return nil
}

// seal makes a file or directory, with what is mounted below it, read-only. Its
// mounts keep their other flags, which may be locked.
func (s *setup) seal(target *os.File) error {
	tree, err := linux.CloneTreeAt(target, true)
	if err != nil {
		return err
	}
	defer tree.Close()
	if err := linux.SetMountAttr(tree, unix.MOUNT_ATTR_RDONLY, 0, true); err != nil {
		return err
	}
	return linux.MoveMount(tree, target)
}

func (s *setup) hide(target *os.File) error {
	info, err := target.Stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return s.hideFile(target)
	}
	return s.hideDir(target)
}

// hideDir mounts an empty, read-only directory. All of them are one file
// system: the first is cloned for the others.
func (s *setup) hideDir(target *os.File) error {
	const attr = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	if s.maskDir != nil {
		tree, err := linux.CloneTreeAt(s.maskDir, false)
		if err != nil {
			return err
		}
		defer tree.Close()
		return linux.MoveMount(tree, target)
	}
	// nr_blocks=1: even a remount could not make it a place to store things.
	tree, err := linux.NewMount("tmpfs", "tmpfs", []string{"nr_blocks=1", "nr_inodes=1"}, attr)
	if err != nil {
		return err
	}
	s.maskDir = tree // kept open until exec
	return linux.MoveMount(tree, target)
}

// hideFile binds /dev/null, by a descriptor that was verified: an image that
// swaps its /dev/null for a link would have a file of the host bound instead
// (CVE-2025-31133).
func (s *setup) hideFile(target *os.File) error {
	null, err := s.openDevice("/dev/null", unix.S_IFCHR, 1, 3)
	if err != nil {
		return err
	}
	defer null.Close()
	tree, err := linux.CloneTreeAt(null, false)
	if err != nil {
		return err
	}
	defer tree.Close()
	return linux.MoveMount(tree, target)
}

// openDevice opens a device node of the root with O_PATH, following no link,
// and checks that it is the device that it should be.
func (s *setup) openDevice(path string, kind, major, minor uint32) (*os.File, error) {
	f, err := linux.OpenInRoot(s.rootfs, path, unix.O_PATH|unix.O_NOFOLLOW, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return nil, err
	}
	if err := checkDevice(f, kind, major, minor); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func checkDevice(f *os.File, kind, major, minor uint32) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	if stat.Mode&unix.S_IFMT != kind || kind != unix.S_IFIFO && stat.Rdev != unix.Mkdev(major, minor) {
		return fmt.Errorf("%q is not the device %d:%d", f.Name(), major, minor)
	}
	return nil
}
