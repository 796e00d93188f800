package integration

import (
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestSysOfAnotherNetwork has a container in a user namespace join a network that
// is not of it, where the kernel makes no sysfs: it has the host's, read-only, as
// under crun. The control has a network of its own.
func TestSysOfAnotherNetwork(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	network := withNamespace(specs.NetworkNamespace, l.pinnedNetwork("ip link set lo up"))
	const script = "ls -d /sys/class/net/lo; mkdir /sys/kernel/x 2>&1 | grep -o 'Read-only.*'; sed -n 's|.* /sys \\(r[ow]\\).*|\\1|p' /proc/self/mountinfo"
	for name, edits := range map[string][]edit{"another": {withUserNamespace, network}, "its own": {withUserNamespace}} {
		got := strings.Fields(l.output(script, edits...))
		equal(t, name, strings.Join(got, " "), "/sys/class/net/lo Read-only file system ro")
	}
}
