package container

import (
	"reflect"
	"testing"

	"github.com/opencontainers/cgroups"
	devices "github.com/opencontainers/cgroups/devices/config"
)

// TestLegacyScopeSet freezes nobody before the program runs.
func TestLegacyScopeSet(t *testing.T) {
	t.Parallel()
	var f fakeCgroup
	if err := (legacyScope{&f}).Set(&cgroups.Resources{CpuShares: 7, SkipDevices: true}); err != nil {
		t.Fatal(err)
	}
	want := []*cgroups.Resources{{CpuShares: 7, SkipDevices: true, SkipFreezeOnSet: true}}
	if !reflect.DeepEqual(f.sets, want) {
		t.Errorf("%+v", f.sets[0])
	}
}

// TestScopeProperties: systemd is told of rules in any case.
func TestScopeProperties(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string][]*devices.Rule{
		"some": {{Type: devices.CharDevice, Major: 1, Minor: 3, Permissions: "rwm", Allow: true}},
		"all":  {{Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "rwm", Allow: true}},
	} {
		properties, err := scopeProperties(&cgroups.Resources{Devices: rules})
		if err != nil {
			t.Fatal(err)
		}
		said := map[string]any{}
		for _, p := range properties {
			said[p.Name] = p.Value.Value()
		}
		if said["DevicePolicy"] != "strict" || reflect.ValueOf(said["DeviceAllow"]).Len() == 0 {
			t.Errorf("%s: %+v", name, said)
		}
	}
}
