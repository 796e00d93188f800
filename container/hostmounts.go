package container

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"eggrun/internal/linux"
	"eggrun/sandbox"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// decideMounts finds out whether the container's mounts are made in this
// process's mount namespace: config.json names none, or this one. They are then
// attached below the root file system's place on the host, and init changes its
// root with chroot(2) alone.
func (c *creation) decideMounts() error {
	shared, err := sharesMounts(c.plan)
	if err != nil {
		return err
	}
	if !shared {
		path, _ := c.plan.HasNamespace(specs.MountNamespace)
		c.ownMounts = path == "" && c.plan.Rootfs != "/" && !c.options.NoPivot
		return nil
	}
	if c.policy != nil {
		return &sandbox.EnforcementError{
			Gaps:     []string{"domains: host mount namespace requested"},
			Platform: "give the container a mount namespace",
		}
	}
	isRoot, err := samePlace(c.plan.Rootfs, "/")
	if err != nil {
		return fmt.Errorf("rootfs: %w", err)
	}
	if isRoot {
		return errors.New("rootfs \"/\": needs a mount namespace in linux.namespaces")
	}
	c.hostMounts = true
	return nil
}

func sharesMounts(plan *spec.Plan) (bool, error) {
	path, ok := plan.HasNamespace(specs.MountNamespace)
	if !ok || path == "" {
		return !ok, nil
	}
	shared, err := samePlace(path, "/proc/thread-self/ns/mnt")
	if err != nil {
		err = fmt.Errorf("mount namespace: %w", err)
	}
	return shared, err
}

func samePlace(a, b string) (bool, error) {
	infoA, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	infoB, err := os.Stat(b)
	return err == nil && os.SameFile(infoA, infoB), err
}

// noteRoot records which mount init is about to attach on the host.
func (c *creation) noteRoot(rootfs *os.File) (err error) {
	if !c.hostMounts {
		return nil
	}
	if c.state.HostMount, err = linux.MountID(rootfs); err != nil {
		return err
	}
	return c.dir.Save(c.state)
}

// unmountRoot takes the container's mounts off the host, if it has any there.
// Whatever else is mounted in their place, such as an engine's own root file
// system, stays.
func (c *Container) unmountRoot() error {
	if c.state.HostMount == 0 {
		return nil
	}
	root, err := os.OpenFile(c.state.Rootfs, unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	id, err := linux.MountID(root)
	if err != nil || id != c.state.HostMount {
		return err
	}
	if err := unix.Unmount("/proc/self/fd/"+strconv.Itoa(int(root.Fd())), unix.MNT_DETACH); err != nil {
		return &os.PathError{Op: "umount", Path: c.state.Rootfs, Err: err}
	}
	return nil
}
