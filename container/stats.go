package container

import "github.com/opencontainers/cgroups"

// Event is a line of the verb events, with runc's field names in all of it.
type Event struct {
	// Type is stats or oom.
	Type string `json:"type"`
	ID   string `json:"id"`
	// Data is nil for oom.
	Data *Stats `json:"data,omitempty"`
}

// Stats are the numbers of a container's cgroup. Times are in nanoseconds, sizes
// in bytes.
type Stats struct {
	CPU     cpuStats                `json:"cpu"`
	CPUSet  cpusetStats             `json:"cpuset"`
	Memory  memoryStats             `json:"memory"`
	Pids    pidsStats               `json:"pids"`
	Blkio   blkioStats              `json:"blkio"`
	Hugetlb map[string]hugetlbStats `json:"hugetlb"`
	// IntelRdt is empty for a container without a class of service.
	IntelRdt rdtStats `json:"intel_rdt"`
	// NetworkInterfaces is null, as runc's is: both know no interface of
	// config.json's.
	NetworkInterfaces []struct{} `json:"network_interfaces"`
}

type cpuStats struct {
	Usage      cpuUsage          `json:"usage,omitzero"`
	Throttling cpuThrottling     `json:"throttling,omitzero"`
	PSI        *cgroups.PSIStats `json:"psi,omitempty"`
}

type cpuUsage struct {
	Total        uint64   `json:"total,omitempty"`
	Percpu       []uint64 `json:"percpu,omitempty"`
	PercpuKernel []uint64 `json:"percpu_kernel,omitempty"`
	PercpuUser   []uint64 `json:"percpu_user,omitempty"`
	Kernel       uint64   `json:"kernel"`
	User         uint64   `json:"user"`
}

type cpuThrottling struct {
	Periods          uint64 `json:"periods,omitempty"`
	ThrottledPeriods uint64 `json:"throttledPeriods,omitempty"`
	ThrottledTime    uint64 `json:"throttledTime,omitempty"`
}

// cpusetStats has the fields of the library's type.
type cpusetStats struct {
	CPUs                  []uint16 `json:"cpus,omitempty"`
	CPUExclusive          uint64   `json:"cpu_exclusive"`
	Mems                  []uint16 `json:"mems,omitempty"`
	MemHardwall           uint64   `json:"mem_hardwall"`
	MemExclusive          uint64   `json:"mem_exclusive"`
	MemoryMigrate         uint64   `json:"memory_migrate"`
	MemorySpreadPage      uint64   `json:"memory_spread_page"`
	MemorySpreadSlab      uint64   `json:"memory_spread_slab"`
	MemoryPressure        uint64   `json:"memory_pressure"`
	SchedLoadBalance      uint64   `json:"sched_load_balance"`
	SchedRelaxDomainLevel int64    `json:"sched_relax_domain_level"`
}

type memoryStats struct {
	Cache     uint64      `json:"cache,omitempty"`
	Usage     memoryUsage `json:"usage,omitzero"`
	Swap      memoryUsage `json:"swap,omitzero"`
	Kernel    memoryUsage `json:"kernel,omitzero"`
	KernelTCP memoryUsage `json:"kernelTCP,omitzero"`
	// Raw is the file memory.stat.
	Raw map[string]uint64 `json:"raw,omitempty"`
	PSI *cgroups.PSIStats `json:"psi,omitempty"`
}

type memoryUsage struct {
	Limit   uint64 `json:"limit"`
	Usage   uint64 `json:"usage,omitempty"`
	Max     uint64 `json:"max,omitempty"`
	Failcnt uint64 `json:"failcnt"`
}

type pidsStats struct {
	Current uint64 `json:"current,omitempty"`
	Limit   uint64 `json:"limit,omitempty"`
}

type blkioStats struct {
	ServiceBytes []blkioEntry `json:"ioServiceBytesRecursive,omitempty"`
	Serviced     []blkioEntry `json:"ioServicedRecursive,omitempty"`
	// Queued has no d in its JSON name, in runc neither.
	Queued      []blkioEntry      `json:"ioQueueRecursive,omitempty"`
	ServiceTime []blkioEntry      `json:"ioServiceTimeRecursive,omitempty"`
	WaitTime    []blkioEntry      `json:"ioWaitTimeRecursive,omitempty"`
	Merged      []blkioEntry      `json:"ioMergedRecursive,omitempty"`
	Time        []blkioEntry      `json:"ioTimeRecursive,omitempty"`
	Sectors     []blkioEntry      `json:"sectorsRecursive,omitempty"`
	PSI         *cgroups.PSIStats `json:"psi,omitempty"`
}

// blkioEntry has the fields of the library's type.
type blkioEntry struct {
	Major uint64 `json:"major,omitempty"`
	Minor uint64 `json:"minor,omitempty"`
	Op    string `json:"op,omitempty"`
	Value uint64 `json:"value,omitempty"`
}

type hugetlbStats struct {
	Usage   uint64 `json:"usage,omitempty"`
	Max     uint64 `json:"max,omitempty"`
	Failcnt uint64 `json:"failcnt"`
}

// statsOf translates what package cgroups reads.
func statsOf(s *cgroups.Stats) *Stats {
	cpu, blkio := &s.CpuStats, &s.BlkioStats
	stats := &Stats{
		CPU: cpuStats{
			Usage: cpuUsage{
				Total:        cpu.CpuUsage.TotalUsage,
				Percpu:       cpu.CpuUsage.PercpuUsage,
				PercpuKernel: cpu.CpuUsage.PercpuUsageInKernelmode,
				PercpuUser:   cpu.CpuUsage.PercpuUsageInUsermode,
				Kernel:       cpu.CpuUsage.UsageInKernelmode,
				User:         cpu.CpuUsage.UsageInUsermode,
			},
			Throttling: cpuThrottling(cpu.ThrottlingData),
			PSI:        cpu.PSI,
		},
		CPUSet: cpusetStats(s.CPUSetStats),
		Memory: memoryStats{
			Cache:     s.MemoryStats.Cache,
			Usage:     memoryUsageOf(s.MemoryStats.Usage),
			Swap:      memoryUsageOf(s.MemoryStats.SwapUsage),
			Kernel:    memoryUsageOf(s.MemoryStats.KernelUsage),
			KernelTCP: memoryUsageOf(s.MemoryStats.KernelTCPUsage),
			Raw:       s.MemoryStats.Stats,
			PSI:       s.MemoryStats.PSI,
		},
		Pids: pidsStats(s.PidsStats),
		Blkio: blkioStats{
			ServiceBytes: blkioEntries(blkio.IoServiceBytesRecursive),
			Serviced:     blkioEntries(blkio.IoServicedRecursive),
			Queued:       blkioEntries(blkio.IoQueuedRecursive),
			ServiceTime:  blkioEntries(blkio.IoServiceTimeRecursive),
			WaitTime:     blkioEntries(blkio.IoWaitTimeRecursive),
			Merged:       blkioEntries(blkio.IoMergedRecursive),
			Time:         blkioEntries(blkio.IoTimeRecursive),
			Sectors:      blkioEntries(blkio.SectorsRecursive),
			PSI:          blkio.PSI,
		},
		Hugetlb: make(map[string]hugetlbStats),
	}
	for size, pages := range s.HugetlbStats {
		stats.Hugetlb[size] = hugetlbStats{Usage: pages.Usage, Max: pages.MaxUsage, Failcnt: pages.Failcnt}
	}
	return stats
}

func memoryUsageOf(m cgroups.MemoryData) memoryUsage {
	return memoryUsage{Limit: m.Limit, Usage: m.Usage, Max: m.MaxUsage, Failcnt: m.Failcnt}
}

func blkioEntries(in []cgroups.BlkioStatEntry) []blkioEntry {
	out := make([]blkioEntry, 0, len(in))
	for _, entry := range in {
		out = append(out, blkioEntry(entry))
	}
	return out
}
