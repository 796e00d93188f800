package container

import (
	"os"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// birthCgroup makes the cgroup and opens its directory, for init to be started
// in it: to move a process there is slower, since the kernel waits until nobody
// looks at where it was. It returns nil where that can't be, and [joinCgroup]
// does the rest or says what is wrong. A systemd scope comes into being only
// with a process, and a process of cgroup v1 cannot be born in a cgroup.
func birthCgroup(m cgroups.Manager, managerName string) *os.File {
	if m == nil || managerName != ManagerCgroupfs || !cgroups.IsCgroup2UnifiedMode() || m.Apply(-1) != nil {
		return nil
	}
	dir, err := os.OpenFile(m.Path(""), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	return dir
}

// alreadyIn stands for the pid of an init that was started in its cgroup, see
// [joinCgroup].
const alreadyIn = -1
