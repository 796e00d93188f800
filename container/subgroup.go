package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"eggrun/spec"

	"github.com/moby/sys/user"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// subgroup is a scope of systemd with a cgroup below it that is the root of the
// container's cgroup namespace: a service manager in the container then does not
// meddle with the scope, which is the host's. The limits are those of both, so
// that the container sees them.
type subgroup struct {
	cgroups.Manager // the scope's
	name, delegate  string
	config          *cgroups.Cgroup
	below           *fs2.Manager
}

func newSubgroup(scope cgroups.Manager, config *cgroups.Cgroup, name, delegate string) (*subgroup, error) {
	if !cgroups.IsCgroup2UnifiedMode() {
		return nil, errors.New("needs cgroup v2")
	}
	below, err := fs2.NewManager(config, filepath.Join(scope.Path(""), name))
	return &subgroup{Manager: scope, name: name, delegate: delegate, config: config, below: below}, err
}

// Apply puts the process into the cgroup below. Only then, with no process in it,
// can the scope hand its controllers down.
func (s *subgroup) Apply(pid int) error {
	if err := s.Manager.Apply(pid); err != nil {
		return err
	}
	if err := os.Mkdir(s.below.Path(""), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := cgroups.WriteCgroupProc(s.below.Path(""), pid); err != nil {
		return err
	}
	return fs2.CreateCgroupPath(s.below.Path(""), s.config)
}

func (s *subgroup) Set(r *cgroups.Resources) error {
	if err := s.Manager.Set(r); err != nil {
		return err
	}
	return s.below.Set(r)
}

// AddPid puts a further process where the container's are.
func (s *subgroup) AddPid(path string, pid int) error {
	return s.below.AddPid(filepath.Join(s.delegate, path), pid)
}

// enterDelegated moves init into the cgroup that the container manages by
// itself. Its cgroup namespace is there by now and does not move along.
func (s *subgroup) enterDelegated(pid int, plan *spec.Plan) error {
	if s.delegate == "" {
		return nil
	}
	dir := filepath.Join(s.below.Path(""), s.delegate)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := ownCgroup(dir, pid, plan); err != nil {
		return err
	}
	return cgroups.WriteCgroupProc(dir, pid)
}

// delegates tells whether the container's user is to own its cgroup, by the rules
// of the specification (config-linux, "Cgroup ownership"): with v2, a cgroup
// namespace of its own, and a writable cgroup file system at its usual place.
func delegates(plan *spec.Plan, isV2 bool) bool {
	path, ok := plan.HasNamespace(specs.CgroupNamespace)
	return isV2 && ok && path == "" && slices.ContainsFunc(plan.Mounts, func(m spec.Mount) bool {
		return m.Type == "cgroup" && m.Target == "/sys/fs/cgroup" && !m.ReadOnly
	})
}

// ownCgroup gives a cgroup of v2 to the container's user: the directory, and the
// files that the kernel says may be given away. Limits are not among them.
func ownCgroup(dir string, pid int, plan *spec.Plan) error {
	if plan.Process == nil {
		return nil
	}
	uid := int(plan.Process.User.UID)
	if _, ok := plan.HasNamespace(specs.UserNamespace); ok {
		maps, err := user.ParseIDMapFile(fmt.Sprintf("/proc/%d/uid_map", pid))
		if err != nil {
			return err
		}
		inside := int64(uid)
		i := slices.IndexFunc(maps, func(m user.IDMap) bool { return m.ID <= inside && inside < m.ID+m.Count })
		if i < 0 {
			return nil // init will say so
		}
		uid = int(maps[i].ParentID + inside - maps[i].ID)
	}
	if uid == os.Geteuid() {
		return nil
	}
	if err := os.Lchown(dir, uid, -1); err != nil {
		return err
	}
	files := "cgroup.procs cgroup.subtree_control cgroup.threads" // before Linux 4.15
	if list, err := os.ReadFile("/sys/kernel/cgroup/delegate"); err == nil {
		files = string(list)
	}
	for _, name := range strings.Fields(files) {
		if err := os.Lchown(filepath.Join(dir, name), uid, -1); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}
