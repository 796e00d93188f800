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
	runErrorTests(t, true, []errorTest{
		{"username", func(c *specs.Spec) { c.Process.User.Username = "a" }, `process.user.username: not supported on Linux`},
		{"commandLine", func(c *specs.Spec) { c.Process.CommandLine = "a" }, `process.commandLine: not supported on Linux`},
		{"vm", func(c *specs.Spec) { c.VM = &specs.VM{} }, `vm: not supported yet`},
		{"windows", func(c *specs.Spec) { c.Windows = &specs.Windows{} }, `windows: not supported on Linux`},
		{"solaris", func(c *specs.Spec) { c.Solaris = &specs.Solaris{} }, `solaris: not supported on Linux`},
		{"zos", func(c *specs.Spec) { c.ZOS = &specs.ZOS{} }, `zos: not supported on Linux`},
		{"freebsd", func(c *specs.Spec) { c.FreeBSD = &specs.FreeBSD{} }, `freebsd: not supported on Linux`},

		{"idmap", mount("ro", "idmap"), `mounts[0].type "tmpfs": an id-mapped mount is not supported yet but for a bind mount`},
		{"remount", mount("remount", "ro"), `mounts[0].options "remount": not supported yet but for a bind mount`},
		{"two propagations", mount("rslave", "shared"), `mounts[0].options[1] "shared": a second kind of propagation is not supported yet`},
		{"mount mappings", func(c *specs.Spec) {
			ids := []specs.LinuxIDMapping{{Size: 1}}
			c.Mounts = []specs.Mount{{Destination: "/a", Type: "tmpfs", UIDMappings: ids, GIDMappings: ids}}
		}, `mounts[0].type "tmpfs": an id-mapped mount is not supported yet but for a bind mount`},
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
