package integration

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// systemdLab is a lab on a machine with systemd, where the suite can use it.
func systemdLab(t *testing.T) *lab {
	t.Helper()
	rt := eggrunOnly(t)
	need(t, "systemd as the suite's cgroup manager", func() error {
		if suite.cgroups.manager != systemd {
			return errors.New("EGGRUN_TEST_CGROUPS is not systemd")
		}
		return nil
	})
	return newLab(t, rt)
}

// property is what systemd says of a unit.
func (l *lab) property(unit, name string) string {
	l.t.Helper()
	return strings.TrimSpace(l.helper("systemctl", "show", "--property", name, "--value", "--", unit))
}

// TestSystemdScope: a container is a scope below the slice that linux.cgroupsPath
// names, with a cgroup that is delegated, and it goes with its container.
func TestSystemdScope(t *testing.T) {
	t.Parallel()
	l := systemdLab(t)
	// Names are the machine's: that of the lab makes them unique.
	name := unit(filepath.Base(l.dir))
	for _, tt := range []struct{ path, scope, slice, cgroup string }{
		{"", "eggrun-" + name + "a.scope", "system.slice", "/system.slice/"},
		{":" + name + ":b", name + "-b.scope", "system.slice", "/system.slice/"},
		{name + ".slice:" + name + ":c", name + "-c.scope", name + ".slice", "/" + name + ".slice/"},
		{name + "-x-y.slice::" + name + "d", "-" + name + "d.scope", name + "-x-y.slice", "/" + name + ".slice/" + name + "-x.slice/" + name + "-x-y.slice/"},
	} {
		id := name + string("abcd"[l.containers])
		l.containers++
		l.ids = append(l.ids, id)
		c := l.createIn(l.bundle(id, sh("exec sleep 1000"), func(spec *specs.Spec) { spec.Linux.CgroupsPath = tt.path }), id, invocation{})
		equal(t, "cgroup of "+tt.path, cgroupOf(t, c.pid, systemdHierarchy()), tt.cgroup+tt.scope)
		equal(t, "slice of "+tt.path, l.property(tt.scope, "Slice"), tt.slice)
		equal(t, "delegation of "+tt.path, l.property(tt.scope, "Delegate"), "yes")
		c.start()
		l.wantSilent(l.call("delete", "--force", id))
		equal(t, "state of the scope of "+tt.path, l.property(tt.scope, "ActiveState"), "inactive")
	}
}

// systemdHierarchy is where systemd keeps its units in /proc/PID/cgroup.
func systemdHierarchy() string {
	if isCgroup2() {
		return ""
	}
	return "name=systemd"
}

// TestSystemdPath refuses what is no path for systemd.
func TestSystemdPath(t *testing.T) {
	t.Parallel()
	l := systemdLab(t)
	for _, path := range []string{"/absolute", "relative/path", "a.slice:b", "a.slice:b:c:d", "noslice:b:c", "../a.slice:b:c"} {
		id := l.newID()
		b := l.bundle(id, sh("exit 0"), func(spec *specs.Spec) { spec.Linux.CgroupsPath = path })
		l.wantFail(l.call("create", "--bundle", b.dir, id), "cgroup")
		l.wantGone(id)
	}
}

// TestSystemdPropertiesIgnored: runc takes properties of the unit from
// annotations, which whoever describes a pod writes (CVE-2024-3154).
func TestSystemdPropertiesIgnored(t *testing.T) {
	t.Parallel()
	l := systemdLab(t)
	plain := l.create(sh("exec sleep 1000"))
	annotated := l.create(sh("exec sleep 1000"),
		annotate("org.systemd.property.TimeoutStopUSec", "uint64 123456789"),
		annotate("org.systemd.property.CollectMode", "'inactive-or-failed'"))
	for _, name := range []string{"TimeoutStopUSec", "CollectMode"} {
		unitOf := func(c *container) string { return filepath.Base(l.cgroupOf(c.id)) }
		equal(t, name, l.property(unitOf(annotated), name), l.property(unitOf(plain), name))
	}
}

// TestSystemdNeighbours has containers that may use some devices and all devices in
// one slice. With v1 systemd moves processes in the hierarchy of devices when a slice
// gets its first unit with rules, and when it loses its last.
func TestSystemdNeighbours(t *testing.T) {
	t.Parallel()
	l := systemdLab(t)
	free := l.runDetached(sh("sleep 1000 & wait"), func(spec *specs.Spec) {
		spec.Linux.Resources.Devices = append(spec.Linux.Resources.Devices, specs.LinuxDeviceCgroup{Allow: true, Access: "rwm"})
	})
	controller := map[bool]string{true: "", false: "devices"}[isCgroup2()]
	all := func(when string) {
		t.Helper()
		equal(t, "cgroup of devices "+when, cgroupOf(t, free.pid, controller), l.cgroupOf(free.id))
		eventually(t, "two processes "+when, func() bool {
			r := l.call("ps", "--format", "json", free.id)
			return r.code == 0 && strings.Count(r.stdout, ",") == 1
		})
		equal(t, "exec "+when, free.execOutput("echo works"), "works")
	}
	all("alone")
	bound := l.runDetached(sh("exec sleep 1000"))
	equal(t, "cgroup with the rules", cgroupOf(t, bound.pid, controller), l.cgroupOf(bound.id))
	all("beside another one")
	l.wantSilent(l.call("delete", "--force", bound.id))
	all("alone again")
	l.wantSilent(l.call("kill", "--all", free.id, "KILL"))
	equal(t, "exit status", free.wait(), 128+9)
	free.delete()
}

// TestSystemdLimits are those of the unit, too: else the next daemon-reload would
// undo them. It is alone: with v1, systemd then moves processes about that others
// are just moving.
func TestSystemdLimits(t *testing.T) {
	needControllers(t, "cpu", "memory", "pids")
	l := systemdLab(t)
	c := l.create(sh("exec sleep 1000"), limited)
	unit := filepath.Base(l.cgroupOf(c.id))
	memory := map[bool]string{true: "MemoryMax", false: "MemoryLimit"}[isCgroup2()]
	check := func(pids, bytes string) {
		t.Helper()
		equal(t, "TasksMax", l.property(unit, "TasksMax"), pids)
		equal(t, memory, l.property(unit, memory), bytes)
		l.helper("systemctl", "daemon-reload")
		c.wantLimit(pidsLimit, pids, "")
		c.wantLimit(memoryLimit, bytes, "")
	}
	check("77", "67108864")
	c.update("--pids-limit", "55", "--memory", "50M")
	check("55", "52428800")
}

// TestSystemdKeeps: with each change of a scope systemd writes its limits anew,
// and those that it does not know must not be back at the default after that.
func TestSystemdKeeps(t *testing.T) {
	t.Parallel()
	needControllers(t, "cpu", "io", "pids")
	need(t, "weights of block I/O", weights)
	l := systemdLab(t)
	c := l.create(sh("exec sleep 1000"), limited, func(spec *specs.Spec) {
		spec.Linux.Resources.CPU = &specs.LinuxCPU{Period: pointer[uint64](50_000)}
		spec.Linux.Resources.BlockIO = &specs.LinuxBlockIO{Weight: pointer[uint16](500)}
	})
	check := func(pids string) {
		t.Helper()
		c.wantLimit(pidsLimit, pids, "")
		c.wantLimit(cpuPeriod, "50000", "max 50000")
		c.wantLimit(limit{"blkio", "blkio.bfq.weight", "io.weight"}, "500", "default 4950")
	}
	check("77")
	c.update("--pids-limit", "55")
	check("55")
	c.update("--cpu-share", "300")
	check("55")
}

// TestSystemdSubgroup puts the container into a cgroup below its scope, and what
// it runs into one that it manages by itself: crun's annotations.
func TestSystemdSubgroup(t *testing.T) {
	t.Parallel()
	l := systemdLab(t)
	own := both(withNamespace(specs.CgroupNamespace, ""), annotate("run.oci.systemd.subgroup", "inner"))
	if !isCgroup2() {
		id := l.newID()
		b := l.bundle(id, sh("exit 0"), own)
		l.wantFail(l.call("create", "--bundle", b.dir, id), "run.oci.systemd.subgroup", "needs cgroup v2")
		return
	}
	sub := l.runDetached(sh("exec sleep 1000"), own)
	equal(t, "cgroup", cgroupOf(t, sub.pid, ""), l.cgroupOf(sub.id)+"/inner")
	equal(t, "cgroup as seen inside", sub.execOutput("cat /proc/1/cgroup | tail -n 1"), "0::/")
	equal(t, "of another process", sub.execOutput("tail -n 1 /proc/self/cgroup"), "0::/")

	deeper := l.runDetached(sh("exec sleep 1000"), own, annotate("run.oci.delegate-cgroup", "mine"))
	equal(t, "cgroup", cgroupOf(t, deeper.pid, ""), l.cgroupOf(deeper.id)+"/inner/mine")
	equal(t, "cgroup as seen inside", deeper.execOutput("tail -n 1 /proc/1/cgroup"), "0::/mine")
	equal(t, "of another process", deeper.execOutput("tail -n 1 /proc/self/cgroup"), "0::/mine")
	l.wantSilent(l.call("pause", deeper.id))
	l.wantSilent(l.call("resume", deeper.id))
	for _, c := range []*container{sub, deeper} {
		l.wantSilent(l.call("delete", "--force", c.id))
		if _, err := os.Stat(filepath.Join(cgroupRoot, l.cgroupOf(c.id))); err == nil {
			t.Errorf("the scope of %s is still there", c.id)
		}
	}
	for _, edits := range [][]edit{
		{annotate("run.oci.systemd.subgroup", "../..")},
		{annotate("run.oci.systemd.subgroup", "a/b")},
		{own, annotate("run.oci.delegate-cgroup", "..")},
		{annotate("run.oci.delegate-cgroup", "alone")},
	} {
		id := l.newID()
		b := l.bundle(id, append(edits, sh("exit 0"))...)
		l.wantFail(l.call("create", "--bundle", b.dir, id), "annotations.run.oci.")
	}
}

// TestSystemdSubgroupLimits: the container sees its limits, though they are its
// scope's.
func TestSystemdSubgroupLimits(t *testing.T) {
	t.Parallel()
	l := systemdLab(t)
	if !isCgroup2() {
		return // see TestSystemdSubgroup
	}
	needControllers(t, "cpu", "memory", "pids")
	c := l.runDetached(sh("exec sleep 1000"), limited, withNamespace(specs.CgroupNamespace, ""), annotate("run.oci.systemd.subgroup", "inner"))
	const script = "cd /sys/fs/cgroup; cat memory.max pids.max"
	equal(t, "limits inside", c.execOutput(script), "67108864\n77")
	c.wantLimit(memoryLimit, "67108864", "")
	c.update("--memory", "80m", "--pids-limit", "66")
	equal(t, "limits inside after update", c.execOutput(script), "83886080\n66")
}

// TestCgroupDelegation: who may manage the cgroup in the container owns it, by the
// rules of the specification, and limits stay root's.
func TestCgroupDelegation(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	writable := func(spec *specs.Spec) {
		for i := range spec.Mounts {
			if m := &spec.Mounts[i]; m.Type == "cgroup" {
				m.Options = []string{"nosuid", "noexec", "nodev"}
			}
		}
	}
	ownNamespace := withNamespace(specs.CgroupNamespace, "")
	const script = "mkdir /sys/fs/cgroup/sub 2>/dev/null && echo made; echo 5 2>/dev/null >/sys/fs/cgroup/cgroup.max.depth && echo limited; exec sleep 1000"
	for _, tt := range []struct {
		name  string
		edits []edit
		v2    int // owner with cgroup v2; with v1 always root
	}{
		{"user", []edit{ownNamespace, writable, asUser(1000, 1000)}, 1000},
		{"root of a user namespace", []edit{ownNamespace, writable, idMappings}, 100000},
		{"user of a user namespace", []edit{ownNamespace, writable, idMappings, asUser(7, 7)}, 100007},
		{"read-only", []edit{ownNamespace, idMappings}, 0},
		{"no cgroup namespace", []edit{withoutNamespace(specs.CgroupNamespace), writable, asUser(1000, 1000)}, 0},
	} {
		id := l.newID()
		b := l.bundle(id, append([]edit{sh(script)}, tt.edits...)...)
		chownTree(t, b.rootfs, 100000)
		c := l.createIn(b, id, invocation{})
		want := 0
		if isCgroup2() {
			want = tt.v2
		}
		for _, folder := range cgroupFolders(l.cgroupOf(id)) {
			if _, err := os.Stat(folder); err != nil {
				continue // a hierarchy that the runtime does not use
			}
			equal(t, tt.name+": owner of "+folder, ownerOf(t, folder), want)
			equal(t, tt.name+": owner of cgroup.procs", ownerOf(t, filepath.Join(folder, "cgroup.procs")), want)
			if isCgroup2() {
				equal(t, tt.name+": owner of cgroup.max.depth", ownerOf(t, filepath.Join(folder, "cgroup.max.depth")), 0)
			}
		}
		c.start()
		if isCgroup2() {
			eventually(t, "sleep in "+tt.name, func() bool { return strings.HasPrefix(procFile(t, c.pid, "cmdline"), "sleep") })
			equal(t, tt.name+": output", c.stdout(), map[bool]string{true: "made\n"}[want != 0])
		}
		l.wantSilent(l.call("delete", "--force", id))
	}
}

func ownerOf(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

// TestControllerMissing: without a limit nothing needs a controller, and the
// message names the one that a limit lacks.
func TestControllerMissing(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	need(t, "cgroup v2 without a controller for processes", func() error {
		if !isCgroup2() {
			return errors.New("cgroup v1")
		}
		if controllers("pids")() == nil {
			return errors.New("there is one")
		}
		return nil
	})
	none, some := int64(-1), int64(100_000_000)
	with := func(pids, memory *int64) edit {
		return func(spec *specs.Spec) {
			spec.Linux.Resources.Pids = &specs.LinuxPids{Limit: pids}
			spec.Linux.Resources.Memory = &specs.LinuxMemory{Limit: memory}
			spec.Linux.Resources.CPU = &specs.LinuxCPU{Quota: &none}
		}
	}
	equal(t, "output without a limit", l.output("echo ok", with(&none, &none)), "ok")
	for want, limit := range map[string]edit{"pids.max": with(&some, nil), "memory.max": with(nil, &some)} {
		id := l.newID()
		b := l.bundle(id, sh("exit 0"), limit)
		r := l.call("create", "--bundle", b.dir, id)
		l.wantFail(r, "this cgroup has no "+want, "enable its controller or drop the limit")
		if strings.Contains(r.stderr, "no such file") {
			t.Errorf("stderr %q would be exit status 127 in podman", r.stderr)
		}
		l.wantGone(id)
	}
}

// TestMemoryEvents: conmon looks for the file in init's cgroup when create has
// returned.
func TestMemoryEvents(t *testing.T) {
	t.Parallel()
	needControllers(t, "memory")
	each(t, func(t *testing.T, l *lab) {
		c := l.create(sh("exec sleep 1000"))
		name := filepath.Join(cgroupRoot, cgroupOf(t, c.pid, "memory"), "memory.events")
		if !isCgroup2() {
			name = filepath.Join(cgroupRoot, "memory", cgroupOf(t, c.pid, "memory"), "memory.oom_control")
		}
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	})
}
