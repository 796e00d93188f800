package container

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/opencontainers/cgroups"
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func ptr[T any](v T) *T { return &v }

func TestCgroupResources(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		in   *specs.LinuxResources
		want cgroups.Resources
	}{
		{"nil", nil, cgroups.Resources{}},
		{"empty", &specs.LinuxResources{}, cgroups.Resources{}},
		{"empty parts", &specs.LinuxResources{
			Memory: &specs.LinuxMemory{}, CPU: &specs.LinuxCPU{}, Pids: &specs.LinuxPids{},
			BlockIO: &specs.LinuxBlockIO{}, Network: &specs.LinuxNetwork{},
		}, cgroups.Resources{}},
		{
			"memory", &specs.LinuxResources{Memory: &specs.LinuxMemory{
				Limit: ptr(int64(1)), Reservation: ptr(int64(2)), Swap: ptr(int64(-1)), Swappiness: ptr(uint64(0)),
				DisableOOMKiller: ptr(true), CheckBeforeUpdate: ptr(true),
			}},
			cgroups.Resources{
				Memory: 1, MemoryReservation: 2, MemorySwap: -1, MemorySwappiness: ptr(uint64(0)),
				OomKillDisable: true, MemoryCheckBeforeUpdate: true,
			},
		},
		{
			"cpu", &specs.LinuxResources{CPU: &specs.LinuxCPU{
				Shares: ptr(uint64(1024)), Quota: ptr(int64(1)), Burst: ptr(uint64(2)), Period: ptr(uint64(3)),
				RealtimeRuntime: ptr(int64(4)), RealtimePeriod: ptr(uint64(5)), Cpus: "0-1", Mems: "0", Idle: ptr(int64(1)),
			}},
			cgroups.Resources{
				CpuShares: 1024, CpuWeight: cgroups.ConvertCPUSharesToCgroupV2Value(1024), CpuQuota: 1, CpuBurst: ptr(uint64(2)), CpuPeriod: 3,
				CpuRtRuntime: 4, CpuRtPeriod: 5, CpusetCpus: "0-1", CpusetMems: "0", CPUIdle: ptr(int64(1)),
			},
		},
		{"pids", &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr(int64(7))}}, cgroups.Resources{PidsLimit: ptr(int64(7))}},
		{
			"block io", &specs.LinuxResources{BlockIO: &specs.LinuxBlockIO{
				Weight: ptr(uint16(10)), LeafWeight: ptr(uint16(11)),
				WeightDevice:            []specs.LinuxWeightDevice{weightDevice(8, 1, 12, 13)},
				ThrottleReadBpsDevice:   []specs.LinuxThrottleDevice{throttleDevice(8, 2, 14)},
				ThrottleWriteBpsDevice:  []specs.LinuxThrottleDevice{throttleDevice(8, 3, 15)},
				ThrottleReadIOPSDevice:  []specs.LinuxThrottleDevice{throttleDevice(8, 4, 16)},
				ThrottleWriteIOPSDevice: []specs.LinuxThrottleDevice{throttleDevice(8, 5, 17), throttleDevice(8, 6, 18)},
			}},
			cgroups.Resources{
				BlkioWeight: 10, BlkioLeafWeight: 11,
				BlkioWeightDevice:            []*cgroups.WeightDevice{cgroups.NewWeightDevice(8, 1, 12, 13)},
				BlkioThrottleReadBpsDevice:   []*cgroups.ThrottleDevice{cgroups.NewThrottleDevice(8, 2, 14)},
				BlkioThrottleWriteBpsDevice:  []*cgroups.ThrottleDevice{cgroups.NewThrottleDevice(8, 3, 15)},
				BlkioThrottleReadIOPSDevice:  []*cgroups.ThrottleDevice{cgroups.NewThrottleDevice(8, 4, 16)},
				BlkioThrottleWriteIOPSDevice: []*cgroups.ThrottleDevice{cgroups.NewThrottleDevice(8, 5, 17), cgroups.NewThrottleDevice(8, 6, 18)},
			},
		},
		{
			"the rest", &specs.LinuxResources{
				HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 1}},
				Network:        &specs.LinuxNetwork{ClassID: ptr(uint32(2)), Priorities: []specs.LinuxInterfacePriority{{Name: "eth0", Priority: 3}}},
				Rdma:           map[string]specs.LinuxRdma{"mlx": {HcaHandles: ptr(uint32(4))}},
				Unified:        map[string]string{"memory.high": "5"},
			},
			cgroups.Resources{
				HugetlbLimit:  []*cgroups.HugepageLimit{{Pagesize: "2MB", Limit: 1}},
				NetClsClassid: 2, NetPrioIfpriomap: []*cgroups.IfPrioMap{{Interface: "eth0", Priority: 3}},
				Rdma:    map[string]cgroups.LinuxRdma{"mlx": {HcaHandles: ptr(uint32(4))}},
				Unified: map[string]string{"memory.high": "5"},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := cgroupResources(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.Devices, defaultDeviceRules()) {
				t.Errorf("device rules %v", got.Devices)
			}
			got.Devices = nil
			if !reflect.DeepEqual(got, &tt.want) {
				t.Errorf("%+v, want %+v", got, &tt.want)
			}
		})
	}
}

func weightDevice(major, minor int64, weight, leaf uint16) specs.LinuxWeightDevice {
	d := specs.LinuxWeightDevice{Weight: &weight, LeafWeight: &leaf}
	d.Major, d.Minor = major, minor
	return d
}

func throttleDevice(major, minor int64, rate uint64) specs.LinuxThrottleDevice {
	d := specs.LinuxThrottleDevice{Rate: rate}
	d.Major, d.Minor = major, minor
	return d
}

func TestDeviceRule(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in      specs.LinuxDeviceCgroup
		want    devices.Rule
		wantErr string
	}{
		{in: specs.LinuxDeviceCgroup{Access: "rwm"}, want: devices.Rule{Type: 'a', Major: -1, Minor: -1, Permissions: "rwm"}},
		{in: specs.LinuxDeviceCgroup{Type: "a", Access: "rwm", Allow: true}, want: devices.Rule{Type: 'a', Major: -1, Minor: -1, Permissions: "rwm", Allow: true}},
		{in: specs.LinuxDeviceCgroup{Type: "b", Major: ptr(int64(8)), Access: "r"}, want: devices.Rule{Type: 'b', Major: 8, Minor: -1, Permissions: "r"}},
		{in: specs.LinuxDeviceCgroup{Type: "c", Major: ptr(int64(1)), Minor: ptr(int64(0)), Access: "m"}, want: devices.Rule{Type: 'c', Major: 1, Minor: 0, Permissions: "m"}},
		{in: specs.LinuxDeviceCgroup{Type: "u", Minor: ptr(int64(3)), Access: "w"}, want: devices.Rule{Type: 'c', Major: -1, Minor: 3, Permissions: "w"}},
		{in: specs.LinuxDeviceCgroup{Type: "c", Access: "mwrr"}, want: devices.Rule{Type: 'c', Major: -1, Minor: -1, Permissions: "rwm"}},
		{in: specs.LinuxDeviceCgroup{Type: "p", Access: "r"}, wantErr: `type "p": want a, b or c`},
		{in: specs.LinuxDeviceCgroup{Type: "char", Access: "r"}, wantErr: `type "char": want a, b or c`},
		{in: specs.LinuxDeviceCgroup{Type: "c"}, wantErr: `access "": want some of r, w and m`},
		{in: specs.LinuxDeviceCgroup{Type: "c", Access: "rx"}, wantErr: `access "rx": want some of r, w and m`},
		{in: specs.LinuxDeviceCgroup{Type: "c", Access: "rxw"}, wantErr: `access "rxw": want some of r, w and m`},
	} {
		got, err := deviceRule(tt.in)
		if tt.wantErr != "" {
			if err == nil || err.Error() != tt.wantErr {
				t.Errorf("%+v: error %v, want %s", tt.in, err, tt.wantErr)
			}
			continue
		}
		if err != nil || *got != tt.want {
			t.Errorf("%+v: %+v, error %v, want %+v", tt.in, got, err, tt.want)
		}
	}
}

// TestDeviceRules needs the default rules to come after those of config.json.
func TestDeviceRules(t *testing.T) {
	t.Parallel()
	deny := specs.LinuxDeviceCgroup{Access: "rwm"}
	got, err := cgroupResources(&specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{deny, {Type: "c", Access: "r", Allow: true}}})
	if err != nil {
		t.Fatal(err)
	}
	if rest := got.Devices[2:]; got.Devices[0].Allow || !got.Devices[1].Allow || !reflect.DeepEqual(rest, defaultDeviceRules()) {
		t.Errorf("rules %v", got.Devices)
	}
	for _, rule := range defaultDeviceRules() {
		if !rule.Allow || rule.Type == devices.BlockDevice && rule.Permissions != "m" {
			t.Errorf("default rule %+v", rule)
		}
	}
	_, err = cgroupResources(&specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{deny, {Type: "x", Access: "r"}}})
	if want := `linux.resources.devices[1]: type "x": want a, b or c`; fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
