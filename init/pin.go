package initproc

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"eggrun/internal/linux"

	"github.com/cyphar/filepath-securejoin/pathrs-lite/procfs"
	"golang.org/x/sys/unix"
)

// owner are the ids that the stand-alone wrapper's command has for the file
// system, numbered as in the wrapper's user namespace.
type owner struct {
	uid, gid uint32
}

// act calls f with the owner's rights to files; see setfsuid(2). Only the
// calling thread changes.
func (o owner) act(f func() error) error {
	gid, _ := unix.SetfsgidRetGid(int(o.gid))
	uid, _ := unix.SetfsuidRetUid(int(o.uid))
	defer func() {
		_ = unix.Setfsuid(uid)
		_ = unix.Setfsgid(gid)
	}()
	// The calls report no failure; with an id that is none they change nothing
	// and return what is in force.
	nowUID, _ := unix.SetfsuidRetUid(-1)
	nowGID, _ := unix.SetfsgidRetGid(-1)
	if uint32(nowUID) != o.uid || uint32(nowGID) != o.gid {
		return fmt.Errorf("take file system ids %d:%d: they stay %d:%d", o.uid, o.gid, nowUID, nowGID)
	}
	return f()
}

// canChange tells whether the command could make, rename or remove names in
// dir, perhaps after a chmod.
func (s *setup) canChange(dir *os.File) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &fs); err != nil {
		return false, &os.PathError{Op: "statfs", Path: dir.Name(), Err: err}
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		return false, nil
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &stat); err != nil {
		return false, &os.PathError{Op: "stat", Path: dir.Name(), Err: err}
	}
	if stat.Uid == s.home.owner.uid {
		return true, nil
	}
	err := s.home.owner.act(func() error {
		return unix.Faccessat(int(dir.Fd()), "", unix.W_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS)
	})
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EROFS), errors.Is(err, unix.EPERM): // EPERM: immutable
		return false, nil
	case err != nil:
		return false, &os.PathError{Op: "access", Path: dir.Name(), Err: err}
	}
	return true, nil
}

// openPinned opens a path that has no link in it. Every directory on the way
// that the command could rename becomes a mount point, for those cannot be
// renamed: else it would move away the directory together with what covers a
// file in it, and put a tree of its own in that place.
func (s *setup) openPinned(canonical string) (*os.File, error) {
	dir, err := openNoLinks(s.rootfs, ".")
	if err != nil {
		return nil, err
	}
	names := strings.Split(strings.TrimPrefix(canonical, "/"), "/")
	for i, name := range names {
		next, err := openNoLinks(dir, name)
		if err == nil && i < len(names)-1 {
			next, err = s.pin(dir, next)
		}
		dir.Close()
		if err != nil {
			return nil, err
		}
		dir = next
	}
	return dir, nil
}

// pin makes dir, which lies in parent, a mount point if need be. It returns dir
// as it is seen afterwards and closes the old handle.
func (s *setup) pin(parent, dir *os.File) (*os.File, error) {
	changeable, err := s.canChange(parent)
	if err == nil && changeable {
		var x unix.Statx_t
		x, err = mountStat(dir)
		changeable = x.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0
	}
	if err == nil && !changeable {
		return dir, nil
	}
	defer dir.Close()
	if err != nil {
		return nil, err
	}
	tree, err := linux.CloneTreeAt(dir, true)
	if err != nil {
		return nil, err
	}
	if err := linux.MoveMount(tree, dir); err != nil {
		tree.Close()
		return nil, err
	}
	return tree, nil
}

// replaceableLink returns the first link on the way to unsafePath that the
// command could replace by another, "" where there is none.
func (s *setup) replaceableLink(unsafePath string) (string, error) {
	return s.walkLinks(unsafePath, 0)
}

func (s *setup) walkLinks(unsafePath string, depth int) (string, error) {
	const maxDepth = 40 // the kernel's, see path_resolution(7)
	if depth > maxDepth {
		return "", &os.PathError{Op: "open", Path: unsafePath, Err: unix.ELOOP}
	}
	for end := 1; end <= len(unsafePath); end++ {
		if end < len(unsafePath) && unsafePath[end] != '/' {
			continue
		}
		link, target, err := s.inspect(unsafePath[:end])
		if err != nil || link != "" {
			return link, err
		}
		if target == "" {
			continue
		}
		if link, err := s.walkLinks(target, depth+1); err != nil || link != "" {
			return link, err
		}
	}
	return "", nil
}

// inspect looks at the last name of unsafePath, which is clean. For a link that
// the command could replace it returns unsafePath, for another its target, as
// an absolute path.
func (s *setup) inspect(unsafePath string) (replaceable, target string, err error) {
	dir, err := linux.OpenInRoot(s.rootfs, path.Dir(unsafePath), unix.O_PATH, 0)
	if errors.Is(err, os.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	defer dir.Close()
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(int(dir.Fd()), path.Base(unsafePath), buf[:])
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // no link
		return "", "", nil
	}
	if err != nil {
		return "", "", &os.PathError{Op: "readlink", Path: unsafePath, Err: err}
	}
	if changeable, err := s.canChange(dir); err != nil || changeable {
		return unsafePath, "", err
	}
	target = string(buf[:n])
	if !path.IsAbs(target) {
		in, err := procfs.ProcSelfFdReadlink(dir)
		if err != nil {
			return "", "", err
		}
		target = filepath.Join(in, target)
	}
	return "", path.Clean(target), nil
}

// openNoLinks opens a path below dir that must not lead through a link.
func openNoLinks(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_IN_ROOT,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name)), nil
}

// mountStat returns what statx(2) says about a file and its mount; Linux 5.8.
func mountStat(f *os.File) (unix.Statx_t, error) {
	var x unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &x)
	if err != nil {
		return x, &os.PathError{Op: "statx", Path: f.Name(), Err: err}
	}
	return x, nil
}
