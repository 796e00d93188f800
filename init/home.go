package initproc

import (
	"fmt"
	"os"
	"slices"

	"eggrun/internal/linux"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
)

// home is the write isolation of the stand-alone wrapper.
type home struct {
	// dir is made read-only with everything mounted below it; "" for none.
	dir string
	// writable are directories and files that stay as they are; a missing one
	// is made, as a directory.
	writable []string
}

// sealHome makes the home directory read-only and opens the writable holes in
// it.
func (s *setup) sealHome() error {
	if s.home.dir == "" || slices.Contains(s.home.writable, s.home.dir) {
		return nil
	}
	// The holes are cloned before the seal goes over them, and by descriptor:
	// a link in the way leads to its target, and only that becomes writable.
	holes := make([]*os.File, len(s.home.writable))
	for i, unsafePath := range s.home.writable {
		f, err := s.mountPoint(unsafePath, true)
		if err != nil {
			return fmt.Errorf("--writable %q: %w", unsafePath, err)
		}
		holes[i], err = linux.CloneTreeAt(f, true)
		f.Close()
		if err != nil {
			return fmt.Errorf("--writable %q: %w", unsafePath, err)
		}
		defer holes[i].Close()
	}
	if err := s.sealAliases(); err != nil {
		return fmt.Errorf("--home %q: %w", s.home.dir, err)
	}
	for i, unsafePath := range s.home.writable {
		f, err := pathrs.OpenatInRoot(s.rootfs, unsafePath)
		if err != nil {
			return fmt.Errorf("--writable %q: %w", unsafePath, err)
		}
		err = linux.MoveMount(holes[i], f)
		f.Close()
		if err != nil {
			return fmt.Errorf("--writable %q: %w", unsafePath, err)
		}
	}
	return nil
}

// sealAliases seals the home directory at every path at which it can be seen.
func (s *setup) sealAliases() error {
	names, gap, err := s.namesOf(s.home.dir)
	if err != nil {
		return err
	}
	if gap != "" || len(names) == 0 {
		return fmt.Errorf("not a directory: %w", unix.ENOTDIR)
	}
	for _, name := range names {
		if err := s.denyWrite(name); err != nil {
			return err
		}
	}
	return nil
}
