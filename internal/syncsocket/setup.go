package syncsocket

import (
	"os"

	"eggrun/egress/inside"
	"eggrun/internal/linux"
	"eggrun/internal/seccomp"
	"eggrun/spec"
)

// Task is what an init process is started for.
type Task string

const (
	// Create makes a container and becomes its first program.
	Create Task = "create"
	// Exec becomes a further program of an existing container, whose namespaces
	// init is in already.
	Exec Task = "exec"
	// Mount makes the plan's mounts in an existing container, and ends.
	Mount Task = "mount"
	// Unmount removes the mounts on their targets, and ends.
	Unmount Task = "unmount"
)

// Word is the byte that start writes to the exec fifo.
type Word byte

const (
	// Start lets the program run.
	Start Word = iota
	// StartOpen does so without the plan's ClosedEnv.
	StartOpen
)

// Setup is the body of a Request. With [Create] its files are the exec fifo and
// the rootfs tree.
type Setup struct {
	ID   string     `json:"id"`
	Task Task       `json:"task"`
	Plan *spec.Plan `json:"plan"`
	// Filters are loaded in this order.
	Filters []*seccomp.Filter `json:"filters,omitempty"`
	// Preserve is how many descriptors from 3 on the program keeps.
	Preserve int `json:"preserve,omitempty"`
	// ListenFDs is how many of them are sockets that a service manager passed
	// to the runtime, ListenFDNames what it called them; see sd_listen_fds(3).
	ListenFDs     int    `json:"listenFDs,omitempty"`
	ListenFDNames string `json:"listenFDNames,omitempty"`
	// NoPivot keeps the host's root below the container's.
	NoPivot bool `json:"noPivot,omitempty"`
	// HostMounts is set where init is in create's own mount namespace.
	HostMounts   bool `json:"hostMounts,omitempty"`
	NoNewKeyring bool `json:"noNewKeyring,omitempty"`
	// Wall is what init is to build in a network namespace of the container's
	// own; nil for nothing.
	Wall *inside.Wall `json:"wall,omitempty"`
	// Bundle is for the state that hooks get.
	Bundle string `json:"bundle"`
}

// Sockets is the body of Listener; its files are the sockets.
type Sockets struct {
	Names []string `json:"names"`
	// NoTables is that of [inside.Sockets].
	NoTables bool `json:"noTables,omitempty"`
}

// Hierarchies is the body of Joined: what a mount of type cgroup shows. Its
// files, Trees, are the container's own directories, cloned; there are none
// where the container has a cgroup namespace.
type Hierarchies struct {
	// Unified is set on cgroup v2: one tree.
	Unified bool          `json:"unified,omitempty"`
	V1      []HierarchyV1 `json:"v1,omitempty"`
	Trees   []*os.File    `json:"-"`
}

// HierarchyV1 is one cgroup v1 hierarchy, in the order of Trees.
type HierarchyV1 struct {
	// Name is its directory below /sys/fs/cgroup, as on the host.
	Name string `json:"name"`
	// Data are its mount options: controllers, or "none" and "name=systemd".
	Data []string `json:"data"`
	// Links are further names for it, "cpu" beside "cpu,cpuacct".
	Links []string `json:"links,omitempty"`
}

// Close closes the trees.
func (h *Hierarchies) Close() {
	for _, tree := range h.Trees {
		tree.Close()
	}
}

// AddTree appends a detached copy of the mount at dir.
func (h *Hierarchies) AddTree(dir string) error {
	tree, err := linux.CloneTree(dir, false)
	if err != nil {
		return err
	}
	h.Trees = append(h.Trees, tree)
	return nil
}
