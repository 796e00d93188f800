package container

import (
	"reflect"
	"testing"

	"github.com/opencontainers/cgroups"
)

// TestLegacyScopeSet freezes nobody before the program runs.
func TestLegacyScopeSet(t *testing.T) {
	t.Parallel()
	for _, isNew := range []bool{true, false} {
		var f fakeCgroup
		if err := (legacyScope{&f, isNew}).Set(&cgroups.Resources{CpuShares: 7, SkipDevices: true}); err != nil {
			t.Fatal(err)
		}
		want := []*cgroups.Resources{{CpuShares: 7, SkipDevices: true, SkipFreezeOnSet: isNew}}
		if !reflect.DeepEqual(f.sets, want) {
			t.Errorf("new %v: %+v", isNew, f.sets[0])
		}
	}
}
