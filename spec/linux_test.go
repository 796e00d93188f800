package spec

import (
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"eggrun/sandbox"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestSysctl(t *testing.T) {
	t.Parallel()
	all := namespace(specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace)
	with := func(namespaces []specs.LinuxNamespace, names ...string) func(*specs.Spec) {
		return func(c *specs.Spec) {
			c.Linux.Namespaces = namespaces
			c.Linux.Sysctl = map[string]string{}
			for _, name := range names {
				c.Linux.Sysctl[name] = "1"
			}
		}
	}
	const host = ": no namespace has it of its own, so it would change the host"
	runErrorTests(t, false, []errorTest{
		{"all", with(all, "net.ipv4.ip_forward", "kernel.sem", "kernel.msgmax", "fs.mqueue.msg_max", "kernel.domainname"), ""},
		{"no net", with(namespace(), "net.ipv4.ip_forward"), `linux.sysctl "net.ipv4.ip_forward": needs its own network namespace in linux.namespaces`},
		{"no net with slashes", with(namespace(), "net/ipv4/ip_forward"), `linux.sysctl "net/ipv4/ip_forward": needs its own network namespace in linux.namespaces`},
		{"no ipc", with(namespace(), "kernel.shmmax"), `linux.sysctl "kernel.shmmax": needs its own ipc namespace in linux.namespaces`},
		{"no ipc for mqueue", with(namespace(), "fs.mqueue.msg_max"), `linux.sysctl "fs.mqueue.msg_max": needs its own ipc namespace in linux.namespaces`},
		{"no uts", with(namespace(), "kernel.domainname"), `linux.sysctl "kernel.domainname": needs its own uts namespace in linux.namespaces`},
		{"no user", with(all, "user.max_net_namespaces"), `linux.sysctl "user.max_net_namespaces": needs its own user namespace in linux.namespaces`},
		{"hostname", with(all, "kernel.hostname"), `linux.sysctl "kernel.hostname": use hostname instead`},
		{"host", with(all, "kernel.core_pattern"), `linux.sysctl "kernel.core_pattern"` + host},
		{"host with slashes", with(all, "vm/overcommit_memory"), `linux.sysctl "vm/overcommit_memory"` + host},
		{"net alone", with(all, "net"), `linux.sysctl "net"` + host},
		{"prefix only", with(all, "network.x"), `linux.sysctl "network.x"` + host},
		{"up", with(all, "net/../kernel/core_pattern"), `linux.sysctl "net/../kernel/core_pattern": not a sysctl name`},
		{"up with dots", with(all, "net.//.kernel.core_pattern"), `linux.sysctl "net.//.kernel.core_pattern": not a sysctl name`},
		{"dots", with(all, "net...x"), `linux.sysctl "net...x": not a sysctl name`},
		{"absolute", with(all, "/net/x"), `linux.sysctl "/net/x": not a sysctl name`},
		{"trailing", with(all, "net.x."), `linux.sysctl "net.x.": not a sysctl name`},
		{"empty", with(all, ""), `linux.sysctl "": not a sysctl name`},
		{"NUL", with(all, "net.a\x00"), `linux.sysctl "net.a\x00": must not contain a NUL byte`},
		{"twice", with(all, "net.a.b", "net/a/b"), `linux.sysctl "net/a/b": is there twice, with dots and with slashes`},
		{"NUL in value", func(c *specs.Spec) {
			c.Linux.Namespaces = all
			c.Linux.Sysctl = map[string]string{"net.a": "\x00"}
		}, `linux.sysctl "net.a": value must not contain a NUL byte`},
	})
}

func TestSysctlPath(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"net.ipv4.ip_forward":              "net/ipv4/ip_forward",
		"net/ipv4/ip_forward":              "net/ipv4/ip_forward",
		"net.ipv4.conf.eno2/100.rp_filter": "net/ipv4/conf/eno2.100/rp_filter",
		"net/ipv4/conf/eno2.100/rp_filter": "net/ipv4/conf/eno2.100/rp_filter",
		"net.ipv4/conf":                    "net/ipv4.conf",
		"kernel":                           "kernel",
	} {
		if got := sysctlPath(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func TestTranslateRefusesDevices(t *testing.T) {
	t.Parallel()
	device := func(device specs.LinuxDevice) func(*specs.Spec) {
		return func(c *specs.Spec) { c.Linux.Devices = []specs.LinuxDevice{device} }
	}
	runErrorTests(t, false, []errorTest{
		{"fifo", device(specs.LinuxDevice{Path: "/dev/x", Type: "p", Major: -1, Minor: -1}), ""},
		{"biggest", device(specs.LinuxDevice{Path: "/dev/x", Type: "b", Major: 4095, Minor: 1048575}), ""},
		{"no path", device(specs.LinuxDevice{Type: "c"}), `linux.devices[0].path: must not be empty`},
		{"relative", device(specs.LinuxDevice{Path: "dev/x", Type: "c"}), `linux.devices[0].path "dev/x": must be absolute`},
		{"root", device(specs.LinuxDevice{Path: "/dev/..", Type: "c"}), `linux.devices[0].path "/dev/..": must not be the root`},
		{"any type", device(specs.LinuxDevice{Path: "/dev/x", Type: "a"}), `linux.devices[0].type "a": want c, u, b or p`},
		{"no type", device(specs.LinuxDevice{Path: "/dev/x"}), `linux.devices[0].type "": want c, u, b or p`},
		{"any major", device(specs.LinuxDevice{Path: "/dev/x", Type: "c", Major: -1}), `linux.devices[0].major -1: must be from 0 to 4095`},
		{"big major", device(specs.LinuxDevice{Path: "/dev/x", Type: "c", Major: 4096}), `linux.devices[0].major 4096: must be from 0 to 4095`},
		{"any minor", device(specs.LinuxDevice{Path: "/dev/x", Type: "b", Minor: -1}), `linux.devices[0].minor -1: must be from 0 to 1048575`},
		{"big minor", device(specs.LinuxDevice{Path: "/dev/x", Type: "b", Minor: 1 << 20}), `linux.devices[0].minor 1048576: must be from 0 to 1048575`},
		{"uid", device(specs.LinuxDevice{Path: "/dev/x", Type: "c", UID: pointer[uint32](math.MaxUint32)}), `linux.devices[0].uid 4294967295: not an id`},
		{"gid", device(specs.LinuxDevice{Path: "/dev/x", Type: "c", GID: pointer[uint32](math.MaxUint32)}), `linux.devices[0].gid 4294967295: not an id`},
	})
}

func TestDevices(t *testing.T) {
	t.Parallel()
	config := minimal()
	config.Linux.Devices = []specs.LinuxDevice{
		{Path: "/dev/a", Type: "c", Major: 1, Minor: 1, FileMode: pointer(os.FileMode(unix.S_IFCHR | 0o640))},
		{Path: "/dev/./null", Type: "c", Major: 1, Minor: 3, GID: pointer[uint32](7)},
		{Path: "/dev/a", Type: "b", Major: 2, Minor: 2},
		{Path: "/dev/ptmx", Type: "c", Major: 5, Minor: 2},
	}
	plan, err := Translate(config, testBundle, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := append([]Device{{Path: "/dev/null", Mode: unix.S_IFCHR | 0o666, Major: 1, Minor: 3, GID: 7}}, defaultDevices()[1:]...)
	want = append(want, Device{Path: "/dev/a", Mode: unix.S_IFBLK | 0o666, Major: 2, Minor: 2})
	if !slices.Equal(plan.Devices, want) {
		t.Errorf("got %+v, want %+v", plan.Devices, want)
	}
}

func TestRlimitsInConfig(t *testing.T) {
	t.Parallel()
	both := func(name string, value uint64) specs.POSIXRlimit {
		return specs.POSIXRlimit{Type: name, Soft: value, Hard: value}
	}
	const biggestCPU = math.MaxInt64 / uint64(time.Second)
	for _, test := range []struct {
		limit specs.POSIXRlimit
		want  sandbox.Config
	}{
		{both("RLIMIT_CPU", 60), sandbox.Config{CPULimit: time.Minute}},
		{both("RLIMIT_CPU", biggestCPU), sandbox.Config{CPULimit: time.Duration(biggestCPU) * time.Second}},
		{both("RLIMIT_CPU", biggestCPU+1), sandbox.Config{}},
		{both("RLIMIT_CPU", 0), sandbox.Config{}},
		{specs.POSIXRlimit{Type: "RLIMIT_CPU", Soft: 1, Hard: 2}, sandbox.Config{}},
		{both("RLIMIT_AS", 1<<40), sandbox.Config{MemLimit: 1 << 40}},
		{both("RLIMIT_AS", unix.RLIM_INFINITY), sandbox.Config{}},
		{both("RLIMIT_NOFILE", math.MaxUint32), sandbox.Config{MaxFDs: math.MaxUint32}},
		{both("RLIMIT_NOFILE", math.MaxUint32+1), sandbox.Config{}},
		{both("RLIMIT_NPROC", 7), sandbox.Config{}},
	} {
		config := minimal()
		config.Process.Rlimits = []specs.POSIXRlimit{test.limit}
		plan, err := Translate(config, testBundle, nil)
		if err != nil {
			t.Fatal(err)
		}
		test.want.NetworkNeed = sandbox.NetworkFull
		if !reflect.DeepEqual(plan.Config, test.want) {
			t.Errorf("%+v: got %+v, want %+v", test.limit, plan.Config, test.want)
		}
		if got := plan.Process.Rlimits; len(got) != 1 || got[0].Soft != test.limit.Soft || got[0].Hard != test.limit.Hard {
			t.Errorf("%+v: got %+v in the process", test.limit, got)
		}
		if err := plan.Config.Validate(); err != nil {
			t.Errorf("%+v: %v", test.limit, err)
		}
	}
}

func TestRlimitNames(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for _, limit := range rlimitNames {
		seen[limit.resource] = true
	}
	// RLIM_NLIMITS of Linux: every number must have a name.
	if want := 16; len(seen) != want || len(rlimitNames) != want {
		t.Errorf("got %v, want %d", slices.Sorted(maps.Keys(seen)), want)
	}
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	if got := CapabilityNames(); len(got) != unix.CAP_LAST_CAP+1 ||
		got[unix.CAP_SYS_ADMIN] != "CAP_SYS_ADMIN" || got[unix.CAP_AUDIT_READ] != "CAP_AUDIT_READ" ||
		got[unix.CAP_SETFCAP] != "CAP_SETFCAP" || got[unix.CAP_LAST_CAP] != "CAP_CHECKPOINT_RESTORE" {
		t.Errorf("got %q", got)
	}
	got := normalizeCapabilities(&specs.LinuxCapabilities{
		Bounding: []string{"CAP_CHOWN", "cap_Kill", "CAP_KILL", "KILL", "CAP_NOPE", ""},
		Ambient:  []string{"NET_RAW"},
	})
	want := &specs.LinuxCapabilities{Bounding: []string{"CAP_CHOWN", "CAP_KILL"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := normalizeCapabilities(nil); got != nil {
		t.Errorf("nil: got %+v", got)
	}
}

func TestEnvironmentKeepsLast(t *testing.T) {
	t.Parallel()
	got, err := environment("env", []string{"A=1", "B=x", "A=2", "C=", "B=y=z"})
	if want := []string{"A=2", "C=", "B=y=z"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestTranslateProcess(t *testing.T) {
	t.Parallel()
	plan := &Plan{
		Namespaces:  []Namespace{{Type: specs.UserNamespace}},
		UIDMappings: []specs.LinuxIDMapping{{Size: 10}}, GIDMappings: []specs.LinuxIDMapping{{Size: 10}},
	}
	good := specs.Process{Args: []string{"sh"}, Cwd: "/", User: specs.User{UID: 9}}
	got, err := TranslateProcess(&good, plan)
	if err != nil || got.Args[0] != "sh" || got.User.UID != 9 || plan.Process != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := TranslateProcess(nil, plan); got != nil || err == nil {
		t.Errorf("nil: got %+v, %v", got, err)
	}
	for _, test := range []struct {
		edit func(*specs.Process)
		want string
	}{
		{func(p *specs.Process) { p.User.UID = 10 }, "process: user.uid 10: not mapped by linux.uidMappings"},
		{func(p *specs.Process) { p.Cwd = "x" }, `process: cwd "x": must be absolute`},
		{func(p *specs.Process) { p.SelinuxLabel = "\x00" }, `process: selinuxLabel "\x00": must not contain a NUL byte`},
		{func(p *specs.Process) { p.User.Username = "x" }, `process: user.username: not supported on Linux`},
	} {
		process := good
		test.edit(&process)
		if got, err := TranslateProcess(&process, plan); got != nil || err == nil || err.Error() != test.want {
			t.Errorf("got %+v, %v, want %s", got, err, test.want)
		}
	}
}
