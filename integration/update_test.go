package integration

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// limit is a file of a container's cgroup, in v1 and in v2.
type limit struct{ hierarchy, v1, v2 string }

var (
	memoryLimit = limit{"memory", "memory.limit_in_bytes", "memory.max"}
	memorySoft  = limit{"memory", "memory.soft_limit_in_bytes", "memory.low"}
	memorySwap  = limit{"memory", "memory.memsw.limit_in_bytes", "memory.swap.max"}
	pidsLimit   = limit{"pids", "pids.max", "pids.max"}
	cpuShares   = limit{"cpu", "cpu.shares", "cpu.weight"}
	cpuQuota    = limit{"cpu", "cpu.cfs_quota_us", "cpu.max"}
	cpuPeriod   = limit{"cpu", "cpu.cfs_period_us", "cpu.max"}
	cpuSet      = limit{"cpuset", "cpuset.cpus", "cpuset.cpus"}
)

const unlimited = "9223372036854771712" // of v1

// wantLimit compares with what the kernel has; v2 "" is the same as v1.
func (c *container) wantLimit(what limit, v1, v2 string) {
	c.t.Helper()
	want := v1
	if isCgroup2() && v2 != "" {
		want = v2
	}
	equal(c.t, what.v1, cgroupFile(c.t, c.cgroupOf(c.id), what.hierarchy, what.v1, what.v2), want)
}

func (c *container) update(args ...string) {
	c.t.Helper()
	c.wantSilent(c.call(append(append([]string{"update"}, args...), c.id)...))
}

// limited has a limit of each kind.
func limited(spec *specs.Spec) {
	memory, swap, pids, shares, quota, period := int64(64<<20), int64(96<<20), int64(77), uint64(512), int64(50_000), uint64(200_000)
	spec.Linux.Resources.Memory = &specs.LinuxMemory{Limit: &memory, Swap: &swap}
	spec.Linux.Resources.Pids = &specs.LinuxPids{Limit: &pids}
	spec.Linux.Resources.CPU = &specs.LinuxCPU{Shares: &shares, Quota: &quota, Period: &period}
}

// TestUpdate changes one limit after the other; those that are not given stay.
func TestUpdate(t *testing.T) {
	t.Parallel()
	needControllers(t, "cpu", "cpuset", "memory", "pids")
	each(t, func(t *testing.T, l *lab) {
		c := l.runDetached(sh("exec sleep 1000"), limited)
		c.update("--pids-limit", "20")
		c.wantLimit(pidsLimit, "20", "")
		c.update("--pids-limit=-1")
		c.wantLimit(pidsLimit, "max", "")
		c.wantLimit(memoryLimit, "67108864", "")
		c.wantLimit(memorySwap, "100663296", "33554432")
		c.wantLimit(cpuShares, "512", "59")

		// Below what there was, above it, and without a limit: the kernel
		// wants another order of the two files each time.
		c.update("--memory", "30M", "--memory-swap", "50M")
		c.wantLimit(memoryLimit, "31457280", "")
		c.wantLimit(memorySwap, "52428800", "20971520")
		c.update("--memory", "200m", "--memory-swap", "400m")
		c.wantLimit(memoryLimit, "209715200", "")
		c.wantLimit(memorySwap, "419430400", "209715200")
		c.update("--memory-swap", "314572800")
		c.wantLimit(memorySwap, "314572800", "104857600")
		c.update("--memory", "100m")
		c.wantLimit(memoryLimit, "104857600", "")
		c.update("--memory-reservation", "33554432")
		c.wantLimit(memorySoft, "33554432", "")
		c.update("--memory", "-1")
		c.wantLimit(memoryLimit, unlimited, "max")
		c.wantLimit(memorySwap, unlimited, "max")

		c.update("--cpu-share", "200")
		c.wantLimit(cpuShares, "200", "29")
		c.wantLimit(cpuQuota, "50000", "50000 200000")
		c.update("--cpu-quota", "100000")
		c.wantLimit(cpuQuota, "100000", "100000 200000")
		c.wantLimit(cpuPeriod, "200000", "100000 200000")
		// systemd knows whole percents only.
		c.update("--cpu-period", "400000")
		c.wantLimit(cpuQuota, "100000", "100000 400000")
		c.wantLimit(cpuPeriod, "400000", "100000 400000")
		c.update("--cpu-quota", "-1")
		c.wantLimit(cpuQuota, "-1", "max 400000")
		c.update("--cpuset-cpus", "0")
		c.wantLimit(cpuSet, "0", "")
		c.wantLimit(pidsLimit, "max", "")
		equal(t, "status", c.state().Status, "running")
		l.wantSilent(l.call("delete", "--force", c.id))
	})
}

// TestUpdateResources reads a file, as podman does, and standard input, as
// containerd and CRI-O do.
func TestUpdateResources(t *testing.T) {
	t.Parallel()
	needControllers(t, "cpu", "memory", "pids")
	each(t, func(t *testing.T, l *lab) {
		c := l.create(sh("exec sleep 1000"))
		file := filepath.Join(l.dir, "resources")
		for i, form := range [][]string{{"--resources=" + file}, {"--resources", file}, {"-r", file}, {"--resources=-"}, {"--resources", "-"}, {"-r", "-"}} {
			number := string(rune('1' + i))
			writeFile(t, file, `{"pids":{"limit":1`+number+`},"cpu":{"shares":100`+number+`},"memory":{"limit":50000320,"swap":100000640}}`, 0o600)
			in := invocation{args: append(append([]string{"update"}, form...), c.id)}
			if strings.HasSuffix(form[len(form)-1], "-") {
				in.stdin = l.createFile(file)
			}
			l.wantSilent(l.invoke(in))
			c.wantLimit(pidsLimit, "1"+number, "")
			if !isCgroup2() {
				c.wantLimit(cpuShares, "100"+number, "")
			}
			c.wantLimit(memoryLimit, "49999872", "") // a whole page
		}
		// Beside a file the other limits don't count.
		c.update("--resources", file, "--pids-limit", "99")
		c.wantLimit(pidsLimit, "16", "")
		c.wantStatus("created")

		writeFile(t, file, `{"pids":`, 0o600)
		l.wantFail(l.call("update", "--resources", file, c.id), "unexpected EOF")
		l.wantFail(l.call("update", "--resources", file+".none", c.id), "no such file or directory")
		c.delete()
	})
}

// TestUpdateHolds has a program meet the limit that it got only after create.
func TestUpdateHolds(t *testing.T) {
	t.Parallel()
	needControllers(t, "pids")
	each(t, func(t *testing.T, l *lab) {
		for limit, want := range map[string]string{"3": "", "100": "all\n"} {
			c := l.create(sh("sleep 0 & sleep 0 & sleep 0 & echo all"))
			c.update("--pids-limit", limit)
			c.start()
			_, stdout, _ := c.finishOutput()
			equal(t, "output with a limit of "+limit, stdout, want)
		}
	})
}

// TestUpdateStates: every container that has a process can be updated.
func TestUpdateStates(t *testing.T) {
	t.Parallel()
	needControllers(t, "pids")
	each(t, func(t *testing.T, l *lab) {
		c := l.create(sh("exec sleep 1000"))
		c.update("--pids-limit", "50")
		c.start()
		c.wantLimit(pidsLimit, "50", "")
		l.wantSilent(l.call("pause", c.id))
		c.update("--pids-limit", "51")
		c.wantLimit(pidsLimit, "51", "")
		equal(t, "freezer", c.frozen(), "FROZEN")
		l.wantSilent(l.call("resume", c.id))
		c.kill("KILL")
		c.wait()
		l.wantFail(l.call("update", "--pids-limit", "52", c.id), "container not running")
		l.wantFail(l.call("update", "--pids-limit", "52", "nosuch"), "container does not exist")
		l.wantFail(l.call("update", "--pids-limit", "52"))
		c.delete()
	})
}

// TestUpdateFails: when one limit is refused, those that were set before it are
// as they were.
func TestUpdateFails(t *testing.T) {
	t.Parallel()
	needControllers(t, "cpu", "cpuset", "memory", "pids")
	each(t, func(t *testing.T, l *lab) {
		c := l.create(sh("exec sleep 1000"), limited)
		check := func(args ...string) {
			t.Helper()
			l.wantFail(l.call(append(append([]string{"update"}, args...), c.id)...))
			c.wantLimit(memoryLimit, "67108864", "")
			c.wantLimit(memorySwap, "100663296", "33554432")
			c.wantLimit(cpuShares, "512", "59")
			c.wantLimit(cpuQuota, "50000", "50000 200000")
			c.wantLimit(cpuPeriod, "200000", "50000 200000")
			c.wantLimit(pidsLimit, "77", "")
		}
		check("--memory", "80m", "--cpu-share", "600", "--cpu-period", "1")
		check("--memory", "80m", "--memory-swap", "120m", "--cpuset-cpus", "9999")
		check("--memory", "120m") // more than memory and swap together
		for _, bad := range []string{"--memory=64x", "--pids-limit=many", "--cpu-share=-1", "--cpu-quota=1k"} {
			check(bad)
		}
		// What failed is forgotten.
		c.update("--pids-limit", "78")
		c.wantLimit(memoryLimit, "67108864", "")
		c.delete()
	})
}

// TestUpdateBackToNoLimit: there was no limit, and after the failure there is
// none again, which runc does not do.
func TestUpdateBackToNoLimit(t *testing.T) {
	t.Parallel()
	needControllers(t, "cpu", "memory")
	l := newLab(t, eggrunOnly(t))
	c := l.create(sh("exec sleep 1000"))
	r := l.call("update", "--memory", "80m", "--cpu-share", "600", "--cpu-period", "1", c.id)
	l.wantFail(r, "invalid argument")
	c.wantLimit(memoryLimit, unlimited, "max")
	c.wantLimit(memorySwap, unlimited, "max")
	c.wantLimit(cpuShares, "1024", "100")
	c.wantLimit(cpuQuota, "-1", "max 100000")
	c.delete()
}

// TestUpdateFlagsAfterID takes them as runc 1.5 does.
func TestUpdateFlagsAfterID(t *testing.T) {
	t.Parallel()
	needControllers(t, "cpu", "memory", "pids")
	each(t, func(t *testing.T, l *lab) {
		c := l.create(sh("exec sleep 1000"))
		l.wantSilent(l.call("update", c.id, "--pids-limit", "50", "--cpu-quota", "-1", "--memory=64m"))
		c.wantLimit(pidsLimit, "50", "")
		c.wantLimit(memoryLimit, "67108864", "")
		l.wantSilent(l.call("delete", c.id, "--force"))
	})
}

// TestUpdateRdt: on a machine that has no resctrl file system.
func TestUpdateRdt(t *testing.T) {
	t.Parallel()
	needControllers(t, "cpu", "memory", "pids")
	l := newLab(t, eggrunOnly(t))
	need(t, "no resctrl file system, whose classes would be the machine's", func() error {
		for _, mount := range mounts() {
			if strings.Contains(mount, " - resctrl ") {
				return errors.New(mount)
			}
		}
		return nil
	})
	c := l.create(sh("exec sleep 1000"), limited)
	for _, flag := range []string{"--l3-cache-schema=L3:0=f", "--mem-bw-schema=MB:0=20"} {
		l.wantFail(l.call("update", "--pids-limit", "50", flag, c.id), "no resctrl file system is mounted")
	}
	c.wantLimit(pidsLimit, "77", "")
	c.delete()
}
