package spec

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestIDMap(t *testing.T) {
	t.Parallel()
	ids := []specs.LinuxIDMapping{{ContainerID: 5, HostID: 100005, Size: 10}} // id 0 may be left out
	mount := func(uids, gids []specs.LinuxIDMapping, options ...string) func(*specs.Spec) {
		return func(c *specs.Spec) {
			c.Mounts = []specs.Mount{{Destination: "/a", Source: "/b", Type: "bind", Options: options, UIDMappings: uids, GIDMappings: gids}}
		}
	}
	inUserNS := func(edit func(*specs.Spec)) func(*specs.Spec) {
		return func(c *specs.Spec) {
			edit(c)
			c.Linux.Namespaces = namespace(specs.UserNamespace)
			c.Linux.UIDMappings, c.Linux.GIDMappings = []specs.LinuxIDMapping{{Size: 9}}, []specs.LinuxIDMapping{{Size: 9}}
		}
	}
	const noUserNS = `mounts[0].uidMappings: must be set for an id-mapped mount of a container without a user namespace`
	runErrorTests(t, false, []errorTest{
		{"idmap", inUserNS(mount(nil, nil, "idmap")), ""},
		{"ridmap", inUserNS(mount(nil, nil, "ridmap")), ""},
		{"idmap of nobody's", mount(nil, nil, "idmap"), noUserNS},
		{"ridmap of nobody's", mount(nil, nil, "ridmap"), noUserNS},
		{"mappings", mount(ids, ids, "idmap"), ""},
		{"mappings alone", mount(ids, ids), ""},
		{"uids only", mount(ids, nil), `mounts[0].gidMappings: must be set along with the other one`},
		{"gids only", mount(nil, ids, "idmap"), `mounts[0].uidMappings: must be set along with the other one`},
		{"empty range", mount([]specs.LinuxIDMapping{{}}, ids), `mounts[0].uidMappings[0].size: must not be 0`},
		{"overlap", mount(ids, append(ids[:1:1], ids...)), `mounts[0].gidMappings[1]: overlaps with entry 0`},
	})
}
