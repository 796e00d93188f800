package initproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"eggrun/internal/linux"
	"eggrun/spec"

	"golang.org/x/sys/unix"
)

// newTmpfs makes a tmpfs with the mode of the directory that it hides, unless
// config.json names one, and, with tmpcopyup, with what is in it.
func (s *setup) newTmpfs(m *spec.Mount) (*os.File, error) {
	data := labelledData(m, s.plan)
	var stat unix.Stat_t
	hidden, err := linux.OpenInRoot(s.rootfs, m.Target, unix.O_PATH|unix.O_DIRECTORY, 0)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENOTDIR): // the mount itself says what is wrong
		return linux.NewMount(m.Type, m.Source, data, 0)
	case err != nil:
		return nil, err
	}
	defer hidden.Close()
	if err := unix.Fstat(int(hidden.Fd()), &stat); err != nil {
		return nil, os.NewSyscallError("stat", err)
	}
	if !slices.ContainsFunc(data, func(parameter string) bool { return strings.HasPrefix(parameter, "mode=") }) {
		data = append(slices.Clone(data), fmt.Sprintf("mode=%o", stat.Mode&0o7777))
	}
	tree, err := linux.NewMount(m.Type, m.Source, data, 0)
	if err != nil || !m.CopyUp {
		return tree, err
	}
	if err := copyUp(hidden, tree, &stat); err != nil {
		return nil, fmt.Errorf("tmpcopyup: %w", err)
	}
	return tree, nil
}

func copyUp(hidden, tree *os.File, stat *unix.Stat_t) error {
	// O_PATH handles can be searched but not read or changed.
	from, err := openDirAt(hidden, ".")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := openDirAt(tree, ".")
	if err != nil {
		return err
	}
	defer to.Close()
	if err := copyDir(from, to); err != nil {
		return err
	}
	return to.Chown(int(stat.Uid), int(stat.Gid))
}

func openDirAt(dir *os.File, name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(dir.Fd()), name, flags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// copyDir copies what is in a directory, with owners and modes. Every name is
// looked up in the descriptor of its directory and no link is followed: the
// image may change while it is read (CVE-2026-133553). Sockets and device nodes
// are left out.
func copyDir(from, to *os.File) error {
	names, err := from.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		var stat unix.Stat_t
		err := unix.Fstatat(int(from.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err == nil {
			err = copyEntry(from, to, name, &stat)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	return nil
}

func copyEntry(from, to *os.File, name string, stat *unix.Stat_t) error {
	var err error
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		err = copySubdir(from, to, name)
	case unix.S_IFREG:
		err = copyFile(from, to, name)
	case unix.S_IFLNK:
		err = copyLink(from, to, name)
	case unix.S_IFIFO:
		err = unix.Mkfifoat(int(to.Fd()), name, 0o600)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	if err := unix.Fchownat(int(to.Fd()), name, int(stat.Uid), int(stat.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return os.NewSyscallError("chown", err)
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil
	}
	// After chown, which clears the set-id bits. What is in the new tmpfs is
	// ours alone: the name cannot have become a link.
	return os.NewSyscallError("chmod", unix.Fchmodat(int(to.Fd()), name, stat.Mode&0o7777, 0))
}

func copySubdir(from, to *os.File, name string) error {
	if err := unix.Mkdirat(int(to.Fd()), name, 0o700); err != nil {
		return os.NewSyscallError("mkdir", err)
	}
	subFrom, err := openDirAt(from, name)
	if err != nil {
		return err
	}
	defer subFrom.Close()
	subTo, err := openDirAt(to, name)
	if err != nil {
		return err
	}
	defer subTo.Close()
	return copyDir(subFrom, subTo)
}

func copyFile(from, to *os.File, name string) error {
	// O_NONBLOCK: it may have become a fifo meanwhile.
	in, err := unix.Openat(int(from.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	source := os.NewFile(uintptr(in), name)
	defer source.Close()
	out, err := unix.Openat(int(to.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return os.NewSyscallError("create", err)
	}
	target := os.NewFile(uintptr(out), name)
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

func copyLink(from, to *os.File, name string) error {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(from.Fd()), name, buf)
	if err != nil {
		return os.NewSyscallError("readlink", err)
	}
	return os.NewSyscallError("symlink", unix.Symlinkat(string(buf[:n]), int(to.Fd()), name))
}
