package initproc

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"eggrun/sandbox"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"github.com/cyphar/filepath-securejoin/pathrs-lite/procfs"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// deniedPaths returns what has to be covered so that none of the paths can be
// reached.
//
// A container's are those of config.json, as they are: the specification skips
// what is missing. The stand-alone wrapper's are paths of the host, which can
// have other names: links are followed, and each place where another mount shows
// the same thing is added. What has a name that cannot be found, and what is
// missing but could be made by the program, cannot be denied.
func (s *setup) deniedPaths(option string, paths []string) ([]string, error) {
	if s.container != nil || len(paths) == 0 {
		return paths, nil
	}
	var all, gaps []string
	for _, unsafePath := range paths {
		names, gap, err := s.namesOf(unsafePath)
		if err != nil {
			return nil, fmt.Errorf("--%s %q: %w", option, unsafePath, err)
		}
		if gap != "" {
			gaps = append(gaps, fmt.Sprintf("--%s %q: %s", option, unsafePath, gap))
		}
		all = append(all, names...)
	}
	if gaps != nil {
		return nil, &sandbox.EnforcementError{Gaps: gaps}
	}
	return all, nil
}

// namesOf returns every path at which the file or directory can be seen, or a
// gap that says why it cannot be covered.
func (s *setup) namesOf(unsafePath string) (names []string, gap string, err error) {
	f, err := pathrs.OpenatInRoot(s.rootfs, unsafePath)
	if errors.Is(err, os.ErrNotExist) {
		return nil, s.creatable(unsafePath), nil
	}
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return nil, "", os.NewSyscallError("stat", err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR && stat.Nlink > 1 {
		return nil, fmt.Sprintf("it has %d names (hard links), of which only one is known; remove the others", stat.Nlink), nil
	}
	canonical, err := procfs.ProcSelfFdReadlink(f)
	if err != nil {
		return nil, "", err
	}
	names, err = aliases(canonical)
	return names, "", err
}

// creatable tells why a missing path cannot be denied: its nearest parent can
// be written to. "" where it is read-only, so that nobody can make the path.
func (s *setup) creatable(unsafePath string) string {
	for dir := path.Dir(path.Clean(unsafePath)); ; dir = path.Dir(dir) {
		f, err := pathrs.OpenatInRoot(s.rootfs, dir)
		if err == nil {
			err = unix.Faccessat(int(f.Fd()), "", unix.W_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS)
			f.Close()
			if err != nil {
				return ""
			}
		} else if dir != "/" {
			continue
		}
		return fmt.Sprintf("it does not exist and the program could make it in %q; make it first", dir)
	}
}

// aliases returns canonical and the other paths at which mounts of the same
// file system show it, or a part of it.
func aliases(canonical string) ([]string, error) {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("read mountinfo: %w", err)
	}
	var home *mountinfo.Info
	for _, m := range mounts { // of two on one mount point the later is seen
		if isBelow(canonical, m.Mountpoint) && (home == nil || len(m.Mountpoint) >= len(home.Mountpoint)) {
			home = m
		}
	}
	names := []string{canonical}
	if home == nil {
		return names, nil
	}
	inFS := move(canonical, home.Mountpoint, home.Root)
	for _, m := range mounts {
		if m.Major != home.Major || m.Minor != home.Minor {
			continue
		}
		name := m.Mountpoint // it shows a part of what is denied
		if isBelow(inFS, m.Root) {
			name = move(inFS, m.Root, m.Mountpoint)
		} else if !isBelow(m.Root, inFS) {
			continue
		}
		if _, err := os.Lstat(name); err == nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// isBelow tells whether path is dir or lies below it; both are clean.
func isBelow(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// move returns path, which lies below from, at the same place below to.
func move(path, from, to string) string {
	return filepath.Join(to, strings.TrimPrefix(path, from))
}
