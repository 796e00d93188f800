package container

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"eggrun/internal/state"
	"eggrun/spec"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestSetCgroupPath(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		systemd bool
		path    string
		want    cgroups.Cgroup
		wantErr string
	}{
		{false, "", cgroups.Cgroup{Name: "id"}, ""},
		{false, "/a/b", cgroups.Cgroup{Path: "/a/b"}, ""},
		{false, "a/b/", cgroups.Cgroup{Path: "a/b"}, ""},
		{false, "/a/../../../b", cgroups.Cgroup{Path: "/b"}, ""},
		{false, "../../b", cgroups.Cgroup{Path: "b"}, ""},
		{false, "/", cgroups.Cgroup{}, `linux.cgroupsPath "/": names no cgroup`},
		{false, "a/..", cgroups.Cgroup{}, `linux.cgroupsPath "a/..": names no cgroup`},
		{false, "..", cgroups.Cgroup{}, `linux.cgroupsPath "..": names no cgroup`},
		{false, "a.slice:b:c", cgroups.Cgroup{Path: "a.slice:b:c"}, ""},
		{true, "", cgroups.Cgroup{ScopePrefix: "eggrun", Name: "id"}, ""},
		{true, "a.slice:b:c", cgroups.Cgroup{Parent: "a.slice", ScopePrefix: "b", Name: "c"}, ""},
		{true, "::c", cgroups.Cgroup{Name: "c"}, ""},
		{true, "/a/b", cgroups.Cgroup{}, `linux.cgroupsPath "/a/b": want slice:prefix:name with the systemd cgroup manager`},
		{true, "a:b", cgroups.Cgroup{}, `linux.cgroupsPath "a:b": want slice:prefix:name with the systemd cgroup manager`},
		{true, "a:b:c:d", cgroups.Cgroup{}, `linux.cgroupsPath "a:b:c:d": want slice:prefix:name with the systemd cgroup manager`},
	} {
		config := cgroups.Cgroup{Systemd: tt.systemd}
		err := setCgroupPath(&config, "id", tt.path)
		if tt.wantErr != "" {
			if err == nil || err.Error() != tt.wantErr {
				t.Errorf("%q: error %v, want %s", tt.path, err, tt.wantErr)
			}
			continue
		}
		tt.want.Systemd = tt.systemd
		if err != nil || !reflect.DeepEqual(config, tt.want) {
			t.Errorf("%q: %+v, error %v, want %+v", tt.path, config, err, tt.want)
		}
	}
}

func TestNoCgroup(t *testing.T) {
	t.Parallel()
	m, _, err := newCgroup("id", ManagerDisabled, false, &spec.Plan{CgroupsPath: "/"})
	if m != nil || err != nil {
		t.Errorf("disabled: %v, %v", m, err)
	}
	for _, s := range []state.Cgroup{{Manager: ManagerDisabled, Paths: map[string]string{"": "/x"}}, {Manager: ManagerCgroupfs}} {
		m, err := openCgroup(&state.State{Cgroup: s})
		if m != nil || err != nil {
			t.Errorf("%+v: %v, %v", s, m, err)
		}
	}
	if err := checkFresh(nil); err != nil {
		t.Error(err)
	}
}

// fakeCgroup is a cgroup that remembers what it was told. Like the library's
// manager for v2, and unlike that for v1, it takes every Set for its
// configuration.
type fakeCgroup struct {
	cgroups.Manager
	config     cgroups.Cgroup
	isV2       bool
	told       []string
	sets       []*cgroups.Resources
	fail       error
	pids       []int
	frozen, is bool
}

func (f *fakeCgroup) Apply(pid int) error {
	f.told = append(f.told, fmt.Sprint("apply ", pid))
	return f.fail
}

func (f *fakeCgroup) Set(r *cgroups.Resources) error {
	f.told = append(f.told, "set")
	copied := *r
	f.sets = append(f.sets, &copied)
	if f.isV2 {
		f.config.Resources = r
	}
	return nil
}

func (f *fakeCgroup) GetCgroups() (*cgroups.Cgroup, error) { return &f.config, nil }
func (f *fakeCgroup) Exists() bool                         { return f.is }
func (f *fakeCgroup) Path(string) string                   { return "/cgroup" }
func (f *fakeCgroup) GetAllPids() ([]int, error)           { return f.pids, nil }
func (f *fakeCgroup) GetFreezerState() (cgroups.FreezerState, error) {
	if f.frozen {
		return cgroups.Frozen, nil
	}
	return cgroups.Thawed, nil
}

// TestLimits needs every limit to be set, with those that the runtime could break
// only in the second step.
func TestLimits(t *testing.T) {
	t.Parallel()
	pids := int64(1)
	full := cgroups.Resources{
		Memory: 1, MemorySwap: 2, MemoryReservation: 3, PidsLimit: &pids, MemoryCheckBeforeUpdate: true,
		CpuShares: 4, CpuQuota: 5, OomKillDisable: true,
		Unified: map[string]string{"memory.max": "6", "memory.high": "7", "pids.max": "8", "cpu.max": "11", "cpu.weight": "9", "io.max": "10"},
	}
	early := full
	early.Memory, early.MemorySwap, early.MemoryReservation, early.PidsLimit, early.CpuQuota = 0, 0, 0, nil, 0
	early.Unified = map[string]string{"cpu.weight": "9", "io.max": "10"}
	late := full
	late.SkipDevices = true
	for _, tt := range []struct {
		name string
		in   cgroups.Resources
		want []*cgroups.Resources
	}{
		{"none", cgroups.Resources{}, []*cgroups.Resources{{}}},
		{"all", full, []*cgroups.Resources{&early, &late}},
		{"pids only", cgroups.Resources{PidsLimit: &pids}, []*cgroups.Resources{{}, {PidsLimit: &pids, SkipDevices: true}}},
		{"no limit of memory", cgroups.Resources{Memory: -1, MemorySwap: -1}, []*cgroups.Resources{{}, {Memory: -1, MemorySwap: -1, SkipDevices: true}}},
		{
			"only a file of v2", cgroups.Resources{Unified: map[string]string{"memory.max": "6"}},
			[]*cgroups.Resources{{}, {SkipDevices: true, Unified: map[string]string{"memory.max": "6"}}},
		},
	} {
		for _, isV2 := range []bool{false, true} {
			resources := tt.in
			m := &fakeCgroup{isV2: isV2, config: cgroups.Cgroup{Resources: &resources}}
			if err := errors.Join(joinCgroup(m, 7, &resources), lateLimits(m, &resources)); err != nil {
				t.Fatal(err)
			}
			if m.told[0] != "apply 7" {
				t.Errorf("%s: %q", tt.name, m.told)
			}
			if !reflect.DeepEqual(m.sets, tt.want) {
				t.Errorf("%s, v2 %v: limits", tt.name, isV2)
				for _, set := range m.sets {
					t.Logf("%+v", set)
				}
			}
			if !reflect.DeepEqual(resources, tt.in) {
				t.Errorf("%s, v2 %v: the configuration has changed", tt.name, isV2)
			}
		}
	}
}

func TestJoinCgroupErrors(t *testing.T) {
	t.Parallel()
	m := &fakeCgroup{fail: cgroups.ErrRootless}
	if err := joinCgroup(m, 7, &cgroups.Resources{}); err != nil || len(m.sets) != 1 {
		t.Errorf("without rights, as allowed: %v, %q", err, m.told)
	}
	m = &fakeCgroup{fail: errors.New("no")}
	if err := joinCgroup(m, 7, &cgroups.Resources{}); fmt.Sprint(err) != "cgroup: no" || len(m.sets) != 0 {
		t.Errorf("refused: %v, %q", err, m.told)
	}
}

func TestCheckFresh(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		m    *fakeCgroup
		want string
	}{
		{"new", &fakeCgroup{}, "<nil>"},
		{"empty", &fakeCgroup{is: true}, "<nil>"},
		{"in use", &fakeCgroup{is: true, pids: []int{1, 2}}, `cgroup "/cgroup": container's cgroup is not empty, 2 processes in it; choose another linux.cgroupsPath`},
		{"frozen", &fakeCgroup{is: true, frozen: true}, `cgroup "/cgroup": container's cgroup unexpectedly frozen; thaw it first`},
		{"frozen in a hierarchy of its own", &fakeCgroup{frozen: true}, `cgroup "/cgroup": container's cgroup unexpectedly frozen; thaw it first`},
	} {
		if err := checkFresh(tt.m); fmt.Sprint(err) != tt.want {
			t.Errorf("%s: error %v, want %s", tt.name, err, tt.want)
		}
	}
}

func TestHierarchiesUnasked(t *testing.T) {
	t.Parallel()
	// No process has this pid: nothing is looked at.
	h, err := hierarchies(1<<30, &spec.Plan{Mounts: []spec.Mount{{Type: "proc"}}, Namespaces: []spec.Namespace{{Type: specs.CgroupNamespace}}})
	if err != nil || h.Unified || len(h.V1)+len(h.Trees) != 0 {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestWithoutUnlimited(t *testing.T) {
	t.Parallel()
	none, some := int64(-1), int64(5)
	all := cgroups.Resources{Memory: none, MemorySwap: none, MemoryReservation: none, CpuQuota: none, PidsLimit: &none, CpuShares: 2}
	limits := cgroups.Resources{Memory: 1, MemorySwap: 2, MemoryReservation: 3, CpuQuota: 4, PidsLimit: &some, CpuShares: 2}
	for _, tt := range []struct {
		name     string
		has      bool
		in, want cgroups.Resources
	}{
		{"no limits, controllers", true, all, all},
		{"no limits, no controllers", false, all, cgroups.Resources{CpuShares: 2}},
		{"limits, no controllers", false, limits, limits},
	} {
		got := withoutUnlimited(&tt.in, func(string) bool { return tt.has })
		if !reflect.DeepEqual(*got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, *got, tt.want)
		}
	}
}

func TestDelegates(t *testing.T) {
	t.Parallel()
	own := []spec.Namespace{{Type: specs.CgroupNamespace}}
	mount := func(kind, target string, readOnly bool) spec.Mount {
		m := spec.Mount{Type: kind}
		m.Target, m.ReadOnly = target, readOnly
		return m
	}
	writable := []spec.Mount{mount("proc", "/proc", false), mount("cgroup", "/sys/fs/cgroup", false)}
	for _, tt := range []struct {
		name string
		plan spec.Plan
		v2   bool
		want bool
	}{
		{"all that it takes", spec.Plan{Namespaces: own, Mounts: writable}, true, true},
		{"v1", spec.Plan{Namespaces: own, Mounts: writable}, false, false},
		{"no namespace", spec.Plan{Mounts: writable}, true, false},
		{"another's namespace", spec.Plan{Namespaces: []spec.Namespace{{Type: specs.CgroupNamespace, Path: "/proc/1/ns/cgroup"}}, Mounts: writable}, true, false},
		{"read-only", spec.Plan{Namespaces: own, Mounts: []spec.Mount{mount("cgroup", "/sys/fs/cgroup", true)}}, true, false},
		{"elsewhere", spec.Plan{Namespaces: own, Mounts: []spec.Mount{mount("cgroup", "/cgroup", false)}}, true, false},
		{"no mount", spec.Plan{Namespaces: own}, true, false},
	} {
		if got := delegates(&tt.plan, tt.v2); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestFindUserBus(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ set, wantErr string }{
		{"DBUS_SESSION_BUS_ADDRESS", "<nil>"},
		{"XDG_RUNTIME_DIR", "<nil>"},
		{"HOME", "cgroup manager systemd: no session bus; set XDG_RUNTIME_DIR or DBUS_SESSION_BUS_ADDRESS, or use the manager cgroupfs"},
	} {
		getenv := func(name string) string {
			if name == tt.set || name == "PATH" {
				return "x"
			}
			return ""
		}
		if err := findUserBus(getenv); fmt.Sprint(err) != tt.wantErr {
			t.Errorf("with %s: %v, want %s", tt.set, err, tt.wantErr)
		}
		if !slices.Contains(ownVariables, tt.set) {
			t.Errorf("%s does not outlive the start from a sealed copy", tt.set)
		}
	}
}
