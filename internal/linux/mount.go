package linux

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// CloneTree returns a detached copy of the mount at path, attached to nothing;
// with recursive also of every mount below it.
//
// Closing the returned file before [MoveMount] unmounts the copy; the file is
// O_PATH and close-on-exec. path is resolved in the caller's mount namespace
// and may end in a symlink, so it must not come from the container.
//
// The error is an [*os.PathError]. EPERM: no CAP_SYS_ADMIN over the mount
// namespace; EINVAL: a locked mount below path without recursive; ENOSYS:
// Linux before 5.2. See open_tree(2).
func CloneTree(path string, recursive bool) (*os.File, error) {
	return openTree(unix.AT_FDCWD, path, path, treeFlags(recursive))
}

// CloneTreeAt is [CloneTree] of the file or directory that f is open on, which
// may be O_PATH.
func CloneTreeAt(f *os.File, recursive bool) (*os.File, error) {
	defer runtime.KeepAlive(f)
	return openTree(int(f.Fd()), "", f.Name(), treeFlags(recursive)|unix.AT_EMPTY_PATH)
}

func treeFlags(recursive bool) uint {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	return flags
}

func openTree(dirfd int, path, name string, flags uint) (*os.File, error) {
	fd, err := retry(func() (int, error) { return unix.OpenTree(dirfd, path, flags) })
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// NewMount returns a detached mount of a new file system of that type. source
// is the name shown in mountinfo, "" for none. data are the file system's
// parameters, "key" or "key=value"; attr are MOUNT_ATTR_* bits.
//
// The mount goes away when the file is closed before [MoveMount]. The error is
// an [*os.PathError] whose path is the type, with the parameter that was
// refused and the kernel's own message where it gives one. EPERM: not allowed
// in this user namespace; ENODEV: type unknown. Linux 5.2, see fsopen(2).
func NewMount(fstype, source string, data []string, attr uint64) (*os.File, error) {
	ctx, err := retry(func() (int, error) { return unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC) })
	if err != nil {
		return nil, &os.PathError{Op: "fsopen", Path: fstype, Err: err}
	}
	defer unix.Close(ctx)
	if source != "" {
		if err := unix.FsconfigSetString(ctx, "source", source); err != nil {
			return nil, fsError(ctx, fstype, "source="+source, err)
		}
	}
	for _, parameter := range data {
		key, value, hasValue := strings.Cut(parameter, "=")
		if hasValue {
			err = unix.FsconfigSetString(ctx, key, value)
		} else {
			err = unix.FsconfigSetFlag(ctx, key)
		}
		if err != nil {
			return nil, fsError(ctx, fstype, parameter, err)
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return nil, fsError(ctx, fstype, "", err)
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, int(attr))
	if err != nil {
		return nil, fsError(ctx, fstype, "", err)
	}
	return os.NewFile(uintptr(fd), fstype), nil
}

// fsError adds what the file system context has logged; see fsopen(2), "Message
// retrieval interface".
func fsError(ctx int, fstype, parameter string, err error) error {
	subject := fstype
	if parameter != "" {
		subject += " (" + parameter + ")"
	}
	var message [256]byte
	if n, readErr := unix.Read(ctx, message[:]); readErr == nil && n > 2 {
		err = fmt.Errorf("%w (%s)", err, strings.TrimSpace(string(message[2:n])))
	}
	return &os.PathError{Op: "mount", Path: subject, Err: err}
}

// SetMountAttr sets and clears MOUNT_ATTR_* bits on the mount whose root f is
// open on, with recursive also on every mount below it.
//
// The bits that are in neither stay as they are: a nosuid that the host put on
// the mount is not lost. EPERM: clear names a flag that is locked by a more
// privileged mount namespace. Linux 5.12, see mount_setattr(2).
func SetMountAttr(f *os.File, set, clear uint64, recursive bool) error {
	return mountSetattr(f, &unix.MountAttr{Attr_set: set, Attr_clr: clear}, recursive)
}

// SetPropagation sets the propagation type of the mount that f is open on:
// MS_SHARED, MS_SLAVE, MS_PRIVATE or MS_UNBINDABLE, with MS_REC for every mount
// below it too. Linux 5.12, see mount_setattr(2).
func SetPropagation(f *os.File, propagation uint64) error {
	attr := &unix.MountAttr{Propagation: propagation &^ unix.MS_REC}
	return mountSetattr(f, attr, propagation&unix.MS_REC != 0)
}

// SetIDMap makes the mount that f is open on, with recursive also every mount
// below it, show the owners of its file system as userNS maps them: an id that
// the namespace calls X appears to be X's id in the parent namespace. The mount
// must be detached and not mapped yet.
//
// EINVAL: the file system can't, or the mount is attached already; EPERM: no
// CAP_SYS_ADMIN over the user namespace in which the file system was mounted,
// or the mount is mapped already. Linux 5.12, see mount_setattr(2), "ID-mapped
// mounts".
func SetIDMap(f, userNS *os.File, recursive bool) error {
	defer runtime.KeepAlive(userNS)
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userNS.Fd())}
	return mountSetattr(f, attr, recursive)
}

func mountSetattr(f *os.File, attr *unix.MountAttr, recursive bool) error {
	defer runtime.KeepAlive(f)
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	if err := unix.MountSetattr(int(f.Fd()), "", flags, attr); err != nil {
		return &os.PathError{Op: "mount_setattr", Path: f.Name(), Err: err}
	}
	return nil
}

// MoveMount attaches the detached mount tree to the file or directory that
// target is open on (O_PATH will do). EINVAL: one is a directory and the other
// is not (ENOTDIR on older kernels), or target is not in the caller's mount
// namespace. Linux 5.2, see move_mount(2).
func MoveMount(tree, target *os.File) error {
	defer runtime.KeepAlive(tree)
	defer runtime.KeepAlive(target)
	const flags = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	if err := unix.MoveMount(int(tree.Fd()), "", int(target.Fd()), "", flags); err != nil {
		return &os.PathError{Op: "move_mount", Path: target.Name(), Err: err}
	}
	return nil
}

// MountID returns the id of the mount that f is in, detached or not. It is
// never used again since Linux 6.8, before that not while the mount is there.
// Linux 5.8, see STATX_MNT_ID_UNIQUE in statx(2).
func MountID(f *os.File) (uint64, error) {
	defer runtime.KeepAlive(f)
	var stat unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID|unix.STATX_MNT_ID_UNIQUE, &stat); err != nil {
		return 0, &os.PathError{Op: "statx", Path: f.Name(), Err: err}
	}
	return stat.Mnt_id, nil
}

// MountOf returns the id of the mount that f is in, as mountinfo has it, and
// whether f is its root. Linux 5.8, see STATX_MNT_ID and STATX_ATTR_MOUNT_ROOT
// in statx(2).
func MountOf(f *os.File) (id int, isRoot bool, err error) {
	defer runtime.KeepAlive(f)
	var stat unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &stat); err != nil {
		return 0, false, &os.PathError{Op: "statx", Path: f.Name(), Err: err}
	}
	return int(stat.Mnt_id), stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// PivotRoot makes the mount that rootfs is open on the root of this mount
// namespace and of this process, and lets go of the old root. The working
// directory is the new root afterwards.
//
// Old and new root sit on each other for a moment, so that no directory for the
// old one is needed in the image. EINVAL: rootfs is not a mount, or it or its
// parent is shared. See pivot_root(2), "pivot_root(".", ".")".
func PivotRoot(rootfs *os.File) error {
	old, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer old.Close()
	if err := unix.Fchdir(int(rootfs.Fd())); err != nil {
		return &os.PathError{Op: "chdir", Path: rootfs.Name(), Err: err}
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return &os.PathError{Op: "pivot_root", Path: rootfs.Name(), Err: err}
	}
	// "." is still the new root, and the old one is mounted on it: what is made
	// a slave must be the old root alone, or shared volumes would be no more.
	if err := unix.Fchdir(int(old.Fd())); err != nil {
		return &os.PathError{Op: "chdir", Path: "old root", Err: err}
	}
	// Nothing that it unmounts may reach the host.
	if err := unix.Mount("", ".", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return &os.PathError{Op: "make slave", Path: "old root", Err: err}
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return &os.PathError{Op: "umount", Path: "old root", Err: err}
	}
	return os.Chdir("/")
}

// retry repeats a call that a signal interrupted.
func retry[T any](call func() (T, error)) (T, error) {
	for {
		value, err := call()
		if err != unix.EINTR { //nolint:errorlint // a bare errno
			return value, err
		}
	}
}
