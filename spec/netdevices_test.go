package spec

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestNetDevices(t *testing.T) {
	t.Parallel()
	type devices = map[string]specs.LinuxNetDevice
	move := func(list devices) func(*specs.Spec) {
		return func(c *specs.Spec) {
			c.Linux.NetDevices = list
			c.Linux.Namespaces = namespace(specs.NetworkNamespace)
		}
	}
	name := func(name string) func(*specs.Spec) { return move(devices{"eth0": {Name: name}}) }
	runErrorTests(t, false, []errorTest{
		{"same name", move(devices{"eth0": {}}), ""},
		{"new name", name("net-1.2_3"), ""},
		{"pattern", name("wan%d"), ""},
		{"twice the same pattern", move(devices{"eth0": {Name: "e%d"}, "eth1": {Name: "e%d"}}), ""},
		{"names exchanged", move(devices{"eth0": {Name: "eth1"}, "eth1": {Name: "eth0"}}), ""},
		{"no namespace", func(c *specs.Spec) { c.Linux.NetDevices = devices{"eth0": {}} }, `linux.netDevices: needs a network namespace in linux.namespaces`},
		{"twice the same name", move(devices{"eth0": {}, "eth1": {Name: "eth0"}}), `linux.netDevices.eth1.name "eth0": is there twice`},
		{"no name on the host", move(devices{"": {}}), `linux.netDevices "": not the name of a network device`},
		{"pattern on the host", move(devices{"eth%d": {}}), `linux.netDevices "eth%d": must be the name of one device`},
		{"dots", name(".."), `linux.netDevices.eth0.name "..": not the name of a network device`},
		{"slash", name("a/b"), `linux.netDevices.eth0.name "a/b": must have no slash, colon, space or NUL byte`},
		{"colon", name("a:b"), `linux.netDevices.eth0.name "a:b": must have no slash, colon, space or NUL byte`},
		{"NUL", name("a\x00"), `linux.netDevices.eth0.name "a\x00": must have no slash, colon, space or NUL byte`},
		{"too long", name("abcdefghijklmnop"), `linux.netDevices.eth0.name "abcdefghijklmnop": longer than 15 bytes`},
		{"other pattern", name("a%s"), `linux.netDevices.eth0.name "a%s": must have no % but one %d`},
		{"two patterns", name("a%d%d"), `linux.netDevices.eth0.name "a%d%d": must have no % but one %d`},
	})
}
