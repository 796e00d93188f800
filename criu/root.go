package main

import (
	"fmt"
	"os"

	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// prepareRoot mounts the root file system where criu is to restore it: on a
// mount that nothing is over. This process has a mount namespace of its own, so
// that no host sees it and it is gone with us, however we end.
func prepareRoot(request *syncsocket.Criu) error {
	// Only the mount with the directory passes nothing to the host any more. The
	// others stay as they are: criu takes over from them to what a volume passes
	// on what is mounted in it.
	around, err := mountinfo.GetMounts(mountinfo.ParentsFilter(request.RootDir))
	if err != nil {
		return err
	}
	nearest := "/"
	for _, m := range around {
		if len(m.Mountpoint) > len(nearest) {
			nearest = m.Mountpoint
		}
	}
	if err := unix.Mount("", nearest, "", unix.MS_SLAVE, ""); err != nil {
		return &os.PathError{Op: "make slave", Path: nearest, Err: err}
	}
	if err := makeMountPoints(request); err != nil {
		return err
	}
	_, err = mountRoot(request)
	return err
}

// mountRoot returns the root of what it mounted.
func mountRoot(request *syncsocket.Criu) (*os.File, error) {
	if err := unix.Mount(request.Rootfs, request.RootDir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return nil, fmt.Errorf("rootfs %q: %w", request.Rootfs, err)
	}
	// A copy of a shared mount is its peer.
	if err := unix.Mount("", request.RootDir, "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return nil, &os.PathError{Op: "make private", Path: request.RootDir, Err: err}
	}
	return os.OpenFile(request.RootDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// makeMountPoints makes what create makes in a root file system, for criu
// expects to find it: it may be another copy than the one that was dumped. The
// bind mounts are made too, for one may have its place in another, and removed
// again.
func makeMountPoints(request *syncsocket.Criu) error {
	root, err := mountRoot(request)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, point := range request.MountPoints {
		if err := makeMountPoint(root, point); err != nil {
			return fmt.Errorf("mount point %q: %w", point.Target, err)
		}
	}
	if err := unix.Unmount(request.RootDir, unix.MNT_DETACH); err != nil {
		return &os.PathError{Op: "umount", Path: request.RootDir, Err: err}
	}
	return nil
}

func makeMountPoint(root *os.File, point syncsocket.CriuMountPoint) error {
	var tree *os.File
	isDir := true
	if point.Source != "" {
		var err error
		if tree, err = linux.CloneTree(point.Source, true); err != nil {
			return err
		}
		defer tree.Close()
		info, err := tree.Stat()
		if err != nil {
			return err
		}
		isDir = info.IsDir()
	}
	place, err := linux.OpenMountPoint(root, point.Target, isDir)
	if err != nil {
		return err
	}
	defer place.Close()
	if tree == nil {
		return nil
	}
	if err := linux.SetPropagation(tree, unix.MS_PRIVATE|unix.MS_REC); err != nil {
		return err
	}
	return linux.MoveMount(tree, place)
}
