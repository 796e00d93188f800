package initproc

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// unmountAll removes what is mounted on the targets of the plan's mounts. What
// hides or protects a path stays: the caller names a mount by its place, and the
// container may have put a link there.
func (s *setup) unmountAll() error {
	for i := range slices.Backward(s.plan.Mounts) {
		target := s.plan.Mounts[i].Target
		if err := s.unmount(target); err != nil {
			return fmt.Errorf("unmount %q: %w", target, err)
		}
	}
	return nil
}

func (s *setup) unmount(target string) error {
	if slices.Contains(s.plan.Config.Deny, target) || slices.Contains(s.plan.Config.DenyWrite, target) {
		return errors.New("is a masked or read-only path of the container")
	}
	if slices.ContainsFunc(slices.Concat(s.plan.PolicyDeny, s.plan.PolicyDenyWrite), func(p string) bool { return isBelow(p, target) }) {
		return errors.New("a path that the policy denies is there")
	}
	mount, err := openNoLinks(s.rootfs, strings.TrimPrefix(target, "/"))
	if err != nil {
		return errors.Unwrap(err)
	}
	defer mount.Close()
	x, err := mountStat(mount)
	if err != nil {
		return err
	}
	if x.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return errors.New("nothing is mounted there")
	}
	// By its descriptor, through a procfs of our own: by name it might be
	// another mount by now.
	dir, done, err := s.proc.OpenThreadSelf("fd/")
	if err != nil {
		return err
	}
	defer done()
	defer dir.Close()
	if err := dir.Chdir(); err != nil {
		return err
	}
	// The descriptor keeps it busy, so it is detached.
	if err := unix.Unmount(strconv.Itoa(int(mount.Fd())), unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("umount", err)
	}
	return nil
}
