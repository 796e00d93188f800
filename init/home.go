package initproc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"eggrun/internal/linux"
	"eggrun/sandbox"

	"github.com/cyphar/filepath-securejoin/pathrs-lite/procfs"
	"golang.org/x/sys/unix"
)

// home is the write isolation of the stand-alone wrapper.
type home struct {
	// dir is made read-only with everything mounted below it; "" for none.
	dir string
	// writable are directories and files that stay as they are; a missing one
	// is made, as a directory.
	writable []string
	// owner makes the missing ones, and its rights decide what else the
	// command could change.
	owner owner
}

// hole is a part of the home directory that stays writable.
type hole struct {
	place place
	tree  *os.File
}

// sealHome makes the home directory read-only, at every path at which it can be
// seen, and opens the writable holes in it.
func (s *setup) sealHome() error {
	if s.home.dir == "" || slices.Contains(s.home.writable, s.home.dir) {
		return nil
	}
	places, err := s.places("--home", []string{s.home.dir})
	if err != nil {
		return err
	}
	if places[0].missing {
		return &os.PathError{Op: "open", Path: s.home.dir, Err: unix.ENOENT}
	}
	// The holes are cloned before the seal goes over them.
	var holes []*hole
	for _, unsafePath := range s.home.writable {
		h, err := s.openHole(unsafePath, places)
		if err != nil {
			return err
		}
		if h != nil {
			defer h.tree.Close()
			holes = append(holes, h)
		}
	}
	if err := s.coverEach("--home", outermost(places), s.seal); err != nil {
		return err
	}
	for _, h := range holes {
		if err := s.attachHole(h); err != nil {
			return fmt.Errorf("--writable %q: %w", h.place.path, err)
		}
	}
	// What shows the home directory inside of a hole came back with that.
	return s.coverEach("--home", slices.DeleteFunc(places, func(p place) bool {
		return !slices.ContainsFunc(holes, func(h *hole) bool { return h.place.path != p.path && isBelow(p.path, h.place.path) })
	}), s.seal)
}

// openHole clones what is to stay writable, nil where it is not in the home
// directory, whose places are home, and so needs no hole.
//
// A link may lead out of the home directory but not to another part of it: the
// program of an earlier run could have put it into its own writable directory,
// and would get whatever it points to.
func (s *setup) openHole(unsafePath string, home []place) (*hole, error) {
	var f *os.File
	err := s.home.owner.act(func() (err error) {
		f, err = s.mountPoint(unsafePath, true)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("--writable %q: %w", unsafePath, err)
	}
	defer f.Close()
	canonical, err := procfs.ProcSelfFdReadlink(f)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(home, func(p place) bool { return isBelow(canonical, p.path) }) {
		return nil, nil
	}
	wanted := unsafePath
	if isBelow(unsafePath, s.home.dir) {
		wanted = filepath.Join(home[0].path, strings.TrimPrefix(unsafePath, s.home.dir))
	}
	if canonical != wanted {
		return nil, &sandbox.EnforcementError{Gaps: []string{
			fmt.Sprintf("--writable %q: a link leads to %q, in the home directory; name that", unsafePath, canonical),
		}}
	}
	x, err := mountStat(f)
	if err != nil {
		return nil, err
	}
	tree, err := linux.CloneTreeAt(f, true)
	if err != nil {
		return nil, fmt.Errorf("--writable %q: %w", unsafePath, err)
	}
	return &hole{newPlace(canonical, &x), tree}, nil
}

func (s *setup) attachHole(h *hole) error {
	f, err := openNoLinks(s.rootfs, h.place.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := h.place.check(f); err != nil {
		return err
	}
	return linux.MoveMount(h.tree, f)
}
