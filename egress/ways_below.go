package egress

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// kernelTypes are the file systems by which the kernel shows its processes and
// devices and is told what to do, as mountinfo names them. In a tree that the
// host uses as the root of something they are mounted too.
var kernelTypes = []string{
	"proc", "devpts", "devtmpfs", "sysfs", "cgroup", "cgroup2", "bpf", "binfmt_misc", "configfs", "debugfs", "efivarfs",
	"fusectl", "pstore", "securityfs", "selinuxfs", "tracefs",
}

// wayBelow is [wayFinder.wayOut] for what is mounted below source and comes along
// with a recursive bind mount. Below a file system of the kernel's own, which
// is made read-only with all of that, nothing else is.
func (w *wayFinder) wayBelow(source string) (*way, error) {
	top, err := filepath.EvalSymlinks(source)
	if err != nil || w.isAllowed(top) || isKernelFS(top) {
		return nil, nil // a missing source is left to the mount to report
	}
	below, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !slices.Contains(kernelTypes, m.FSType) || !strings.HasPrefix(m.Mountpoint, strings.TrimSuffix(top, "/")+"/"), false
	})
	if err != nil || len(below) == 0 {
		return nil, err
	}
	return &way{what: fmt.Sprintf("a %s is mounted below it, on %q", below[0].FSType, below[0].Mountpoint), fix: fixKernel}, nil
}
