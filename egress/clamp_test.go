package egress

import (
	"reflect"
	"slices"
	"testing"

	"eggrun/sandbox"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestClampCapabilities(t *testing.T) {
	t.Parallel()
	all := spec.CapabilityNames()
	got := clampCapabilities(&specs.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all, Inheritable: all, Ambient: all}, false)
	for name, set := range map[string][]string{
		"bounding": got.Bounding, "effective": got.Effective, "permitted": got.Permitted, "inheritable": got.Inheritable, "ambient": got.Ambient,
	} {
		slices.Sort(set)
		want := slices.Sorted(slices.Values(capabilities))
		if !slices.Equal(set, want) || len(set) != 13 {
			t.Errorf("%s: %v, want %v", name, set, want)
		}
	}
	if len(all) != len(spec.CapabilityNames()) || slices.Contains(all, "") {
		t.Error("the argument was changed")
	}
	one := []string{"CAP_KILL", "CAP_NET_RAW", "CAP_MKNOD"}
	few := clampCapabilities(&specs.LinuxCapabilities{Bounding: one, Ambient: one[:1]}, true)
	if want := (&specs.LinuxCapabilities{Bounding: one[:1], Ambient: one[:1]}); !reflect.DeepEqual(few, want) {
		t.Errorf("%+v, want %+v", few, want)
	}
	if clampCapabilities(nil, false) != nil {
		t.Error("no sets became some")
	}
}

func TestClampMounts(t *testing.T) {
	t.Parallel()
	const rw, ro = unix.MOUNT_ATTR_NOSUID, unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_RDONLY
	mount := func(kind, source, target string) spec.Mount {
		return spec.Mount{
			Mount: sandbox.Mount{Source: source, Target: target}, Type: kind,
			Set: rw, Clear: unix.MOUNT_ATTR_RDONLY, RecClear: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV,
		}
	}
	plan := &spec.Plan{}
	plan.Config.DenyWrite = []string{"/proc/sys", "/etc"}
	plan.Mounts = []spec.Mount{
		mount("proc", "proc", "/proc"), mount("proc", "proc", "/proc2"), mount("sysfs", "sysfs", "/sys"), mount("cgroup2", "d", "/x"),
		mount("cgroup", "cgroup", "/sys/fs/cgroup"), mount("tmpfs", "/sys", "/run"),
		mount("", "/sys", "/sys2"), mount("", "/sys/fs", "/fs"), mount("", "/proc/sys", "/z"), mount("", "/tmp", "/tmp"),
		mount("", "/etc/hosts", "/etc//resolv.conf"), mount("", "/etc/hosts", "/etc/hosts"),
	}
	clamp(plan, false)
	want := []bool{false, false, true, true, true, false, true, true, true, false, true, false}
	for i, m := range plan.Mounts {
		isRO := m.ReadOnly && m.Set == ro && m.Clear == 0 && m.RecClear == unix.MOUNT_ATTR_NODEV && (m.RecSet == unix.MOUNT_ATTR_RDONLY) == m.IsBind()
		isRW := !m.ReadOnly && m.Set == rw && m.Clear == unix.MOUNT_ATTR_RDONLY && m.RecSet == 0
		if isRO != want[i] || isRW == want[i] {
			t.Errorf("%s: %+v, want read-only %v", m.Target, m, want[i])
		}
	}
	paths := []string{"/proc/sys", "/etc", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sysrq-trigger", "/proc2/bus", "/proc2/fs", "/proc2/irq", "/proc2/sys", "/proc2/sysrq-trigger"}
	for path, want := range map[string]bool{"": false, "/proc/1/ns/cgroup": true} {
		plan := &spec.Plan{
			Namespaces: []spec.Namespace{{Type: specs.CgroupNamespace, Path: path}},
			Mounts:     []spec.Mount{mount("cgroup", "cgroup", "/a"), mount("cgroup2", "cgroup", "/b")},
		}
		if clamp(plan, false); plan.Mounts[0].ReadOnly != want || plan.Mounts[1].ReadOnly != want {
			t.Errorf("namespace %q: %+v, want read-only %v", path, plan.Mounts, want)
		}
	}
	if !slices.Equal(plan.Config.DenyWrite, paths) {
		t.Errorf("read-only paths %q, want %q", plan.Config.DenyWrite, paths)
	}
}

func TestDevices(t *testing.T) {
	t.Parallel()
	names := &deviceNames{
		drivers: map[uint32][]string{226: {"drm"}, 195: {"nvidia", "nvidia-modeset"}, 508: {"nvidia-uvm"}, 248: {"bsg"}, 500: {"drm", "bsg"}, 4: {"tty", "ttyS"}},
		misc:    map[uint32][]string{200: {"tun"}, 232: {"kvm"}, 238: {"vhost-net"}, 258: {"vsock"}, 237: {"loop-control"}},
	}
	for _, tt := range []struct {
		format, major, minor uint32
		want                 bool
	}{
		{unix.S_IFCHR, 1, 3, true},
		{unix.S_IFCHR, 1, 1, false},
		{unix.S_IFCHR, 1, 4, false},
		{unix.S_IFBLK, 1, 3, false},
		{unix.S_IFBLK, 8, 0, false},
		{unix.S_IFIFO, 0, 0, true},
		{unix.S_IFCHR, 5, 2, true},
		{unix.S_IFCHR, 5, 3, false},
		{unix.S_IFCHR, 136, 7, true},
		{unix.S_IFCHR, 4, 64, false},
		{unix.S_IFCHR, 10, 200, true},
		{unix.S_IFCHR, 10, 232, true},
		{unix.S_IFCHR, 10, 238, false},
		{unix.S_IFCHR, 10, 258, false},
		{unix.S_IFCHR, 10, 99, false},
		{unix.S_IFCHR, 226, 0, true},
		{unix.S_IFCHR, 195, 255, true},
		{unix.S_IFCHR, 508, 0, true},
		{unix.S_IFCHR, 248, 0, false},
		{unix.S_IFCHR, 500, 0, false},
		{unix.S_IFCHR, 499, 0, false},
	} {
		if got := names.allow(tt.format, tt.major, tt.minor); got != tt.want {
			t.Errorf("%#o %d:%d: %v, want %v", tt.format, tt.major, tt.minor, got, tt.want)
		}
	}
	n := func(v int64) *int64 { return &v }
	rule := func(kind string, major, minor *int64, access string) specs.LinuxDeviceCgroup {
		return specs.LinuxDeviceCgroup{Allow: true, Type: kind, Major: major, Minor: minor, Access: access}
	}
	deny := specs.LinuxDeviceCgroup{Access: "rwm"}
	for _, tt := range []struct {
		name  string
		rules []specs.LinuxDeviceCgroup
		want  int
	}{
		{"none", nil, 0},
		{"an engine's", []specs.LinuxDeviceCgroup{deny, rule("c", n(1), n(3), "rwm"), rule("c", n(-1), n(-1), "m"), rule("b", nil, nil, "m"), rule("c", n(136), nil, "rwm")}, 0},
		{"everything", []specs.LinuxDeviceCgroup{rule("a", nil, nil, "rwm")}, 1},
		{"everything without a word", []specs.LinuxDeviceCgroup{{Allow: true}}, 1},
		{"a disk", []specs.LinuxDeviceCgroup{deny, rule("b", n(8), n(0), "r")}, 1},
		{"all disks", []specs.LinuxDeviceCgroup{deny, rule("b", n(8), n(-1), "w")}, 1},
		{"all characters", []specs.LinuxDeviceCgroup{deny, rule("c", nil, nil, "rw")}, 1},
		{"memory", []specs.LinuxDeviceCgroup{deny, rule("c", n(1), n(1), "r")}, 1},
		{"a whole major", []specs.LinuxDeviceCgroup{deny, rule("c", n(10), nil, "rwm"), rule("c", n(226), nil, "rwm")}, 1},
		{"taken back", []specs.LinuxDeviceCgroup{rule("a", nil, nil, "rwm"), deny}, 0},
		{"taken back in part", []specs.LinuxDeviceCgroup{rule("a", nil, nil, "rwm"), {Type: "c", Access: "rwm"}}, 1},
		{"taken back but for reading", []specs.LinuxDeviceCgroup{rule("a", nil, nil, "rwm"), {Access: "wm"}}, 1},
	} {
		if got := hostileRules(tt.rules, names); len(got) != tt.want {
			t.Errorf("%s: %q, want %d", tt.name, got, tt.want)
		}
	}
	read := readDeviceNames()
	if !slices.Contains(read.drivers[1], "mem") || len(read.misc) == 0 || read.drivers[259] != nil && slices.Contains(read.drivers[259], "blkext") {
		t.Errorf("this machine's: %+v", read)
	}
}
