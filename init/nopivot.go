package initproc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// chrootOnly makes the root file system this process's root where pivot_root(2)
// is refused, as on an initramfs, which cannot be moved or unmounted.
//
// The container's root already lies over "/" of this mount namespace, so that
// ".." ends there, and setns(2) into the namespace too. But the old root stays
// below it: who may unmount in this namespace can uncover it.
func (s *setup) chrootOnly() error {
	if err := s.dropHostMounts(); err != nil {
		return err
	}
	return s.enterRoot()
}

// enterRoot makes the root file system this process's root and nothing else.
func (s *setup) enterRoot() error {
	if err := unix.Fchdir(int(s.rootfs.Fd())); err != nil {
		return &os.PathError{Op: "chdir", Path: s.rootfs.Name(), Err: err}
	}
	if err := unix.Chroot("."); err != nil {
		return &os.PathError{Op: "chroot", Path: s.rootfs.Name(), Err: err}
	}
	return os.Chdir("/")
}

// dropHostMounts unmounts everything below the old root in this mount
// namespace, so that the bare root is all that could be uncovered. The host
// keeps its mounts: nothing propagates to it.
//
// With the host's procfs or sysfs left, unmasked, the kernel would also let a
// user namespace in the container mount an unmasked one of its own. Where they
// can't be unmounted, for they are locked by a more privileged mount namespace,
// they are covered.
func (s *setup) dropHostMounts() error {
	mounts, err := s.hostMounts()
	if err != nil {
		return err
	}
	// What is mounted last lies on top.
	for _, m := range slices.Backward(mounts) {
		err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		// EINVAL: locked, or gone with the one that it was below.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOENT) {
			return &os.PathError{Op: "umount", Path: m.Mountpoint, Err: err}
		}
	}
	if mounts, err = s.hostMounts(); err != nil {
		return err
	}
	for _, m := range mounts {
		if m.Root != "/" || m.FSType != "proc" && m.FSType != "sysfs" {
			continue
		}
		const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
		if err := unix.Mount("tmpfs", m.Mountpoint, "tmpfs", flags, ""); err != nil {
			return &os.PathError{Op: "cover", Path: m.Mountpoint, Err: err}
		}
	}
	return nil
}

// hostMounts returns the mounts of this namespace but the root and those of the
// container, which look as if they were on the same paths.
func (s *setup) hostMounts() ([]*mountinfo.Info, error) {
	var root unix.Statx_t
	if err := unix.Statx(int(s.rootfs.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &root); err != nil {
		return nil, os.NewSyscallError("statx", err)
	}
	handle, done, err := s.proc.OpenThreadSelf("mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer done()
	defer handle.Close()
	data, err := readHandle(handle, 64<<20)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	mounts, err := mountinfo.GetMountsFromReader(bytes.NewReader(data), nil)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	// A mount may come before its parent: until nothing new is found.
	ours := map[int]bool{int(root.Mnt_id): true}
	for found := 0; found != len(ours); {
		found = len(ours)
		for _, m := range mounts {
			if ours[m.Parent] {
				ours[m.ID] = true
			}
		}
	}
	return slices.DeleteFunc(mounts, func(m *mountinfo.Info) bool {
		return ours[m.ID] || m.Mountpoint == "/"
	}), nil
}
