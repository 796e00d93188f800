package initproc

import (
	"errors"
	"fmt"
	"os"
	"path"

	"eggrun/internal/linux"
	"eggrun/spec"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
)

// devLinks are the links that the specification and every engine's users expect
// in /dev, where the image has nothing of that name.
var devLinks = [...]struct{ name, target string }{
	{"fd", "/proc/self/fd"},
	{"stdin", "/proc/self/fd/0"},
	{"stdout", "/proc/self/fd/1"},
	{"stderr", "/proc/self/fd/2"},
	{"core", "/proc/kcore"},
}

// makeDevices makes the device nodes and links of /dev.
func (s *setup) makeDevices() error {
	if s.container == nil || !s.plan.PopulateDev {
		return nil
	}
	for i := range s.plan.Devices {
		if err := s.makeDevice(&s.plan.Devices[i]); err != nil {
			return fmt.Errorf("device %q: %w", s.plan.Devices[i].Path, err)
		}
	}
	dev, err := s.openDir("/dev")
	if err != nil {
		return err
	}
	defer dev.Close()
	for _, link := range devLinks {
		if link.name == "core" {
			if _, err := os.Stat("/proc/kcore"); err != nil {
				continue
			}
		}
		if err := unix.Symlinkat(link.target, int(dev.Fd()), link.name); err != nil && !errors.Is(err, unix.EEXIST) {
			return &os.PathError{Op: "symlink", Path: "/dev/" + link.name, Err: err}
		}
	}
	// ptmx must be the multiplexer of the container's own devpts, also where
	// the image has a node of that name.
	if err := unix.Unlinkat(int(dev.Fd()), "ptmx", 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "unlink", Path: "/dev/ptmx", Err: err}
	}
	if err := unix.Symlinkat("pts/ptmx", int(dev.Fd()), "ptmx"); err != nil {
		return &os.PathError{Op: "symlink", Path: "/dev/ptmx", Err: err}
	}
	return nil
}

// openDir opens a directory of the root, making it where it is missing, and
// refuses a link anywhere in its path: with /dev a link, nodes would be made
// wherever it points to (CVE-2026-41579).
func (s *setup) openDir(unsafePath string) (*os.File, error) {
	dir, err := s.openPlain(unsafePath)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("directory %q: a link is on the way", unsafePath)
	}
	return dir, err
}

// openPlain is openDir with ELOOP for a link. What has been made is opened again
// by the same rule: it may have been replaced by a link.
func (s *setup) openPlain(unsafePath string) (*os.File, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY
	dir, err := linux.OpenInRoot(s.rootfs, unsafePath, flags, unix.RESOLVE_NO_SYMLINKS)
	if !errors.Is(err, os.ErrNotExist) {
		return dir, err
	}
	made, err := pathrs.MkdirAllHandle(s.rootfs, unsafePath, 0o755)
	if err != nil {
		return nil, err
	}
	made.Close()
	return linux.OpenInRoot(s.rootfs, unsafePath, flags, unix.RESOLVE_NO_SYMLINKS)
}

// makeDevice makes one node. Where mknod is not allowed, in a user namespace,
// the host's node is bound instead.
func (s *setup) makeDevice(d *spec.Device) error {
	dir, err := s.openDir(path.Dir(d.Path))
	if err != nil {
		return err
	}
	defer dir.Close()
	name := path.Base(d.Path)
	number := unix.Mkdev(d.Major, d.Minor)
	// Umask would take bits from the mode that config.json asks for.
	old := unix.Umask(0)
	err = unix.Mknodat(int(dir.Fd()), name, d.Mode, int(number))
	unix.Umask(old)
	switch {
	case errors.Is(err, unix.EEXIST):
		// What the image or an earlier mount has there must be that device.
		existing, err := s.openDevice(d.Path, d.Mode&unix.S_IFMT, d.Major, d.Minor)
		if err == nil {
			existing.Close()
		}
		return err
	case errors.Is(err, unix.EPERM):
		return s.bindDevice(d)
	case err != nil:
		return os.NewSyscallError("mknod", err)
	}
	if err := unix.Fchownat(int(dir.Fd()), name, int(d.UID), int(d.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return os.NewSyscallError("chown", err)
	}
	return nil
}

// bindDevice binds the host's node of the same path. The working directory and
// "/" are still the host's; the node is checked before it is used.
func (s *setup) bindDevice(d *spec.Device) error {
	hostPath := d.Path
	host, err := os.OpenFile(hostPath, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer host.Close()
	if err := checkDevice(host, d.Mode&unix.S_IFMT, d.Major, d.Minor); err != nil {
		return err
	}
	tree, err := linux.CloneTreeAt(host, false)
	if err != nil {
		return err
	}
	defer tree.Close()
	return s.attach(tree, d.Path)
}
