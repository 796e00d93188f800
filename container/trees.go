package container

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"
	"eggrun/sandbox"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// sources is where the sources of a container's bind mounts are looked up.
type sources struct {
	init *linux.Child
	// there is that of [creation].
	there *linux.MountNamespace
	// rootfs is where the root file system is on the host, "" where no source
	// is below it.
	rootfs string
	// ownUser says that init has a user namespace.
	ownUser bool
}

func (c *creation) sources() *sources {
	_, ownUser := c.plan.HasNamespace(specs.UserNamespace)
	return &sources{init: c.child, there: c.there, rootfs: c.plan.Rootfs, ownUser: ownUser}
}

// amongMounts calls f in init's mount namespace, as long as that shows the
// host's files by the host's paths, else in the caller's. There the kernel has
// locked what the host has made of its mounts, so that root in a user namespace
// of the container's can't make a read-only volume writable; and a source may be
// below the root file system, in what was mounted before.
func (s *sources) amongMounts(f func() error) error {
	if s.there == nil {
		return f()
	}
	return s.there.Do(f)
}

// send sends the trees of the bind mounts from the one on that init asks for up
// to the next mount of another kind. They are not made before, for since Linux
// 6.8 mountinfo has mounts in the order in which they were made, not attached,
// and that is to be the order of config.json.
func (s *sources) send(socket *syncsocket.Socket, mounts []spec.Mount, message *syncsocket.Message) error {
	var first int
	if err := message.Decode(syncsocket.Trees, &first); err != nil {
		return err
	}
	if first < 0 || first >= len(mounts) || !mounts[first].IsBind() {
		return unexpected(message)
	}
	trees, err := s.clone(mounts[first:])
	defer func() {
		for _, f := range trees {
			f.Close()
		}
	}()
	if err != nil {
		return err
	}
	return socket.Send(syncsocket.Trees, nil, trees...)
}

// clone returns detached copies of the sources of the bind mounts with which
// mounts begin. They are made here, with the rights of the caller, for init, in
// a user namespace, might not get at them. The caller closes them, also on an
// error.
func (s *sources) clone(mounts []spec.Mount) (trees []*os.File, err error) {
	// The source of one may be there only when those before it are attached.
	last := slices.IndexFunc(mounts[1:], func(m spec.Mount) bool {
		return !m.IsBind() || s.rootfs != "" && strings.HasPrefix(m.Source, s.rootfs+"/")
	})
	if last >= 0 {
		mounts = mounts[:last+1]
	}
	trees = make([]*os.File, len(mounts))
	// In turn, for the order in which they are made shows.
	for next := 0; next < len(mounts); next++ {
		err = s.amongMounts(func() (err error) {
			next, err = s.cloneThere(mounts, trees, next)
			return err
		})
		if err == nil && next < len(mounts) {
			trees[next], err = cloneSource(&mounts[next])
		}
		if err != nil {
			return trees, err
		}
	}
	mapper := idMapper{initPID: s.init.PID}
	defer mapper.close()
	for i := range mounts {
		m := &mounts[i]
		if err := checkSource(trees[i], m); err != nil {
			return trees, err
		}
		if m.IDMap == nil {
			continue
		}
		if err := mapper.apply(trees[i], m.IDMap); err != nil {
			return trees, fmt.Errorf("mount %q on %q: %w", m.Source, m.Target, err)
		}
	}
	return trees, nil
}

// cloneThere fills in trees from next on in init's mount namespace, and returns
// the index of the first one that only the caller's has: a mount that is to be
// shared with the host, which the one of a user namespace can't, or, both EINVAL,
// what a link of /proc leads to and a mount without those below it, which a user
// namespace may not uncover.
func (s *sources) cloneThere(mounts []spec.Mount, trees []*os.File, next int) (_ int, err error) {
	for ; next < len(mounts); next++ {
		m := &mounts[next]
		if m.Propagation&unix.MS_SHARED != 0 && !s.ownUser {
			break
		}
		trees[next], err = cloneSource(m)
		if errors.Is(err, unix.EINVAL) && (!s.ownUser || !m.Recursive) {
			break
		}
		if err != nil {
			return next, err
		}
	}
	return next, nil
}

func cloneSource(m *spec.Mount) (*os.File, error) {
	tree, err := linux.CloneTree(m.Source, m.Recursive)
	if err != nil {
		return nil, sourceError(m, err)
	}
	return tree, nil
}

func sourceError(m *spec.Mount, err error) error {
	err = fmt.Errorf("mount %q on %q: %w", m.Source, m.Target, errors.Unwrap(err))
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = fmt.Errorf("%w; create it on the host or drop the volume", err)
	case errors.Is(err, unix.EINVAL) && !m.Recursive:
		err = fmt.Errorf("%w; what is mounted below it must be bound too in a user namespace, with rbind", err)
	}
	return err
}

// checkSource tells whether a tree is of what was judged when it was decided to
// mount it: another container may have put a link in its place.
func checkSource(tree *os.File, m *spec.Mount) error {
	if m.Checked == nil {
		return nil
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(tree.Fd()), &stat); err != nil {
		return &os.PathError{Op: "stat", Path: m.Source, Err: err}
	}
	if (spec.FileID{Device: uint64(stat.Dev), Inode: stat.Ino}) != *m.Checked {
		return &sandbox.EnforcementError{
			Gaps:     []string{fmt.Sprintf("domains: mount %q on %q: its source was replaced while it was looked at", m.Source, m.Target)},
			Platform: "name a path that no other container can change",
		}
	}
	return nil
}

// idMapper makes id-mapped mounts of detached trees.
type idMapper struct {
	initPID int
	// made are the user namespaces of mappings that came before: engines map
	// all volumes of a container alike.
	made []mapping
}

type mapping struct {
	*spec.IDMap
	userNS *os.File
}

func (m *idMapper) close() {
	for _, made := range m.made {
		made.userNS.Close()
	}
}

// apply maps a tree that is attached to nothing yet.
func (m *idMapper) apply(tree *os.File, idMap *spec.IDMap) error {
	userNS, err := m.userNamespace(idMap)
	if err != nil {
		return fmt.Errorf("id-mapped: %w", err)
	}
	err = linux.SetIDMap(tree, userNS, idMap.Recursive)
	switch {
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("id-mapped: %w; its file system cannot map ids, use one that can or drop idmap", errors.Unwrap(err))
	case errors.Is(err, unix.EPERM):
		return errors.New("id-mapped: needs CAP_SYS_ADMIN where its file system was mounted, and one that is not mapped already (EPERM)")
	case err != nil:
		return fmt.Errorf("id-mapped: %w", errors.Unwrap(err))
	}
	return nil
}

// userNamespace returns a user namespace with those mappings, the container's
// own where there are none.
func (m *idMapper) userNamespace(idMap *spec.IDMap) (*os.File, error) {
	for _, made := range m.made {
		if slices.Equal(made.UIDs, idMap.UIDs) && slices.Equal(made.GIDs, idMap.GIDs) {
			return made.userNS, nil
		}
	}
	var userNS *os.File
	var err error
	if idMap.UIDs == nil {
		userNS, err = os.Open("/proc/" + strconv.Itoa(m.initPID) + "/ns/user")
	} else {
		userNS, err = linux.NewUserNamespace(func(pid int) error { return mapIDs(pid, idMap.UIDs, idMap.GIDs) })
	}
	if err != nil {
		return nil, err
	}
	m.made = append(m.made, mapping{idMap, userNS})
	return userNS, nil
}
