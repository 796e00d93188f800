package egress

import (
	"maps"
	"path"
	"slices"
	"strings"

	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// capabilities are what a container with a policy may have at most: those that
// Docker gives to every container, without NET_RAW. It is a list of the allowed,
// for of the others many undo a wall, each in its own way: NET_ADMIN flushes
// rules, DAC_READ_SEARCH opens files of the host by their handles, SYS_RAWIO and
// SYS_BOOT replace the kernel.
var capabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_SETGID", "CAP_SETUID",
	"CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
}

// clamp takes from a plan what no container with a policy has, whatever its
// config.json says, as that of a privileged container does.
func clamp(plan *spec.Plan, devicesOpen bool) {
	if plan.Process != nil {
		plan.Process.Capabilities = clampCapabilities(plan.Process.Capabilities, devicesOpen)
	}
	clampMounts(plan)
}

// clampMounts makes the kernel's files read-only, and the engine's resolv.conf:
// it says who may be asked for the names of peers. Engines share one file among
// the containers of a network and keep it when one is started again, so whoever
// writes it would choose the resolver that the next one's sidecar asks.
func clampMounts(plan *spec.Plan) {
	joined, hasCgroups := plan.HasNamespace(specs.CgroupNamespace)
	ownCgroups := hasCgroups && joined == ""
	for i := range plan.Mounts {
		m := &plan.Mounts[i]
		switch {
		case m.Type == "proc":
			sealProc(plan, m.Target)
		case m.Type == "sysfs", m.IsBind() && (isKernelFS(m.Source) || path.Clean(m.Target) == resolvConf):
			makeReadOnly(m)
		case (m.Type == "cgroup" || m.Type == "cgroup2") && !ownCgroups:
			// More may be shown there than is the container's own, and in
			// another cgroup nobody would keep it from devices.
			makeReadOnly(m)
		}
	}
}

// clampCapabilities returns what of sets a container with a policy may have. With
// devicesOpen a node of a disk would be the disk.
func clampCapabilities(sets *specs.LinuxCapabilities, devicesOpen bool) *specs.LinuxCapabilities {
	if sets == nil {
		return nil
	}
	within := func(names []string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return !slices.Contains(capabilities, name) || devicesOpen && name == "CAP_MKNOD"
		})
	}
	return &specs.LinuxCapabilities{
		Bounding:    within(sets.Bounding),
		Effective:   within(sets.Effective),
		Inheritable: within(sets.Inheritable),
		Permitted:   within(sets.Permitted),
		Ambient:     within(sets.Ambient),
	}
}

// sealProc makes those parts of a procfs read-only that belong to the kernel and
// not to a process. Root needs no capability to write there: the settings of
// the network ask for its uid only.
func sealProc(plan *spec.Plan, target string) {
	for _, name := range []string{"bus", "fs", "irq", "sys", "sysrq-trigger"} {
		if p := path.Join(target, name); !slices.Contains(plan.Config.DenyWrite, p) {
			plan.Config.DenyWrite = append(plan.Config.DenyWrite, p)
		}
	}
}

// kernelMagics are file systems by which the kernel is told what to do; see
// statfs(2).
var kernelMagics = []int64{
	unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, configfsMagic, unix.SECURITYFS_MAGIC,
	unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC, unix.BPF_FS_MAGIC, unix.BINFMTFS_MAGIC, fusectlMagic,
	unix.PROC_SUPER_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.SELINUX_MAGIC,
}

// These two are not in the kernel's list for users, linux/magic.h.
const (
	configfsMagic = 0x62656570
	fusectlMagic  = 0x65735543
)

func isKernelFS(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && isKernelMagic(&fs)
}

func isKernelMagic(fs *unix.Statfs_t) bool {
	return slices.Contains(kernelMagics, int64(fs.Type))
}

func makeReadOnly(m *spec.Mount) {
	m.ReadOnly = true
	m.Set |= unix.MOUNT_ATTR_RDONLY
	m.Clear &^= unix.MOUNT_ATTR_RDONLY
	m.RecClear &^= unix.MOUNT_ATTR_RDONLY
	if m.IsBind() {
		m.RecSet |= unix.MOUNT_ATTR_RDONLY
	}
}

// harmlessSysctls are the settings of a network namespace that decide nothing
// about what leaves it.
var harmlessSysctls = []string{
	"net/ipv4/ip_unprivileged_port_start", "net/ipv4/ping_group_range", "net/ipv4/ip_local_port_range", "net/core/somaxconn",
	"net/ipv4/tcp_keepalive_time", "net/ipv4/tcp_keepalive_intvl", "net/ipv4/tcp_keepalive_probes",
}

// checkSysctls refuses the others. sysctls are as in [spec.Plan].
func checkSysctls(g *gaps, sysctls map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(sysctls)) {
		if strings.HasPrefix(name, "net/") && !slices.Contains(harmlessSysctls, name) {
			g.add("drop --sysctl for the network", "linux.sysctl %q could open the network", name)
		}
	}
}
