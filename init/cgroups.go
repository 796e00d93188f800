package initproc

import (
	"fmt"
	"os"
	"path"

	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// waitJoined waits, once, until create has put init into the container's
// cgroups. Moving a process takes the kernel up to 14 ms (an RCU grace period):
// in the meantime the other mounts are made.
func (s *setup) waitJoined() error {
	if s.container == nil || s.container.hierarchies != nil {
		return nil
	}
	var joined syncsocket.Hierarchies
	message, err := s.container.joined, error(nil)
	if message == nil {
		message, err = s.container.socket.Receive()
	}
	if err == nil {
		err = message.Decode(syncsocket.Joined, &joined)
	}
	if err != nil {
		return err
	}
	joined.Trees = message.Files
	s.container.hierarchies = &joined
	// The root of a cgroup namespace is the cgroup that its maker is in.
	if path, ok := s.plan.HasNamespace(specs.CgroupNamespace); ok && path == "" {
		if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
			return os.NewSyscallError("unshare cgroup namespace", err)
		}
	}
	return nil
}

// mountCgroups makes a mount of type cgroup: the container's own part of the
// host's hierarchies.
func (s *setup) mountCgroups(m *spec.Mount) error {
	if err := s.waitJoined(); err != nil {
		return err
	}
	hierarchies := s.container.hierarchies
	if hierarchies.Unified {
		tree, err := s.cgroupTree(0, "cgroup2", nil)
		if err != nil {
			return err
		}
		return s.attachCgroup(tree, m, m.Target)
	}
	// cgroup v1: a tmpfs with a directory a hierarchy, and links for those
	// controllers that share one.
	attr := m.Set&^unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	data := labelledData(&spec.Mount{Type: "tmpfs", Data: []string{"mode=755"}}, s.plan)
	top, err := linux.NewMount("tmpfs", "tmpfs", data, attr)
	if err != nil {
		return err
	}
	if err := s.attach(top, m.Target); err != nil {
		return err
	}
	for i, hierarchy := range hierarchies.V1 {
		tree, err := s.cgroupTree(i, "cgroup", hierarchy.Data)
		if err != nil {
			return fmt.Errorf("hierarchy %q: %w", hierarchy.Name, err)
		}
		if err := s.attachCgroup(tree, m, path.Join(m.Target, hierarchy.Name)); err != nil {
			return fmt.Errorf("hierarchy %q: %w", hierarchy.Name, err)
		}
		for _, link := range hierarchy.Links {
			if err := unix.Symlinkat(hierarchy.Name, int(top.Fd()), link); err != nil {
				return &os.PathError{Op: "symlink", Path: link, Err: err}
			}
		}
	}
	if m.ReadOnly {
		s.sealLast = append(s.sealLast, sealed{top, m})
	}
	return nil
}

// cgroupTree returns the tree that create cloned, or, in a cgroup namespace of
// our own, mounts the file system anew, so that its root is the namespace's.
func (s *setup) cgroupTree(index int, fstype string, data []string) (*os.File, error) {
	if trees := s.container.hierarchies.Trees; len(trees) > 0 {
		return trees[index], nil
	}
	return linux.NewMount(fstype, "cgroup", data, 0)
}

func (s *setup) attachCgroup(tree *os.File, m *spec.Mount, target string) error {
	if err := applyAttr(tree, m.Set, m.Clear, false); err != nil {
		return err
	}
	if err := linux.SetPropagation(tree, unix.MS_PRIVATE|unix.MS_REC); err != nil {
		return err
	}
	return s.attach(tree, target)
}
