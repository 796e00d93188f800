package container

import (
	"encoding/json"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// limits reads JSON as config.json has it.
func limits(t *testing.T, text string) *specs.LinuxResources {
	t.Helper()
	r := &specs.LinuxResources{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

// limitsText is the JSON of limits without its empty parts.
func limitsText(t *testing.T, r *specs.LinuxResources) string {
	t.Helper()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var parts map[string]any
	if err := json.Unmarshal(data, &parts); err != nil {
		t.Fatal(err)
	}
	for name, part := range parts {
		if m, ok := part.(map[string]any); ok && len(m) == 0 {
			delete(parts, name)
		}
	}
	text, err := json.Marshal(parts) // sorted by name
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestChangeLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, before, update     string
		apply, undo, after, fail string
	}{
		{name: "nothing", before: `{"pids":{"limit":5}}`, update: `{}`, apply: `{}`, undo: `{}`, after: `{"pids":{"limit":5}}`},
		{name: "empty parts", before: `{}`, update: `{"memory":{},"cpu":{},"pids":{},"blockIO":{},"network":{},"unified":{},"hugepageLimits":[]}`, apply: `{}`, undo: `{}`, after: `{}`},
		{
			name: "zeros", before: `{"memory":{"limit":9},"cpu":{"shares":2,"quota":3,"period":4}}`,
			update: `{"memory":{"limit":0,"swap":0,"reservation":0},"cpu":{"shares":0,"quota":0,"period":0,"realtimePeriod":0,"realtimeRuntime":0},"blockIO":{"weight":0}}`,
			apply:  `{}`, undo: `{"cpu":{"period":4,"quota":3,"shares":2}}`,
			after: `{"cpu":{"period":4,"quota":3,"shares":2},"memory":{"limit":9}}`,
		},
		{name: "device rules", before: `{"devices":[{"allow":false}]}`, update: `{"devices":[{"allow":true}]}`, apply: `{}`, undo: `{}`, after: `{}`},

		{name: "pids", before: `{}`, update: `{"pids":{"limit":7}}`, apply: `{"pids":{"limit":7}}`, undo: `{"pids":{"limit":-1}}`, after: `{"pids":{"limit":7}}`},
		{name: "pids again", before: `{"pids":{"limit":5}}`, update: `{"pids":{"limit":0}}`, apply: `{"pids":{"limit":0}}`, undo: `{"pids":{"limit":5}}`, after: `{"pids":{"limit":0}}`},

		{name: "memory", before: `{}`, update: `{"memory":{"limit":64}}`, apply: `{"memory":{"limit":64}}`, undo: `{"memory":{"limit":-1}}`, after: `{"memory":{"limit":64}}`},
		{
			name: "memory below the swap there was", before: `{"memory":{"limit":64,"swap":96,"swappiness":9}}`, update: `{"memory":{"limit":32}}`,
			apply: `{"memory":{"limit":32,"swap":96}}`, undo: `{"memory":{"limit":64,"swap":96,"swappiness":9}}`, after: `{"memory":{"limit":32,"swap":96,"swappiness":9}}`,
		},
		{
			name: "memory above it", before: `{"memory":{"limit":64,"swap":96}}`, update: `{"memory":{"limit":97}}`,
			fail: "memory and swap: together 96 bytes, less than the 97 of memory alone; give --memory-swap too",
		},
		{
			name: "swap alone", before: `{"memory":{"limit":64}}`, update: `{"memory":{"swap":96}}`,
			apply: `{"memory":{"limit":64,"swap":96}}`, undo: `{"memory":{"limit":64,"swap":-1}}`, after: `{"memory":{"limit":64,"swap":96}}`,
		},
		{
			name: "no limit", before: `{"memory":{"limit":64,"swap":96}}`, update: `{"memory":{"limit":-1}}`,
			apply: `{"memory":{"limit":-1}}`, undo: `{"memory":{"limit":64,"swap":96}}`, after: `{"memory":{"limit":-1}}`,
		},
		{
			name: "no limit of swap", before: `{"memory":{"limit":64,"swap":96}}`, update: `{"memory":{"limit":128,"swap":-1}}`,
			apply: `{"memory":{"limit":128,"swap":-1}}`, undo: `{"memory":{"limit":64,"swap":96}}`, after: `{"memory":{"limit":128,"swap":-1}}`,
		},
		{
			name: "check", before: `{"memory":{"limit":64,"checkBeforeUpdate":true}}`, update: `{"memory":{"reservation":32}}`,
			apply: `{"memory":{"checkBeforeUpdate":true,"reservation":32}}`, undo: `{}`, after: `{"memory":{"checkBeforeUpdate":true,"limit":64,"reservation":32}}`,
		},

		{
			name: "quota", before: `{"cpu":{"period":100}}`, update: `{"cpu":{"quota":50}}`,
			apply: `{"cpu":{"period":100,"quota":50}}`, undo: `{"cpu":{"period":100,"quota":-1}}`, after: `{"cpu":{"period":100,"quota":50}}`,
		},
		{
			name: "period", before: `{"cpu":{"quota":50,"shares":2}}`, update: `{"cpu":{"period":200}}`,
			apply: `{"cpu":{"period":200,"quota":50}}`, undo: `{"cpu":{"period":100000,"quota":50,"shares":2}}`, after: `{"cpu":{"period":200,"quota":50,"shares":2}}`,
		},
		{
			name: "the rest of cpu", before: `{}`, update: `{"cpu":{"shares":512,"burst":1,"idle":1,"cpus":"0","mems":"0"}}`,
			apply: `{"cpu":{"burst":1,"cpus":"0","idle":1,"mems":"0","shares":512}}`, undo: `{"cpu":{"burst":0,"idle":0,"shares":1024}}`,
			after: `{"cpu":{"burst":1,"cpus":"0","idle":1,"mems":"0","shares":512}}`,
		},
		{
			name: "cpus again", before: `{"cpu":{"cpus":"0-1","mems":"0"}}`, update: `{"cpu":{"cpus":"1"}}`,
			apply: `{"cpu":{"cpus":"1"}}`, undo: `{"cpu":{"cpus":"0-1","mems":"0"}}`, after: `{"cpu":{"cpus":"1","mems":"0"}}`,
		},

		{
			name:   "block devices",
			before: `{"blockIO":{"weight":10,"weightDevice":[{"major":8,"minor":0,"weight":20,"leafWeight":30}],"throttleReadBpsDevice":[{"major":8,"minor":0,"rate":1}]}}`,
			update: `{"blockIO":{"weightDevice":[{"major":8,"minor":0,"weight":40}],"throttleReadBpsDevice":[{"major":8,"minor":0,"rate":2},{"major":8,"minor":1,"rate":3}]}}`,
			apply:  `{"blockIO":{"throttleReadBpsDevice":[{"major":8,"minor":0,"rate":2},{"major":8,"minor":1,"rate":3}],"weightDevice":[{"leafWeight":30,"major":8,"minor":0,"weight":40}]}}`,
			undo:   `{"blockIO":{"throttleReadBpsDevice":[{"major":8,"minor":0,"rate":1}],"weight":10,"weightDevice":[{"leafWeight":30,"major":8,"minor":0,"weight":20}]}}`,
			after:  `{"blockIO":{"throttleReadBpsDevice":[{"major":8,"minor":0,"rate":2},{"major":8,"minor":1,"rate":3}],"weight":10,"weightDevice":[{"leafWeight":30,"major":8,"minor":0,"weight":40}]}}`,
		},
		{
			name:   "by name",
			before: `{"hugepageLimits":[{"pageSize":"2MB","limit":1},{"pageSize":"1GB","limit":2}],"rdma":{"a":{"hcaHandles":1}},"unified":{"memory.high":"5","cpu.idle":"0"},"network":{"classID":1,"priorities":[{"name":"eth0","priority":1}]}}`,
			update: `{"hugepageLimits":[{"pageSize":"2MB","limit":3}],"rdma":{"b":{"hcaHandles":2}},"unified":{"memory.high":"6","pids.max":"7"},"network":{"priorities":[{"name":"eth0","priority":2}]}}`,
			apply:  `{"hugepageLimits":[{"limit":3,"pageSize":"2MB"}],"network":{"priorities":[{"name":"eth0","priority":2}]},"rdma":{"b":{"hcaHandles":2}},"unified":{"memory.high":"6","pids.max":"7"}}`,
			undo:   `{"hugepageLimits":[{"limit":1,"pageSize":"2MB"}],"network":{"classID":1,"priorities":[{"name":"eth0","priority":1}]},"unified":{"memory.high":"5"}}`,
			after:  `{"hugepageLimits":[{"limit":3,"pageSize":"2MB"},{"limit":2,"pageSize":"1GB"}],"network":{"classID":1,"priorities":[{"name":"eth0","priority":2}]},"rdma":{"a":{"hcaHandles":1},"b":{"hcaHandles":2}},"unified":{"cpu.idle":"0","memory.high":"6","pids.max":"7"}}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before, update := limits(t, tt.before), limits(t, tt.update)
			change, err := changeLimits(before, update)
			if tt.fail != "" {
				if err == nil || err.Error() != tt.fail {
					t.Errorf("error %v, want %s", err, tt.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for what, one := range map[string]struct {
				got  *specs.LinuxResources
				want string
			}{"apply": {change.apply, tt.apply}, "undo": {change.undo, tt.undo}, "after": {change.after, tt.after}} {
				if got := limitsText(t, one.got); got != one.want {
					t.Errorf("%s: got %s, want %s", what, got, one.want)
				}
			}
			if got := limitsText(t, before); got != limitsText(t, limits(t, tt.before)) {
				t.Errorf("what was before has changed to %s", got)
			}
			if got := limitsText(t, update); got != limitsText(t, limits(t, tt.update)) {
				t.Errorf("the update has changed to %s", got)
			}
		})
	}
	if change, err := changeLimits(nil, limits(t, `{"pids":{"limit":7}}`)); err != nil || limitsText(t, change.after) != `{"pids":{"limit":7}}` {
		t.Errorf("from nothing: %v", err)
	}
}
