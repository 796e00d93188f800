package initproc

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"eggrun/internal/linux"
	"eggrun/sandbox"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"github.com/cyphar/filepath-securejoin/pathrs-lite/procfs"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// place is one path, without links, at which something can be seen that has to
// be covered.
type place struct {
	path string
	// missing says that nothing is there, and that the command cannot make it.
	missing bool
	// major, minor and inode tell whether it is still the same.
	major, minor uint32
	inode        uint64
}

// coverPlaces covers everything that the option names in the stand-alone
// wrapper, wherever it can be seen.
func (s *setup) coverPlaces(option string, paths []string, cover func(*os.File) error) error {
	places, err := s.places(option, paths)
	if err != nil {
		return err
	}
	return s.coverEach(option, outermost(places), cover)
}

func (s *setup) coverEach(option string, places []place, cover func(*os.File) error) error {
	for _, p := range places {
		f, err := s.openPinned(p.path)
		if p.missing && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			if err = p.check(f); err == nil {
				err = cover(f)
			}
			f.Close()
		}
		if err != nil {
			return fmt.Errorf("%s %q: %w", option, p.path, err)
		}
	}
	return nil
}

// check tells whether f, opened at p's path later, is what was seen there.
func (p *place) check(f *os.File) error {
	x, err := mountStat(f)
	if err != nil {
		return err
	}
	if p.missing || x.Ino != p.inode || x.Dev_major != p.major || x.Dev_minor != p.minor {
		return errors.New("it was replaced while the sandbox was set up")
	}
	return nil
}

// places returns where each of the paths can be seen, links followed, the first
// path's own place first. What can't be covered is an
// [*sandbox.EnforcementError].
func (s *setup) places(option string, paths []string) ([]place, error) {
	var all []place
	var gaps []string
	for _, unsafePath := range paths {
		places, gap, err := s.placesOf(unsafePath)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", option, unsafePath, err)
		}
		if gap != "" {
			gaps = append(gaps, fmt.Sprintf("%s %q: %s", option, unsafePath, gap))
		}
		all = append(all, places...)
	}
	if gaps != nil {
		return nil, &sandbox.EnforcementError{Gaps: gaps}
	}
	return all, nil
}

// outermost leaves out each place below another, which is covered with that.
func outermost(places []place) []place {
	var outer []place
	for _, p := range places {
		covered := slices.ContainsFunc(places, func(q place) bool {
			return q.path != p.path && !q.missing && isBelow(p.path, q.path)
		})
		if !covered && !slices.Contains(outer, p) {
			outer = append(outer, p)
		}
	}
	return outer
}

// placesOf returns where one path can be seen, its own place first, or a gap
// that says why it cannot be covered.
func (s *setup) placesOf(unsafePath string) (places []place, gap string, err error) {
	link, err := s.replaceableLink(unsafePath)
	if err != nil {
		return nil, "", err
	}
	if link != "" {
		return nil, fmt.Sprintf("the program could replace the link %q on the way; name what it leads to", link), nil
	}
	f, err := linux.OpenInRoot(s.rootfs, unsafePath, unix.O_PATH, 0)
	if errors.Is(err, os.ErrNotExist) {
		return s.placesOfMissing(unsafePath)
	}
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	if places, err = s.aliases(f, true); err != nil {
		return nil, "", err
	}
	if slices.ContainsFunc(places, func(p place) bool { return p.path == "/" }) {
		return nil, `it is "/", or can be seen there, which cannot be covered; name the directories in it`, nil
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return nil, "", os.NewSyscallError("stat", err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR && stat.Nlink > 1 {
		return nil, fmt.Sprintf("it has %d names (hard links), of which only one is known; remove the others", stat.Nlink), nil
	}
	return places, "", nil
}

// placesOfMissing returns where a missing path would be seen, or a gap where the
// program could make it: nothing can be mounted on what is not there.
func (s *setup) placesOfMissing(unsafePath string) (places []place, gap string, err error) {
	dir, rest := path.Split(unsafePath)
	f, err := linux.OpenInRoot(s.rootfs, dir, unix.O_PATH, 0)
	for errors.Is(err, os.ErrNotExist) {
		var name string
		dir, name = path.Split(path.Clean(dir))
		rest = name + "/" + rest
		f, err = linux.OpenInRoot(s.rootfs, dir, unix.O_PATH, 0)
	}
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	// A link whose target is missing: the program need not touch f to make it.
	first, _, _ := strings.Cut(rest, "/")
	var stat unix.Stat_t
	if err := unix.Fstatat(int(f.Fd()), first, &stat, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		return nil, fmt.Sprintf("the link %q leads to nothing, which the program could make; name what it should lead to", dir+first), nil
	}
	parents, err := s.aliases(f, false)
	if err != nil {
		return nil, "", err
	}
	for _, parent := range parents {
		f, err := openNoLinks(s.rootfs, parent.path)
		if err != nil {
			return nil, "", err
		}
		changeable, err := s.canChange(f)
		f.Close()
		if err != nil {
			return nil, "", err
		}
		if changeable {
			return nil, fmt.Sprintf("it does not exist and the program could make it in %q; make it first", parent.path), nil
		}
		places = append(places, place{path: filepath.Join(parent.path, rest), missing: true})
	}
	return places, "", nil
}

// aliases returns the paths at which mounts of the same file system show f, or
// with parts also something in it. Its own path is the first.
func (s *setup) aliases(f *os.File, parts bool) ([]place, error) {
	canonical, err := procfs.ProcSelfFdReadlink(f)
	if err != nil {
		return nil, err
	}
	x, err := mountStat(f)
	if err != nil {
		return nil, err
	}
	mounts, err := s.readMounts()
	if err != nil {
		return nil, fmt.Errorf("read mountinfo: %w", err)
	}
	own := slices.IndexFunc(mounts, func(m *mountinfo.Info) bool { return uint64(m.ID) == x.Mnt_id })
	if own < 0 || !isBelow(canonical, mounts[own].Mountpoint) {
		return nil, fmt.Errorf("%q is in no mount of /proc/self/mountinfo", canonical)
	}
	home := mounts[own]
	places := []place{newPlace(canonical, &x)}
	inFS := move(canonical, home.Mountpoint, home.Root)
	for _, m := range mounts {
		if m.Major != home.Major || m.Minor != home.Minor {
			continue
		}
		name := m.Mountpoint
		switch {
		case isBelow(inFS, m.Root):
			name = move(inFS, m.Root, m.Mountpoint)
		case !parts || !isBelow(m.Root, inFS):
			continue
		}
		p, err := s.seenAt(name, m.ID)
		if err != nil {
			return nil, err
		}
		if p != nil && p.path != canonical {
			places = append(places, *p)
		}
	}
	return places, nil
}

// readMounts reads the mounts of this namespace in our own procfs: in a container
// there may be none, or another file.
func (s *setup) readMounts() ([]*mountinfo.Info, error) {
	handle, done, err := s.proc.OpenThreadSelf("mountinfo")
	if err != nil {
		return nil, err
	}
	defer done()
	defer handle.Close()
	f, err := pathrs.Reopen(handle, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mountinfo.GetMountsFromReader(f, nil)
}

// seenAt returns the place of that path, nil if the mount cannot be seen there
// because another one hides it or nobody with the command's rights gets there.
func (s *setup) seenAt(name string, mountID int) (*place, error) {
	f, err := openNoLinks(s.rootfs, name)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return nil, nil
	case errors.Is(err, unix.EACCES): // this process has the command's rights at least
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	x, err := mountStat(f)
	if err != nil || x.Mnt_id != uint64(mountID) {
		return nil, err
	}
	p := newPlace(name, &x)
	return &p, nil
}

func newPlace(name string, x *unix.Statx_t) place {
	return place{path: name, major: x.Dev_major, minor: x.Dev_minor, inode: x.Ino}
}

// isBelow tells whether path is dir or lies below it; both are clean.
func isBelow(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// move returns path, which lies below from, at the same place below to.
func move(path, from, to string) string {
	return filepath.Join(to, strings.TrimPrefix(path, from))
}
