package container

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"eggrun/internal/linux"
	"eggrun/internal/need"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestSetNamespaces(t *testing.T) {
	t.Parallel()
	plan := &spec.Plan{
		Namespaces: []spec.Namespace{
			{Type: specs.TimeNamespace}, {Type: specs.MountNamespace},
			{Type: specs.CgroupNamespace}, {Type: specs.UTSNamespace, Path: "/proc/self/ns/uts"},
		},
		TimeOffsets: []spec.TimeOffset{{Clock: "boottime", Secs: -1, Nanosecs: 5}, {Clock: "monotonic", Secs: 1 << 40}},
	}
	var request linux.SpawnRequest
	err := setNamespaces(&request, plan)
	for _, f := range request.Join {
		defer f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	// The cgroup namespace is made by init.
	if want := uintptr(unix.CLONE_NEWTIME | unix.CLONE_NEWNS); request.New != want {
		t.Errorf("new: got %#x, want %#x", request.New, want)
	}
	if want := "boottime -1 5\nmonotonic 1099511627776 0\n"; string(request.TimeOffsets) != want {
		t.Errorf("offsets: got %q, want %q", request.TimeOffsets, want)
	}
	if len(request.Join) != 1 || request.JoinUser != nil {
		t.Errorf("joined: got %v, %v", request.Join, request.JoinUser)
	}
}

// Each type must have its flag, and only a file of that type may be given.
func TestOpenNamespace(t *testing.T) {
	t.Parallel()
	files := map[specs.LinuxNamespaceType]string{
		specs.PIDNamespace: "pid", specs.NetworkNamespace: "net", specs.MountNamespace: "mnt", specs.IPCNamespace: "ipc",
		specs.UTSNamespace: "uts", specs.UserNamespace: "user", specs.CgroupNamespace: "cgroup", specs.TimeNamespace: "time",
	}
	for _, kind := range spec.NamespaceTypes() {
		for file, name := range files {
			path := "/proc/self/ns/" + name
			f, err := openNamespace(spec.Namespace{Type: kind, Path: path}, cloneFlags[kind])
			if err == nil {
				f.Close()
			}
			if (err == nil) != (file == kind) {
				t.Errorf("%s at %s: got %v", kind, path, err)
			}
		}
	}
	_, err := openNamespace(spec.Namespace{Type: specs.TimeNamespace, Path: os.DevNull}, unix.CLONE_NEWTIME)
	if want := `time namespace: "/dev/null" is not one`; err == nil || err.Error() != want {
		t.Errorf("a device: got %v, want %s", err, want)
	}
}

// TestCheckSysctls has each kind of namespace joined: the test's own one, which
// is the host's, and for the network another.
func TestCheckSysctls(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		sysctl string
		kind   specs.LinuxNamespaceType
		path   string
		want   string
	}{
		{"net/ipv4/ip_forward", specs.NetworkNamespace, "/proc/self/ns/net", `linux.sysctl "net/ipv4/ip_forward": not allowed in the host's network namespace, which is joined`},
		{"kernel/sem", specs.IPCNamespace, "/proc/self/ns/ipc", `linux.sysctl "kernel/sem": not allowed in the host's ipc namespace, which is joined`},
		{"kernel/domainname", specs.UTSNamespace, "/proc/self/ns/uts", `linux.sysctl "kernel/domainname": not allowed in the host's uts namespace, which is joined`},
		{"net/ipv4/ip_forward", specs.NetworkNamespace, "", "<nil>"},
		{"net/ipv4/ip_forward", specs.NetworkNamespace, "/proc/self/ns/ipc", "<nil>"}, // what it is comes later
		{"net/ipv4/ip_forward", specs.NetworkNamespace, "/none", "network namespace: stat /none: no such file or directory"},
	} {
		plan := &spec.Plan{Sysctl: map[string]string{tt.sysctl: "1"}, Namespaces: []spec.Namespace{{Type: tt.kind, Path: tt.path}}}
		if err := checkSysctls(plan); fmt.Sprint(err) != tt.want {
			t.Errorf("%s in %q: error %v, want %s", tt.sysctl, tt.path, err, tt.want)
		}
	}
}

func TestMapIDs(t *testing.T) {
	t.Parallel()
	need.Root(t)
	ids := func(container, host, size uint32) specs.LinuxIDMapping {
		return specs.LinuxIDMapping{ContainerID: container, HostID: host, Size: size}
	}
	uids := []specs.LinuxIDMapping{ids(0, 100000, 10), ids(10, 200000, 4294767295)}
	gids := []specs.LinuxIDMapping{ids(0, 7, 1)}
	var got []string
	f, err := linux.NewUserNamespace(func(pid int) error {
		if err := mapIDs(pid, uids, gids); err != nil {
			return err
		}
		for _, file := range []string{"uid_map", "gid_map"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
			if err != nil {
				return err
			}
			got = append(got, strings.Join(strings.Fields(string(text)), " "))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if want := []string{"0 100000 10 10 200000 4294767295", "0 7 1"}; !slices.Equal(got, want) {
		t.Errorf("maps %q, want %q", got, want)
	}
	_, err = linux.NewUserNamespace(func(pid int) error { return mapIDs(pid, gids, nil) })
	if !errors.Is(err, unix.EINVAL) || !strings.HasPrefix(err.Error(), "user namespace: ") {
		t.Errorf("no gid: %v, want EINVAL", err)
	}
	_, err = linux.NewUserNamespace(func(pid int) error { return errors.Join(mapIDs(pid, uids, gids), mapIDs(pid, uids, gids)) })
	if want := "user namespace: uid_map: the caller may not use these host ids"; fmt.Sprint(err) != want {
		t.Errorf("refused: %v, want %s", err, want)
	}
}

func TestSetScore(t *testing.T) {
	t.Parallel()
	p, _ := startProcess(t)
	path := fmt.Sprintf("/proc/%d/oom_score_adj", p.PID)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		score *int
		want  string
	}{{nil, string(before)}, {ptr(700), "700\n"}} {
		if err := setScore(p.PID, tt.score); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != tt.want {
			t.Errorf("score %q (%v), want %q", got, err, tt.want)
		}
	}
	if err := setScore(p.PID, ptr(1001)); !errors.Is(err, unix.EINVAL) {
		t.Errorf("out of range: %v, want EINVAL", err)
	}
}

// TestRaiseRlimits needs hard limits to be raised, or the reason why they are
// not, and nothing to be lowered.
func TestRaiseRlimits(t *testing.T) {
	t.Parallel()
	p, _ := startProcess(t)
	set := unix.Rlimit{Cur: 50, Max: 100}
	for _, resource := range []int{unix.RLIMIT_NOFILE, unix.RLIMIT_CORE} {
		if err := unix.Prlimit(p.PID, resource, &set, nil); err != nil {
			t.Fatal(err)
		}
	}
	const refused = "process.rlimits: hard limit %d of resource 7: raising it needs CAP_SYS_RESOURCE (for the number of open files also a higher fs.nr_open)"
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
	wantErr, wantMax := fmt.Sprintf(refused, 200), uint64(100)
	if caps[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0 {
		wantErr, wantMax = "<nil>", 200
	}
	err := raiseRlimits(p.PID, []spec.Rlimit{
		{Resource: unix.RLIMIT_CORE, Soft: 1, Hard: 2}, {Resource: unix.RLIMIT_NOFILE, Soft: 150, Hard: 200},
	})
	if fmt.Sprint(err) != wantErr {
		t.Errorf("error %v, want %s", err, wantErr)
	}
	for resource, want := range map[int]unix.Rlimit{unix.RLIMIT_NOFILE: {Cur: 50, Max: wantMax}, unix.RLIMIT_CORE: set} {
		var got unix.Rlimit
		if err := unix.Prlimit(p.PID, resource, nil, &got); err != nil || got != want {
			t.Errorf("limit %d: %v (%v), want %v", resource, got, err, want)
		}
	}
	// More than fs.nr_open, which binds root too.
	err = raiseRlimits(p.PID, []spec.Rlimit{{Resource: unix.RLIMIT_NOFILE, Hard: 1 << 40}})
	if want := fmt.Sprintf(refused, 1<<40); fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
