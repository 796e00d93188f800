package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestResources has the container read each of its limits in its own cgroup file
// system.
func TestResources(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, tt := range resourceCases() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			needControllers(t, tt.controller)
			if tt.need != nil {
				need(t, tt.name, tt.need)
			}
			file, want := tt.controller+"/"+tt.v1, tt.wantV1
			if tt.controller == "io" {
				file = "blkio/" + tt.v1
			}
			if isCgroup2() {
				file, want = tt.v2, tt.wantV2
			}
			if want == "" {
				return // nothing of the kind in this version
			}
			each(t, func(t *testing.T, l *lab) {
				got := l.output("cat /sys/fs/cgroup/"+file, withNamespace(specs.CgroupNamespace, ""), func(spec *specs.Spec) {
					spec.Linux.Resources = &specs.LinuxResources{}
					tt.set(spec.Linux.Resources)
				})
				if !strings.HasPrefix(strings.Join(strings.Fields(got), " "), want) {
					t.Errorf("%s: got %q, want %q", file, got, want)
				}
			})
		})
	}
}

type resourceCase struct {
	name           string
	controller     string
	need           func() error
	set            func(*specs.LinuxResources)
	v1, v2         string
	wantV1, wantV2 string // the beginning of the file; "" where there is none
}

func pointer[T any](value T) *T { return &value }

func resourceCases() []resourceCase {
	memory := func(m specs.LinuxMemory) func(*specs.LinuxResources) {
		return func(r *specs.LinuxResources) { r.Memory = &m }
	}
	cpu := func(c specs.LinuxCPU) func(*specs.LinuxResources) {
		return func(r *specs.LinuxResources) { r.CPU = &c }
	}
	unified := func(file, value string) func(*specs.LinuxResources) {
		return func(r *specs.LinuxResources) { r.Unified = map[string]string{file: value} }
	}
	device := blockDevice()
	throttled := []specs.LinuxThrottleDevice{{LinuxBlockIODevice: specs.LinuxBlockIODevice{Major: device.major, Minor: device.minor}, Rate: 1 << 20}}
	blockIO := func(b specs.LinuxBlockIO) func(*specs.LinuxResources) {
		return func(r *specs.LinuxResources) { r.BlockIO = &b }
	}
	network := func(n specs.LinuxNetwork) func(*specs.LinuxResources) {
		return func(r *specs.LinuxResources) { r.Network = &n }
	}
	return []resourceCase{
		{"memory", "memory", nil, memory(specs.LinuxMemory{Limit: pointer[int64](64 << 20)}), "memory.limit_in_bytes", "memory.max", "67108864", "67108864"},
		{"memory reservation", "memory", nil, memory(specs.LinuxMemory{Reservation: pointer[int64](32 << 20)}), "memory.soft_limit_in_bytes", "memory.low", "33554432", "33554432"},
		{"memory and swap", "memory", nil, memory(specs.LinuxMemory{Limit: pointer[int64](64 << 20), Swap: pointer[int64](96 << 20)}), "memory.memsw.limit_in_bytes", "memory.swap.max", "100663296", "33554432"},
		{"swappiness", "memory", nil, memory(specs.LinuxMemory{Swappiness: pointer[uint64](7)}), "memory.swappiness", "", "7", ""},
		{"no OOM killer", "memory", nil, memory(specs.LinuxMemory{DisableOOMKiller: pointer(true)}), "memory.oom_control", "", "oom_kill_disable 1", ""},
		{"processes", "pids", nil, func(r *specs.LinuxResources) { r.Pids = &specs.LinuxPids{Limit: pointer[int64](77)} }, "pids.max", "pids.max", "77", "77"},
		{"CPU quota", "cpu", nil, cpu(specs.LinuxCPU{Quota: pointer[int64](50_000), Period: pointer[uint64](200_000)}), "cpu.cfs_quota_us", "cpu.max", "50000", "50000 200000"},
		{"CPU burst", "cpu", nil, cpu(specs.LinuxCPU{Quota: pointer[int64](50_000), Period: pointer[uint64](100_000), Burst: pointer[uint64](20_000)}), "cpu.cfs_burst_us", "cpu.max.burst", "20000", "20000"},
		{"CPU idle", "cpu", nil, cpu(specs.LinuxCPU{Idle: pointer[int64](1)}), "cpu.idle", "cpu.idle", "1", "1"},
		{"CPUs", "cpuset", nil, cpu(specs.LinuxCPU{Cpus: "0", Mems: "0"}), "cpuset.cpus", "cpuset.cpus.effective", "0", "0"},
		{"NUMA nodes", "cpuset", nil, cpu(specs.LinuxCPU{Cpus: "0", Mems: "0"}), "cpuset.mems", "cpuset.mems", "0", "0"},
		{"block weight", "io", weights, blockIO(specs.LinuxBlockIO{Weight: pointer[uint16](500)}), "blkio.bfq.weight", "io.weight", "500", "default 4950"},
		{"block bytes read", "io", nil, blockIO(specs.LinuxBlockIO{ThrottleReadBpsDevice: throttled}), "blkio.throttle.read_bps_device", "io.max", device.id() + " 1048576", device.id() + " rbps=1048576"},
		{"block bytes written", "io", nil, blockIO(specs.LinuxBlockIO{ThrottleWriteBpsDevice: throttled}), "blkio.throttle.write_bps_device", "io.max", device.id() + " 1048576", device.id() + " rbps=max wbps=1048576"},
		{"block reads", "io", nil, blockIO(specs.LinuxBlockIO{ThrottleReadIOPSDevice: throttled}), "blkio.throttle.read_iops_device", "io.max", device.id() + " 1048576", device.id() + " rbps=max wbps=max riops=1048576"},
		{"block writes", "io", nil, blockIO(specs.LinuxBlockIO{ThrottleWriteIOPSDevice: throttled}), "blkio.throttle.write_iops_device", "io.max", device.id() + " 1048576", device.id() + " rbps=max wbps=max riops=max wiops=1048576"},
		{"huge pages", "hugetlb", nil, func(r *specs.LinuxResources) {
			r.HugepageLimits = []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 4 << 20}}
		}, "hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.max", "4194304", "4194304"},
		{"huge pages reserved", "hugetlb", nil, func(r *specs.LinuxResources) {
			r.HugepageLimits = []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 4 << 20}}
		}, "hugetlb.2MB.rsvd.limit_in_bytes", "hugetlb.2MB.rsvd.max", "4194304", "4194304"},
		{"unified memory", "memory", nil, unified("memory.high", "67108864"), "", "memory.high", "", "67108864"},
		{"unified processes", "pids", nil, unified("pids.max", "23"), "", "pids.max", "", "23"},
		{"unified CPU weight", "cpu", nil, unified("cpu.weight", "37"), "", "cpu.weight", "", "37"},
		{"network class", "net_cls", nil, network(specs.LinuxNetwork{ClassID: pointer[uint32](0x100001)}), "net_cls.classid", "", "1048577", ""},
		{"network priorities", "net_prio", nil, network(specs.LinuxNetwork{Priorities: []specs.LinuxInterfacePriority{{Name: "lo", Priority: 5}}}), "net_prio.ifpriomap", "", "lo 5", ""},
	}
}

// blockNumber is a block device.
type blockNumber struct{ major, minor int64 }

func (b blockNumber) id() string { return fmt.Sprintf("%d:%d", b.major, b.minor) }

// blockDevice is one of the machine's, a disk if there is any.
func blockDevice() blockNumber {
	var b blockNumber
	for _, pattern := range []string{"vd*", "nvme*n1", "sd*", "*"} {
		files, _ := filepath.Glob("/sys/block/" + pattern + "/dev")
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			if n, _ := fmt.Sscanf(string(data), "%d:%d", &b.major, &b.minor); n == 2 {
				return b
			}
		}
	}
	return b
}

// weights tells whether there is a scheduler that knows weights of cgroups.
func weights() error {
	if !isCgroup2() {
		return errors.New("no disk has the scheduler BFQ, or it has no weights")
	}
	_, err := os.Stat("/sys/fs/cgroup/system.slice/io.weight")
	return err
}

// TestResourcesRdma: there is no such device in any place of CI, so this only
// sees that the limit gets to the kernel and is not lost on the way.
func TestResourcesRdma(t *testing.T) {
	t.Parallel()
	needControllers(t, "rdma")
	l := newLab(t, eggrunOnly(t))
	id := l.newID()
	b := l.bundle(id, sh("exit 0"), func(spec *specs.Spec) {
		spec.Linux.Resources.Rdma = map[string]specs.LinuxRdma{"nosuch0": {HcaHandles: pointer[uint32](3)}}
	})
	l.wantFail(l.call("create", "--bundle", b.dir, id), "rdma.max")
	l.wantGone(id)
}

// TestCheckBeforeUpdate refuses a limit of memory below what is used, which would
// end the container.
func TestCheckBeforeUpdate(t *testing.T) {
	t.Parallel()
	needControllers(t, "memory")
	each(t, func(t *testing.T, l *lab) {
		checked := func(spec *specs.Spec) {
			spec.Linux.Resources.Memory = &specs.LinuxMemory{Limit: pointer[int64](128 << 20), CheckBeforeUpdate: pointer(true)}
		}
		// A tmpfs is memory of the container that nothing can reclaim.
		c := l.runDetached(sh("dd if=/dev/zero of=/dev/shm/full bs=1M count=40 2>/dev/null && echo ready; exec sleep 1000"), checked)
		c.wantOutput("ready\n")
		l.wantFail(l.call("update", "--memory", "10M", "--memory-swap", "10M", c.id))
		c.wantLimit(memoryLimit, "134217728", "")
		equal(t, "status", c.state().Status, "running")
		c.update("--memory", "100M", "--memory-swap", "100M")
		c.wantLimit(memoryLimit, "104857600", "")
		l.wantSilent(l.call("delete", "--force", c.id))
	})
}
