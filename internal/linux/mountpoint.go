package linux

import (
	"errors"
	"os"
	"path"

	"github.com/cyphar/filepath-securejoin"
	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
)

// OpenMountPoint opens unsafePath as if root, a directory, were "/", or makes
// it: a directory or an empty file. Links are followed, but never out of the
// root.
func OpenMountPoint(root *os.File, unsafePath string, isDir bool) (*os.File, error) {
	f, err := OpenInRoot(root, unsafePath, unix.O_PATH, 0)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	// A link may lead to what is still to be made.
	if unsafePath, err = securejoin.SecureJoinVFS("/", unsafePath, inRoot{root}); err != nil {
		return nil, err
	}
	if isDir {
		return pathrs.MkdirAllHandle(root, unsafePath, 0o755)
	}
	dir, err := pathrs.MkdirAllHandle(root, path.Dir(unsafePath), 0o755)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	const flags = unix.O_CREAT | unix.O_EXCL | unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(int(dir.Fd()), path.Base(unsafePath), flags, 0o644)
	if err != nil {
		return nil, &os.PathError{Op: "create", Path: unsafePath, Err: err}
	}
	return os.NewFile(uintptr(fd), unsafePath), nil
}

// inRoot is the file system below a root, as [securejoin.SecureJoinVFS] reads its
// links. What it finds out may have changed when it is used: the path is opened
// in the root again.
type inRoot struct{ root *os.File }

func (r inRoot) Lstat(name string) (os.FileInfo, error) {
	f, err := OpenInRoot(r.root, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

func (r inRoot) Readlink(name string) (string, error) {
	f, err := OpenInRoot(r.root, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var target [unix.PathMax]byte
	n, err := unix.Readlinkat(int(f.Fd()), "", target[:])
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: name, Err: err}
	}
	return string(target[:n]), nil
}
