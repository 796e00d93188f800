package initproc

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"eggrun/spec"

	"golang.org/x/sys/unix"
)

// setSelinux asks for the label that the program is to run under, in our own
// procfs as [setup.setApparmor] does. Create has dropped all labels on a host
// without SELinux.
func (s *setup) setSelinux() error {
	if s.container == nil || s.plan.Process == nil || s.plan.Process.SelinuxLabel == "" {
		return nil
	}
	label := s.plan.Process.SelinuxLabel
	if err := s.setAttr("exec", label); err != nil {
		return fmt.Errorf("selinux label %q: %w; the policy must know it and let it be entered", label, err)
	}
	return nil
}

// labelKeys has keyrings that this thread makes belong to the program: with
// another label it could not search its own. The keyring is init's only one.
func (s *setup) labelKeys() error {
	if s.plan.Process == nil || s.plan.Process.SelinuxLabel == "" {
		return nil
	}
	label := s.plan.Process.SelinuxLabel
	if err := s.setAttr("keycreate", label); err != nil {
		return fmt.Errorf("selinux label %q: keyring: %w", label, err)
	}
	return nil
}

// labelledData returns the parameters of a new file system, with the label that
// all files in it are to have. proc and sysfs take none, the cgroup file systems
// show what the host labels, and the label of mqueue is set by
// [setup.labelQueues].
func labelledData(m *spec.Mount, plan *spec.Plan) []string {
	label := plan.MountLabel
	hasLabel := slices.ContainsFunc(m.Data, func(parameter string) bool {
		key, _, _ := strings.Cut(parameter, "=")
		return strings.HasSuffix(key, "context")
	})
	switch m.Type {
	case "proc", "sysfs", "mqueue", "cgroup", "cgroup2":
		return m.Data
	}
	if label == "" || hasLabel {
		return m.Data
	}
	// No quotes: fsconfig(2) does not cut at the commas of a label.
	return append(slices.Clip(m.Data), cmp.Or(plan.MountContext, "context")+"="+label)
}

// labelQueues labels an mqueue file system, which takes no label as a parameter.
func (s *setup) labelQueues(tree *os.File, m *spec.Mount) error {
	label := s.plan.MountLabel
	if m.Type != "mqueue" || label == "" {
		return nil
	}
	root, err := openDirAt(tree, ".")
	if err != nil {
		return err
	}
	defer root.Close()
	err = unix.Fsetxattr(int(root.Fd()), "security.selinux", []byte(label), 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil // a policy that labels it by itself
	}
	return os.NewSyscallError("set selinux label", err)
}
