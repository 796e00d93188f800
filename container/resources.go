package container

import (
	"fmt"
	"strings"

	"github.com/opencontainers/cgroups"
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// cgroupResources translates linux.resources for package cgroups and appends
// the device rules without which no container works.
func cgroupResources(r *specs.LinuxResources) (*cgroups.Resources, error) {
	out := &cgroups.Resources{}
	if r == nil {
		r = &specs.LinuxResources{}
	}
	for i, d := range r.Devices {
		rule, err := deviceRule(d)
		if err != nil {
			return nil, fmt.Errorf("linux.resources.devices[%d]: %w", i, err)
		}
		out.Devices = append(out.Devices, rule)
	}
	out.Devices = append(out.Devices, defaultDeviceRules()...)
	setMemory(out, r.Memory)
	setCPU(out, r.CPU)
	if r.Pids != nil {
		out.PidsLimit = r.Pids.Limit
	}
	setBlockIO(out, r.BlockIO)
	for _, l := range r.HugepageLimits {
		out.HugetlbLimit = append(out.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: l.Pagesize, Limit: l.Limit})
	}
	if n := r.Network; n != nil {
		if n.ClassID != nil {
			out.NetClsClassid = *n.ClassID
		}
		for _, p := range n.Priorities {
			out.NetPrioIfpriomap = append(out.NetPrioIfpriomap, &cgroups.IfPrioMap{Interface: p.Name, Priority: int64(p.Priority)})
		}
	}
	if len(r.Rdma) > 0 {
		out.Rdma = make(map[string]cgroups.LinuxRdma, len(r.Rdma))
		for name, limit := range r.Rdma {
			out.Rdma[name] = cgroups.LinuxRdma{HcaHandles: limit.HcaHandles, HcaObjects: limit.HcaObjects}
		}
	}
	out.Unified = r.Unified
	return out, nil
}

func setMemory(out *cgroups.Resources, m *specs.LinuxMemory) {
	if m == nil {
		return
	}
	out.Memory = value(m.Limit)
	out.MemoryReservation = value(m.Reservation)
	out.MemorySwap = value(m.Swap)
	out.MemorySwappiness = m.Swappiness
	out.OomKillDisable = value(m.DisableOOMKiller)
	out.MemoryCheckBeforeUpdate = value(m.CheckBeforeUpdate)
}

func setCPU(out *cgroups.Resources, c *specs.LinuxCPU) {
	if c == nil {
		return
	}
	if c.Shares != nil {
		out.CpuShares = *c.Shares
		out.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(*c.Shares)
	}
	out.CpuQuota = value(c.Quota)
	out.CpuBurst = c.Burst
	out.CpuPeriod = value(c.Period)
	out.CpuRtRuntime = value(c.RealtimeRuntime)
	out.CpuRtPeriod = value(c.RealtimePeriod)
	out.CpusetCpus, out.CpusetMems = c.Cpus, c.Mems
	out.CPUIdle = c.Idle
}

func setBlockIO(out *cgroups.Resources, b *specs.LinuxBlockIO) {
	if b == nil {
		return
	}
	out.BlkioWeight = value(b.Weight)
	out.BlkioLeafWeight = value(b.LeafWeight)
	for _, d := range b.WeightDevice {
		out.BlkioWeightDevice = append(out.BlkioWeightDevice, cgroups.NewWeightDevice(d.Major, d.Minor, value(d.Weight), value(d.LeafWeight)))
	}
	out.BlkioThrottleReadBpsDevice = throttle(b.ThrottleReadBpsDevice)
	out.BlkioThrottleWriteBpsDevice = throttle(b.ThrottleWriteBpsDevice)
	out.BlkioThrottleReadIOPSDevice = throttle(b.ThrottleReadIOPSDevice)
	out.BlkioThrottleWriteIOPSDevice = throttle(b.ThrottleWriteIOPSDevice)
}

func throttle(in []specs.LinuxThrottleDevice) []*cgroups.ThrottleDevice {
	var out []*cgroups.ThrottleDevice
	for _, d := range in {
		out = append(out, cgroups.NewThrottleDevice(d.Major, d.Minor, d.Rate))
	}
	return out
}

// value returns what p points to, or nothing where it is nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func deviceRule(d specs.LinuxDeviceCgroup) (*devices.Rule, error) {
	rule := &devices.Rule{
		Type:        devices.WildcardDevice,
		Major:       devices.Wildcard,
		Minor:       devices.Wildcard,
		Permissions: devices.Permissions(d.Access).Union(""), // in the one order
		Allow:       d.Allow,
	}
	switch d.Type {
	case "", "a":
	case "b":
		rule.Type = devices.BlockDevice
	case "c", "u":
		rule.Type = devices.CharDevice
	default:
		return nil, fmt.Errorf("type %q: want a, b or c", d.Type)
	}
	if d.Access == "" || strings.Trim(d.Access, "rwm") != "" {
		return nil, fmt.Errorf("access %q: want some of r, w and m", d.Access)
	}
	if d.Major != nil {
		rule.Major = *d.Major
	}
	if d.Minor != nil {
		rule.Minor = *d.Minor
	}
	return rule, nil
}

// defaultDeviceRules come last, so that no deny rule takes away what every
// container needs: making nodes, the default devices, terminals, and the tun
// device, which users of all runtimes rely on.
func defaultDeviceRules() []*devices.Rule {
	char := func(major, minor int64, access string) *devices.Rule {
		return &devices.Rule{Type: devices.CharDevice, Major: major, Minor: minor, Permissions: devices.Permissions(access), Allow: true}
	}
	const any = devices.Wildcard
	return []*devices.Rule{
		char(any, any, "m"),
		{Type: devices.BlockDevice, Major: any, Minor: any, Permissions: "m", Allow: true},
		char(1, 3, "rwm"), char(1, 5, "rwm"), char(1, 7, "rwm"), char(1, 8, "rwm"), char(1, 9, "rwm"), // null zero full random urandom
		char(5, 0, "rwm"), char(5, 2, "rwm"), char(136, any, "rwm"), // tty ptmx pts
		char(10, 200, "rwm"), // net/tun
	}
}
