package container

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"
	"eggrun/sandbox"
	"eggrun/spec"

	"golang.org/x/sys/unix"
)

// sendTrees sends the trees of the bind mounts from the one on that init asks
// for up to the next mount of another kind. They are not made before, for since
// Linux 6.8 mountinfo has mounts in the order in which they were made, not
// attached, and that is to be the order of config.json.
func sendTrees(socket *syncsocket.Socket, init *linux.Child, mounts []spec.Mount, message *syncsocket.Message) error {
	var first int
	if err := message.Decode(syncsocket.Trees, &first); err != nil {
		return err
	}
	trees, err := cloneTrees(init.PID, mounts[first:])
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

// cloneTrees returns detached copies of the sources of the bind mounts with
// which mounts begin. They are made here, with the rights and in the mount
// namespace of the caller, where init, in a user namespace, might not get at
// them. The caller closes them, also on an error.
func cloneTrees(initPID int, mounts []spec.Mount) (trees []*os.File, err error) {
	mapper := idMapper{initPID: initPID}
	defer mapper.close()
	for i := range mounts {
		m := &mounts[i]
		if !m.IsBind() {
			break
		}
		tree, err := linux.CloneTree(m.Source, m.Recursive)
		if err != nil {
			err = fmt.Errorf("mount %q on %q: %w", m.Source, m.Target, errors.Unwrap(err))
			if errors.Is(err, os.ErrNotExist) {
				err = fmt.Errorf("%w; create it on the host or drop the volume", err)
			}
			return trees, err
		}
		trees = append(trees, tree)
		if err := checkSource(tree, m); err != nil {
			return trees, err
		}
		if m.IDMap == nil {
			continue
		}
		if err := mapper.apply(tree, m.IDMap); err != nil {
			return trees, fmt.Errorf("mount %q on %q: %w", m.Source, m.Target, err)
		}
	}
	return trees, nil
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
