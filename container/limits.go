package container

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// withoutDevices returns what an update may have to know of the limits of
// config.json. The device rules are not among it: they never change.
func withoutDevices(r *specs.LinuxResources) *specs.LinuxResources {
	if r == nil {
		return nil
	}
	rest := *r
	rest.Devices = nil
	return &rest
}

// limitChange is what an update of limits comes to. In each of them nil or zero
// stands for what is to be left alone.
type limitChange struct {
	// apply is what was asked for, and what the kernel or systemd takes only
	// together with it.
	apply *specs.LinuxResources
	// undo takes apply back, as far as it is known what was before.
	undo *specs.LinuxResources
	// after are all limits that were ever given.
	after *specs.LinuxResources
}

// changeLimits works an update out, from all limits that were given before. As
// in runc zero means "not given", but for those where the kernel has a use for
// it: pids, swappiness, burst and idle.
func changeLimits(before, update *specs.LinuxResources) (*limitChange, error) {
	if before == nil {
		before = &specs.LinuxResources{}
	}
	change := &limitChange{
		apply: &specs.LinuxResources{HugepageLimits: update.HugepageLimits},
		undo:  &specs.LinuxResources{},
		after: withoutDevices(before),
	}
	if len(update.Rdma) > 0 {
		change.apply.Rdma = update.Rdma
	}
	if len(update.Unified) > 0 {
		change.apply.Unified = update.Unified
	}
	if update.Pids != nil && update.Pids.Limit != nil {
		change.setPids(update.Pids)
	}
	if update.CPU != nil {
		change.setCPU(or(before.CPU), update.CPU)
	}
	if update.BlockIO != nil {
		change.setBlockIO(or(before.BlockIO), update.BlockIO)
	}
	if update.Network != nil {
		change.setNetwork(or(before.Network), update.Network)
	}
	change.setKeyed(before)
	if update.Memory == nil {
		return change, nil
	}
	return change, change.setMemory(or(before.Memory), update.Memory)
}

// keepFromSystemd adds what systemd sets back with any change of a unit, for it
// does not know it: the weights of block I/O, and a CPU period without a quota.
func (c *limitChange) keepFromSystemd(before *specs.LinuxResources) {
	add := func(change, all *specs.LinuxResources) {
		cpu, blockIO := *or(change.CPU), *or(change.BlockIO)
		cpu.Quota, cpu.Period = cmp.Or(cpu.Quota, or(all.CPU).Quota), cmp.Or(cpu.Period, or(all.CPU).Period)
		blockIO.Weight = cmp.Or(blockIO.Weight, or(all.BlockIO).Weight)
		change.CPU, change.BlockIO = &cpu, &blockIO
	}
	add(c.apply, c.after)
	add(c.undo, or(before))
}

// or returns what p points to, or something empty.
func or[T any](p *T) *T {
	if p == nil {
		return new(T)
	}
	return p
}

// given returns nil for a pointer to zero, too.
func given[T comparable](p *T) *T {
	var zero T
	if p == nil || *p == zero {
		return nil
	}
	return p
}

func (c *limitChange) setPids(update *specs.LinuxPids) {
	none := int64(-1)
	c.undo.Pids = &specs.LinuxPids{Limit: cmp.Or(or(c.after.Pids).Limit, &none)}
	c.apply.Pids, c.after.Pids = update, update
}

// setMemory keeps the limit and that of memory and swap together: cgroup v2 has
// one of swap alone, which is their difference.
func (c *limitChange) setMemory(before, update *specs.LinuxMemory) error {
	none := int64(-1)
	limit, swap := given(update.Limit), given(update.Swap)
	after := *before
	after.Limit, after.Swap = cmp.Or(limit, before.Limit), cmp.Or(swap, before.Swap)
	after.Reservation = cmp.Or(given(update.Reservation), before.Reservation)
	after.Swappiness = cmp.Or(update.Swappiness, before.Swappiness)
	after.DisableOOMKiller = cmp.Or(update.DisableOOMKiller, before.DisableOOMKiller)
	after.CheckBeforeUpdate = cmp.Or(update.CheckBeforeUpdate, before.CheckBeforeUpdate)
	if limit != nil && *limit == -1 && swap == nil {
		after.Swap = nil // goes with the limit
	}
	apply := &specs.LinuxMemory{
		Reservation:       given(update.Reservation),
		Swappiness:        update.Swappiness,
		DisableOOMKiller:  update.DisableOOMKiller,
		CheckBeforeUpdate: after.CheckBeforeUpdate,
	}
	// A reservation of -1 would protect all memory on v2, so there is none to
	// go back to.
	undo := &specs.LinuxMemory{Reservation: before.Reservation, Swappiness: before.Swappiness}
	if limit != nil || swap != nil {
		apply.Limit, apply.Swap = after.Limit, after.Swap
		undo.Limit, undo.Swap = cmp.Or(before.Limit, &none), before.Swap
		if undo.Swap == nil && swap != nil && *undo.Limit != -1 {
			undo.Swap = &none
		}
		if total, memory := value(after.Swap), value(after.Limit); total > 0 && (total < memory) {
			return fmt.Errorf("memory and swap: together %d bytes, less than the %d of memory alone; give --memory-swap too", total, memory)
		}
	}
	c.apply.Memory, c.undo.Memory, c.after.Memory = apply, undo, &after
	return nil
}

// setCPU keeps quota and period together: systemd and cgroup v2 know one value
// for both. What the kernel has by default is in sched-bwc and cgroup-v2 of its
// documentation.
func (c *limitChange) setCPU(before, update *specs.LinuxCPU) {
	const defaultShares, defaultPeriod = 1024, 100_000
	shares, quota, period, burst, idle := uint64(defaultShares), int64(-1), uint64(defaultPeriod), uint64(0), int64(0)
	after := &specs.LinuxCPU{
		Shares:          cmp.Or(given(update.Shares), before.Shares),
		Quota:           cmp.Or(given(update.Quota), before.Quota),
		Period:          cmp.Or(given(update.Period), before.Period),
		Burst:           cmp.Or(update.Burst, before.Burst),
		RealtimeRuntime: cmp.Or(given(update.RealtimeRuntime), before.RealtimeRuntime),
		RealtimePeriod:  cmp.Or(given(update.RealtimePeriod), before.RealtimePeriod),
		Cpus:            cmp.Or(update.Cpus, before.Cpus),
		Mems:            cmp.Or(update.Mems, before.Mems),
		Idle:            cmp.Or(update.Idle, before.Idle),
	}
	apply := *update
	apply.Shares = given(update.Shares)
	apply.Quota, apply.Period = given(update.Quota), given(update.Period)
	apply.RealtimeRuntime, apply.RealtimePeriod = given(update.RealtimeRuntime), given(update.RealtimePeriod)
	undo := *before
	if apply.Quota != nil || apply.Period != nil {
		apply.Quota, apply.Period = after.Quota, after.Period
		undo.Quota, undo.Period = cmp.Or(before.Quota, &quota), cmp.Or(before.Period, &period)
	}
	if apply.Shares != nil {
		undo.Shares = cmp.Or(before.Shares, &shares)
	}
	if apply.Burst != nil {
		undo.Burst = cmp.Or(before.Burst, &burst)
	}
	if apply.Idle != nil {
		undo.Idle = cmp.Or(before.Idle, &idle)
	}
	c.apply.CPU, c.undo.CPU, c.after.CPU = &apply, &undo, after
}

// setBlockIO takes devices one by one, as runc does.
func (c *limitChange) setBlockIO(before, update *specs.LinuxBlockIO) {
	apply, after := *update, *before
	apply.Weight, apply.LeafWeight = given(update.Weight), given(update.LeafWeight)
	after.Weight, after.LeafWeight = cmp.Or(apply.Weight, before.Weight), cmp.Or(apply.LeafWeight, before.LeafWeight)
	apply.WeightDevice = nil
	for _, d := range update.WeightDevice {
		same := func(o specs.LinuxWeightDevice) bool { return o.Major == d.Major && o.Minor == d.Minor }
		if i := slices.IndexFunc(after.WeightDevice, same); i >= 0 {
			old := after.WeightDevice[i]
			d.Weight, d.LeafWeight = cmp.Or(given(d.Weight), old.Weight), cmp.Or(given(d.LeafWeight), old.LeafWeight)
		}
		apply.WeightDevice = append(apply.WeightDevice, d)
		after.WeightDevice = upsert(after.WeightDevice, d, same)
	}
	for _, list := range []struct {
		after  *[]specs.LinuxThrottleDevice
		update []specs.LinuxThrottleDevice
	}{
		{&after.ThrottleReadBpsDevice, update.ThrottleReadBpsDevice},
		{&after.ThrottleWriteBpsDevice, update.ThrottleWriteBpsDevice},
		{&after.ThrottleReadIOPSDevice, update.ThrottleReadIOPSDevice},
		{&after.ThrottleWriteIOPSDevice, update.ThrottleWriteIOPSDevice},
	} {
		for _, d := range list.update {
			*list.after = upsert(*list.after, d, func(o specs.LinuxThrottleDevice) bool { return o.Major == d.Major && o.Minor == d.Minor })
		}
	}
	c.apply.BlockIO, c.undo.BlockIO, c.after.BlockIO = &apply, before, &after
}

func (c *limitChange) setNetwork(before, update *specs.LinuxNetwork) {
	after := &specs.LinuxNetwork{ClassID: cmp.Or(update.ClassID, before.ClassID), Priorities: before.Priorities}
	for _, p := range update.Priorities {
		after.Priorities = upsert(after.Priorities, p, func(o specs.LinuxInterfacePriority) bool { return o.Name == p.Name })
	}
	c.apply.Network, c.undo.Network, c.after.Network = update, before, after
}

// setKeyed does the limits that are lists by name: of a kind of page, a device
// and a file of cgroup v2.
func (c *limitChange) setKeyed(before *specs.LinuxResources) {
	for _, limit := range c.apply.HugepageLimits {
		same := func(o specs.LinuxHugepageLimit) bool { return o.Pagesize == limit.Pagesize }
		if i := slices.IndexFunc(before.HugepageLimits, same); i >= 0 {
			c.undo.HugepageLimits = append(c.undo.HugepageLimits, before.HugepageLimits[i])
		}
		c.after.HugepageLimits = upsert(c.after.HugepageLimits, limit, same)
	}
	c.undo.Rdma, c.after.Rdma = overlay(before.Rdma, c.apply.Rdma)
	c.undo.Unified, c.after.Unified = overlay(before.Unified, c.apply.Unified)
}

// upsert returns list with one that is the same replaced, or appended.
func upsert[T any](list []T, one T, same func(T) bool) []T {
	list = slices.Clone(list)
	if i := slices.IndexFunc(list, same); i >= 0 {
		list[i] = one
		return list
	}
	return append(list, one)
}

// overlay returns what before has of the keys of update, and both together, nil
// for nothing.
func overlay[V any](before, update map[string]V) (old, all map[string]V) {
	if len(update) == 0 {
		return nil, before
	}
	all = make(map[string]V)
	maps.Copy(all, before)
	for key, v := range update {
		if was, ok := before[key]; ok {
			if old == nil {
				old = make(map[string]V)
			}
			old[key] = was
		}
		all[key] = v
	}
	return old, all
}
