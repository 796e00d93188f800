package spec

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestTranslateRefusesUnsupported(t *testing.T) {
	t.Parallel()
	mount := func(options ...string) func(*specs.Spec) {
		return func(c *specs.Spec) {
			c.Mounts = []specs.Mount{{Destination: "/a", Type: "tmpfs", Source: "tmpfs", Options: options}}
		}
	}
	profile := func(profile specs.LinuxSeccomp) func(*specs.Spec) {
		return func(c *specs.Spec) { c.Linux.Seccomp = &profile }
	}
	const agent = "not supported yet: no seccomp agent is told of notifications"
	runErrorTests(t, true, []errorTest{
		{"selinux", func(c *specs.Spec) { c.Process.SelinuxLabel = "a" }, `process.selinuxLabel: not supported yet`},
		{"scheduler", func(c *specs.Spec) { c.Process.Scheduler = &specs.Scheduler{} }, `process.scheduler: not supported yet`},
		{"ioPriority", func(c *specs.Spec) { c.Process.IOPriority = &specs.LinuxIOPriority{} }, `process.ioPriority: not supported yet`},
		{"affinity", func(c *specs.Spec) { c.Process.ExecCPUAffinity = &specs.CPUAffinity{} }, `process.execCPUAffinity: not supported yet`},
		{"username", func(c *specs.Spec) { c.Process.User.Username = "a" }, `process.user.username: not supported on Linux`},
		{"commandLine", func(c *specs.Spec) { c.Process.CommandLine = "a" }, `process.commandLine: not supported on Linux`},
		{"mountLabel", func(c *specs.Spec) { c.Linux.MountLabel = "a" }, `linux.mountLabel: not supported yet`},
		{"personality", func(c *specs.Spec) { c.Linux.Personality = &specs.LinuxPersonality{} }, `linux.personality: not supported yet`},
		{"memoryPolicy", func(c *specs.Spec) { c.Linux.MemoryPolicy = &specs.LinuxMemoryPolicy{} }, `linux.memoryPolicy: not supported yet`},
		{"netDevices", func(c *specs.Spec) { c.Linux.NetDevices = map[string]specs.LinuxNetDevice{"eth0": {}} }, `linux.netDevices: not supported yet`},
		{"intelRdt", func(c *specs.Spec) { c.Linux.IntelRdt = &specs.LinuxIntelRdt{} }, `linux.intelRdt: not supported yet`},
		{"timeOffsets", func(c *specs.Spec) { c.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{"boottime": {}} }, `linux.timeOffsets: not supported yet`},
		{"time", func(c *specs.Spec) { c.Linux.Namespaces = namespace(specs.TimeNamespace) }, `linux.namespaces[1].type "time": not supported yet`},
		{"listenerPath", profile(specs.LinuxSeccomp{ListenerPath: "/a"}), `linux.seccomp.listenerPath: ` + agent},
		{"listenerMetadata", profile(specs.LinuxSeccomp{ListenerMetadata: "a"}), `linux.seccomp.listenerMetadata: ` + agent},
		{"notify", profile(specs.LinuxSeccomp{DefaultAction: specs.ActNotify}), `linux.seccomp: SCMP_ACT_NOTIFY: ` + agent},
		{"notify rule", profile(specs.LinuxSeccomp{
			DefaultAction: specs.ActAllow,
			Syscalls:      []specs.LinuxSyscall{{Names: []string{"mkdir"}, Action: specs.ActErrno}, {Names: []string{"bpf"}, Action: specs.ActNotify}},
		}), `linux.seccomp: SCMP_ACT_NOTIFY: ` + agent},
		{"vm", func(c *specs.Spec) { c.VM = &specs.VM{} }, `vm: not supported yet`},
		{"windows", func(c *specs.Spec) { c.Windows = &specs.Windows{} }, `windows: not supported on Linux`},
		{"solaris", func(c *specs.Spec) { c.Solaris = &specs.Solaris{} }, `solaris: not supported on Linux`},
		{"zos", func(c *specs.Spec) { c.ZOS = &specs.ZOS{} }, `zos: not supported on Linux`},
		{"freebsd", func(c *specs.Spec) { c.FreeBSD = &specs.FreeBSD{} }, `freebsd: not supported on Linux`},

		{"idmap", mount("ro", "idmap"), `mounts[0].options[1] "idmap": not supported yet`},
		{"ridmap", mount("ridmap"), `mounts[0].options[0] "ridmap": not supported yet`},
		{"remount", mount("remount", "ro"), `mounts[0].options "remount": not supported yet but for a bind mount`},
		{"two propagations", mount("rslave", "shared"), `mounts[0].options[1] "shared": a second kind of propagation is not supported yet`},
		{"mount mappings", func(c *specs.Spec) {
			c.Mounts = []specs.Mount{{Destination: "/a", Type: "tmpfs", GIDMappings: []specs.LinuxIDMapping{{Size: 1}}}}
		}, `mounts[0].uidMappings: not supported yet`},
	})
}

// Each has a neighbour in the test above.
func TestTranslateAcceptsEmpty(t *testing.T) {
	t.Parallel()
	runErrorTests(t, false, []errorTest{
		{"maps", func(c *specs.Spec) {
			c.Linux.NetDevices = map[string]specs.LinuxNetDevice{}
			c.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{}
			c.Linux.UIDMappings = []specs.LinuxIDMapping{}
		}, ""},
		{"seccomp", func(c *specs.Spec) { c.Linux.Seccomp = &specs.LinuxSeccomp{} }, ""},
		{"remount of a bind mount", func(c *specs.Spec) {
			c.Mounts = []specs.Mount{{Destination: "/a", Source: "/a", Options: []string{"bind", "remount", "ro"}}}
		}, ""},
		{"resources that the cgroup library applies", func(c *specs.Spec) {
			c.Linux.Resources = &specs.LinuxResources{
				Rdma: map[string]specs.LinuxRdma{"a": {}}, Network: &specs.LinuxNetwork{},
				Unified: map[string]string{"a": "b"}, HugepageLimits: []specs.LinuxHugepageLimit{{}},
				BlockIO: &specs.LinuxBlockIO{},
			}
		}, ""},
	})
}
