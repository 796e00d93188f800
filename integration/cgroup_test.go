package integration

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestCgroupPlacement checks that init is in its last cgroup when create
// returns: conmon then looks for the OOM file there.
func TestCgroupPlacement(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.create(sh("exec sleep 1000"))
		want := l.cgroupOf(c.id)
		for line := range strings.Lines(procFile(t, c.pid, "cgroup")) {
			fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if !isMounted(fields[1]) {
				continue
			}
			equal(t, "cgroup of "+fields[1], fields[2], want)
		}
		if got := strings.Fields(cgroupFile(t, want, "memory", "cgroup.procs", "cgroup.procs")); len(got) != 1 || got[0] != strconv.Itoa(c.pid) {
			t.Errorf("processes in the cgroup: %v, want %d", got, c.pid)
		}
		c.delete()
		equal(t, "cgroups after delete", strings.Join(cgroupDirs(l.cgroup), " "), "")
	})
}

// isMounted tells whether the hierarchy of a line of /proc/PID/cgroup can
// hold the container: v2 without controllers beside v1 need not.
func isMounted(controllers string) bool {
	if controllers == "" {
		return isCgroup2()
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(controllers, "name="), ",")
	_, err := os.Stat(filepath.Join(cgroupRoot, first))
	return !isCgroup2() && err == nil
}

// TestCgroupMountShared: without a cgroup namespace the mount shows v2 from the
// root that paths in /proc/self/cgroup begin at, and v1 from the container on.
func TestCgroupMountShared(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		script := "cat /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/cgroup.procs"
		if !isCgroup2() {
			script = "cat /sys/fs/cgroup/pids/cgroup.procs"
		}
		got := l.output(script, withoutNamespace(specs.CgroupNamespace))
		equal(t, "first process of its cgroup", strings.Fields(got + " none")[0], "1")
	})
}

// TestCgroupValues writes each limit and reads it back from the kernel.
func TestCgroupValues(t *testing.T) {
	t.Parallel()
	needControllers(t, "cpu", "cpuset", "memory", "pids")
	number := func(value int64) *int64 { return &value }
	positive := func(value uint64) *uint64 { return &value }
	tests := []struct {
		name              string
		resources         specs.LinuxResources
		hierarchy, v1, v2 string
		wantV1, wantV2    string // wantV2 empty when it is the same
	}{
		{name: "memory limit", resources: specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: number(64 << 20)}}, hierarchy: "memory", v1: "memory.limit_in_bytes", v2: "memory.max", wantV1: "67108864"},
		{name: "memory reservation", resources: specs.LinuxResources{Memory: &specs.LinuxMemory{Reservation: number(32 << 20)}}, hierarchy: "memory", v1: "memory.soft_limit_in_bytes", v2: "memory.low", wantV1: "33554432"},
		{name: "memory and swap", resources: specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: number(64 << 20), Swap: number(96 << 20)}}, hierarchy: "memory", v1: "memory.memsw.limit_in_bytes", v2: "memory.swap.max", wantV1: "100663296", wantV2: "33554432"},
		{name: "memory unlimited", resources: specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: number(-1)}}, hierarchy: "memory", v1: "memory.limit_in_bytes", v2: "memory.max", wantV1: "9223372036854771712", wantV2: "max"},
		{name: "pids limit", resources: specs.LinuxResources{Pids: &specs.LinuxPids{Limit: number(77)}}, hierarchy: "pids", v1: "pids.max", v2: "pids.max", wantV1: "77"},
		{name: "pids unlimited", resources: specs.LinuxResources{Pids: &specs.LinuxPids{Limit: number(-1)}}, hierarchy: "pids", v1: "pids.max", v2: "pids.max", wantV1: "max"},
		{name: "cpu shares", resources: specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: positive(512)}}, hierarchy: "cpu", v1: "cpu.shares", v2: "cpu.weight", wantV1: "512", wantV2: "59"},
		{name: "cpu quota", resources: specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: number(50000), Period: positive(100000)}}, hierarchy: "cpu", v1: "cpu.cfs_quota_us", v2: "cpu.max", wantV1: "50000", wantV2: "50000 100000"},
		{name: "cpu set", resources: specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "0"}}, hierarchy: "cpuset", v1: "cpuset.cpus", v2: "cpuset.cpus", wantV1: "0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				c := l.create(sh("exec sleep 1000"), func(spec *specs.Spec) {
					devices := spec.Linux.Resources.Devices
					resources := tt.resources
					resources.Devices = devices
					spec.Linux.Resources = &resources
				})
				want := tt.wantV1
				if isCgroup2() && tt.wantV2 != "" {
					want = tt.wantV2
				}
				equal(t, tt.v1, cgroupFile(t, l.cgroupOf(c.id), tt.hierarchy, tt.v1, tt.v2), want)
				c.start()
				equal(t, tt.v1+" after start", cgroupFile(t, l.cgroupOf(c.id), tt.hierarchy, tt.v1, tt.v2), want)
				l.wantSilent(l.call("delete", "--force", c.id))
			})
		})
	}
}

// TestSmallLimits runs with limits that the runtime itself must not hit.
func TestSmallLimits(t *testing.T) {
	t.Parallel()
	needControllers(t, "memory", "pids")
	one, memory := int64(1), int64(6<<20)
	for name, resources := range map[string]specs.LinuxResources{
		"one process": {Pids: &specs.LinuxPids{Limit: &one}},
		"6 MiB":       {Memory: &specs.LinuxMemory{Limit: &memory}},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				limited := func(spec *specs.Spec) {
					resources.Devices = nil
					spec.Linux.Resources = &resources
				}
				equal(t, "output", l.output("echo ok", limited), "ok")
			})
		})
	}
}

// TestPidsLimitHolds also checks that one more process would be one too many.
func TestPidsLimitHolds(t *testing.T) {
	t.Parallel()
	needControllers(t, "pids")
	each(t, func(t *testing.T, l *lab) {
		limit := int64(3)
		few := func(spec *specs.Spec) {
			spec.Linux.Resources = &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &limit}}
		}
		const script = "sleep 1000 & sleep 1000 & sleep 1000 & echo all"
		r := l.run(sh(script), few)
		if r.code == 0 || strings.Contains(r.stdout, "all") {
			t.Errorf("four processes under a limit of three: exit %d, stdout %q", r.code, r.stdout)
		}
		equal(t, "without the limit", l.run(sh(script)).stdout, "all\n")
	})
}

// TestMemoryLimitKills ends with the signal of the OOM killer.
func TestMemoryLimitKills(t *testing.T) {
	t.Parallel()
	needControllers(t, "memory")
	each(t, func(t *testing.T, l *lab) {
		limit := int64(20 << 20)
		c := l.create(sh("exec dd if=/dev/zero of=/dev/null bs=64M count=1"), func(spec *specs.Spec) {
			spec.Linux.Resources.Memory = &specs.LinuxMemory{Limit: &limit, Swap: &limit}
		})
		c.start()
		equal(t, "exit status", c.wait(), 128+9)
		c.delete()
	})
}

// TestCgroupMount shows the container its own cgroups, read-only.
func TestCgroupMount(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		got := l.output("cat /sys/fs/cgroup/pids/cgroup.procs /sys/fs/cgroup/cgroup.procs; mkdir /sys/fs/cgroup/pids/x /sys/fs/cgroup/x && echo made; true", quiet)
		lines := strings.Fields(got)
		if len(lines) == 0 || lines[0] != "1" || strings.Contains(got, "made") {
			t.Errorf("own cgroup: %q, want process 1 first and no write", got)
		}
	})
}

// TestSharedCgroupParent deletes one of two containers below one cgroup.
func TestSharedCgroupParent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		first, second := l.create(sh("exit 0")), l.create(sh("exit 0"))
		first.delete()
		equal(t, "status of the sibling", second.state().Status, "created")
		second.start()
		equal(t, "exit status of the sibling", second.wait(), 0)
		second.delete()
	})
}

// TestNoSystemd: where systemd does not run, asking for it is an error that says
// so. The suite has a /run of its own, so that it is not to be seen.
func TestNoSystemd(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	if suite.cgroups.manager == systemd {
		return // it is there
	}
	for path, flag := range map[string]string{"": "--systemd-cgroup", "a.slice:b:c": "--cgroup-manager=systemd"} {
		id := l.newID()
		b := l.bundle(id, sh("exit 0"), func(spec *specs.Spec) { spec.Linux.CgroupsPath = path })
		l.wantFail(l.invoke(invocation{globals: []string{"--root", l.root, flag}, args: []string{"create", "--bundle", b.dir, id}}), "cgroup", "systemd not running")
		l.wantGone(id)
	}
}
