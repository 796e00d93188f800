package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// ownCgroup are the global flags for a container in the caller's cgroup: with
// RT_GROUP_SCHED and cgroup v1 no real-time policy can be had in a new one.
func (l *lab) ownCgroup() []string {
	return []string{"--root", l.root, "--cgroup-manager", "disabled"}
}

// schedAttr is the scheduling of a process, as chrt(1) would show it.
func schedAttr(t *testing.T, pid int) string {
	t.Helper()
	attr, err := unix.SchedGetAttr(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("policy %d flags %#x nice %d priority %d deadline %d/%d/%d",
		attr.Policy, attr.Flags, attr.Nice, attr.Priority, attr.Runtime, attr.Deadline, attr.Period)
}

// realTime tells whether a process in the suite's cgroup may have a real-time
// policy. Its thread is thrown away.
func realTime() error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		result <- unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
	}()
	return <-result
}

func TestFieldScheduler(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t) // the field came with runc 1.2
	const ms = 1_000_000
	for _, test := range []struct {
		name string
		from specs.Scheduler
		want string
	}{
		{"other", specs.Scheduler{Policy: specs.SchedOther, Nice: 7}, "policy 0 flags 0x0 nice 7 priority 0 deadline 0/0/0"},
		{"other, favoured", specs.Scheduler{Policy: specs.SchedOther, Nice: -5}, "policy 0 flags 0x0 nice -5 priority 0 deadline 0/0/0"},
		{"batch", specs.Scheduler{Policy: specs.SchedBatch, Nice: 3, Flags: []specs.LinuxSchedulerFlag{specs.SchedFlagResetOnFork}}, "policy 3 flags 0x1 nice 3 priority 0 deadline 0/0/0"},
		{"idle", specs.Scheduler{Policy: specs.SchedIdle}, "policy 5 flags 0x0 nice 0 priority 0 deadline 0/0/0"},
		{"fifo", specs.Scheduler{Policy: specs.SchedFIFO, Priority: 10}, "policy 1 flags 0x0 nice 0 priority 10 deadline 0/0/0"},
		{"rr", specs.Scheduler{Policy: specs.SchedRR, Priority: 1}, "policy 2 flags 0x0 nice 0 priority 1 deadline 0/0/0"},
		{"deadline", specs.Scheduler{Policy: specs.SchedDeadline, Runtime: 5 * ms, Deadline: 50 * ms, Period: 100 * ms}, "policy 6 flags 0x0 nice 0 priority 0 deadline 5000000/50000000/100000000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.from.Policy == specs.SchedFIFO || test.from.Policy == specs.SchedRR {
				need(t, "a cgroup with real-time budget", realTime)
			}
			l := newLab(t, rt)
			c := l.createWith(invocation{globals: l.ownCgroup()}, args("/bin/sleep", "1000"), asUser(1000, 1000), func(spec *specs.Spec) {
				spec.Process.Scheduler = &test.from
			})
			c.start()
			eventually(t, "sleep", func() bool { return strings.HasPrefix(procFile(t, c.pid, "cmdline"), "/bin/sleep") })
			// The kernel leaves the slice of a fair policy where the runtime is.
			got := schedAttr(t, c.pid)
			if test.from.Policy != specs.SchedDeadline {
				got = got[:strings.LastIndex(got, " ")] + " 0/0/0"
			}
			equal(t, "scheduling", got, test.want)
			l.wantSilent(l.call("delete", "--force", c.id))
		})
	}
}

// TestFieldSchedulerRefused runs the runtime without CAP_SYS_NICE.
func TestFieldSchedulerRefused(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	for _, test := range []struct {
		name, want string
		edit       edit
	}{
		{"fifo", "process.scheduler: a real-time policy needs CAP_SYS_NICE", func(spec *specs.Spec) {
			spec.Process.Scheduler = &specs.Scheduler{Policy: specs.SchedFIFO, Priority: 1}
		}},
		{"deadline", "process.scheduler: SCHED_DEADLINE needs CAP_SYS_NICE", func(spec *specs.Spec) {
			spec.Process.Scheduler = &specs.Scheduler{Policy: specs.SchedDeadline, Runtime: 1e6, Deadline: 1e8}
		}},
		{"negative nice", "process.scheduler: needs CAP_SYS_NICE", func(spec *specs.Spec) {
			spec.Process.Scheduler = &specs.Scheduler{Policy: specs.SchedOther, Nice: -1}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t, rt)
			id := l.newID()
			b := l.bundle(id, sh("exit 0"), test.edit)
			wrapped := *l
			wrapped.rt.path = filepath.Join(makeDir(t, filepath.Join(l.dir, "unkind")), "eggrun")
			writeFile(t, wrapped.rt.path, "#!/bin/sh\nexec setpriv --bounding-set -sys_nice "+rt.path+" \"$@\"\n", 0o755)
			r := wrapped.invoke(invocation{args: []string{"create", "--bundle", b.dir, id}})
			l.calls = wrapped.calls
			l.wantFail(r, test.want)
			l.wantGone(id)
		})
	}
}

func TestFieldIOPriority(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t) // the field came with runc 1.2
	for _, test := range []struct {
		from specs.LinuxIOPriority
		want string
	}{
		{specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_RT, Priority: 3}, "realtime: prio 3"},
		{specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_BE, Priority: 7}, "best-effort: prio 7"},
		{specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_IDLE, Priority: 0}, "idle"},
	} {
		l := newLab(t, rt)
		got := l.output("ionice -p 1; ionice -p $$; sh -c 'ionice -p $$'", asUser(1000, 1000), func(spec *specs.Spec) {
			spec.Process.IOPriority = &test.from
		})
		equal(t, "of init, the shell and its child", got, strings.Join([]string{test.want, test.want, test.want}, "\n"))
	}
}

// TestFieldMemoryPolicy needs but one memory node.
func TestFieldMemoryPolicy(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t) // the field came with runc 1.4
	need(t, "a kernel with NUMA", func() error {
		_, err := os.Stat("/proc/self/numa_maps")
		return err
	})
	policy := func(mode specs.MemoryPolicyModeType, nodes string, flags ...specs.MemoryPolicyFlagType) edit {
		return func(spec *specs.Spec) {
			spec.Linux.MemoryPolicy = &specs.LinuxMemoryPolicy{Mode: mode, Nodes: nodes, Flags: flags}
		}
	}
	for _, test := range []struct {
		edit edit
		want string
	}{
		{func(*specs.Spec) {}, "default"},
		{policy(specs.MpolBind, "0"), "bind:0"},
		{policy(specs.MpolInterleave, "0", specs.MpolFStaticNodes), "interleave=static:0"},
		{policy(specs.MpolPreferred, ""), "local"},
		{policy(specs.MpolLocal, ""), "local"},
	} {
		l := newLab(t, rt)
		equal(t, "policy", l.output("head -1 /proc/self/numa_maps | cut -d' ' -f2", test.edit), test.want)
	}
	l := newLab(t, rt)
	l.wantFail(l.run(sh("exit 0"), policy(specs.MpolBind, "999")), "linux.memoryPolicy", "none of the nodes is there")
}

func TestFieldPersonality(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t) // the field came with runc 1.2
	for domain, want := range map[specs.LinuxPersonalityDomain]string{specs.PerLinux: "00000000", specs.PerLinux32: "00000008"} {
		l := newLab(t, rt)
		got := l.output("cat /proc/self/personality", func(spec *specs.Spec) {
			spec.Linux.Personality = &specs.LinuxPersonality{Domain: domain}
			// Applied before the filter that forbids it.
			spec.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{
				{Names: []string{"personality", "sched_setattr", "ioprio_set", "set_mempolicy"}, Action: specs.ActErrno},
			}}
		})
		equal(t, "personality", got, want)
	}
}

// TestFieldExecCPUAffinity is not for init, but checked when it is made.
func TestFieldExecCPUAffinity(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	affinity := func(initial, final string) edit {
		return func(spec *specs.Spec) {
			spec.Process.ExecCPUAffinity = &specs.CPUAffinity{Initial: initial, Final: final}
		}
	}
	l := newLab(t, rt)
	const script = "grep Cpus_allowed_list /proc/self/status"
	equal(t, "CPUs of init", l.output(script, affinity("0", "0")), l.output(script))
	l.wantFail(l.run(sh(script), affinity("0", "1-")), `process.execCPUAffinity.final "1-"`)
}

// TestFieldTimeNamespace looks at the clocks of a new time namespace, alone and
// with a user namespace, and of a container that joins it.
func TestFieldTimeNamespace(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t) // time namespaces came with runc 1.2
	ahead := func(spec *specs.Spec) {
		withNamespace(specs.TimeNamespace, "")(spec)
		spec.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{"boottime": {Secs: 1_000_000_000, Nanosecs: 5}, "monotonic": {Secs: 3600}}
	}
	const script = "echo $$; tr -s ' ' </proc/self/timens_offsets; exec sleep 1000"
	const want = "1\nmonotonic 3600 0\nboottime 1000000000 5\n"
	for name, edits := range map[string][]edit{
		"alone":                 {ahead},
		"with a user namespace": {ahead, idMappings},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, rt)
			id := l.newID()
			b := l.bundle(id, append([]edit{sh(script)}, edits...)...)
			if len(edits) > 1 {
				chownTree(t, b.rootfs, 100000)
			}
			c := l.createIn(b, id, invocation{})
			if procLink(t, c.pid, "ns/time") == procLink(t, os.Getpid(), "ns/time") {
				t.Error("init is in the caller's time namespace")
			}
			equal(t, "parent of init", findProcess(t, c.pid).ppid, os.Getpid())
			c.start()
			c.wantOutput(want)

			joined := l.create(sh("cut -d. -f1 /proc/uptime; exec sleep 1000"), withNamespace(specs.TimeNamespace, fmt.Sprintf("/proc/%d/ns/time", c.pid)))
			equal(t, "time namespace", procLink(t, joined.pid, "ns/time"), procLink(t, c.pid, "ns/time"))
			joined.start()
			eventually(t, "uptime", func() bool { return strings.HasSuffix(joined.stdout(), "\n") })
			if uptime := strings.TrimSpace(joined.stdout()); len(uptime) < len("1000000000") {
				t.Errorf("uptime of the one that joined: %s s", uptime)
			}
			for _, id := range []string{joined.id, c.id} {
				l.wantSilent(l.call("delete", "--force", id))
			}
		})
	}
	l := newLab(t, rt)
	offset := func(seconds int64) edit {
		return func(spec *specs.Spec) {
			ahead(spec)
			spec.Linux.TimeOffsets["boottime"] = specs.LinuxTimeOffset{Secs: seconds}
		}
	}
	l.wantFail(l.run(sh("exit 0"), offset(-1_000_000_000)), "linux.timeOffsets", "out of range")
	l.wantFail(l.run(sh("exit 0"), offset(0), withoutNamespace(specs.TimeNamespace)), "linux.timeOffsets: needs a new time namespace")
}
