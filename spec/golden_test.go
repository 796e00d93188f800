package spec

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"eggrun/policy"
	"eggrun/sandbox"

	"github.com/opencontainers/runtime-spec/specs-go"
)

var update = flag.Bool("update", false, "rewrite testdata/*.plan.json")

const testBundle = "/run/bundle"

// golden is a plan with the fields that are not sent to init, the system call
// rules of engines counted instead of listed.
type golden struct {
	Plan *Plan
	Host struct {
		Hooks        specs.Hooks
		CgroupsPath  string
		TimeOffsets  []TimeOffset `json:",omitempty"`
		Resources    *specs.LinuxResources
		Seccomp      *specs.LinuxSeccomp
		SeccompRules int
		NetDevices   []NetDevice          `json:",omitempty"`
		IntelRdt     *specs.LinuxIntelRdt `json:",omitempty"`
	}
}

func goldenOf(plan *Plan) *golden {
	g := &golden{Plan: plan}
	g.Host.Hooks = plan.Hooks
	g.Host.CgroupsPath = plan.CgroupsPath
	g.Host.TimeOffsets = plan.TimeOffsets
	g.Host.Resources = plan.Resources
	g.Host.NetDevices, g.Host.IntelRdt = plan.NetDevices, plan.IntelRdt
	if plan.Seccomp != nil {
		profile := *plan.Seccomp
		g.Host.SeccompRules = len(profile.Syscalls)
		profile.Syscalls = nil
		g.Host.Seccomp = &profile
	}
	return g
}

func load(t *testing.T, name string) *specs.Spec {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".config.json"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestTranslateGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.config.json")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no inputs: %v", err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".config.json")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := Translate(load(t, name), testBundle, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(goldenOf(plan), "", " ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			path := filepath.Join("testdata", name+".plan.json")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("the plan differs from %s; look at the change with -update and git diff\n%s", path, got)
			}
		})
	}
}

// What init gets must be what create decided.
func TestPlanSurvivesJSON(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"everything", "podman", "buildah", "runc-1.5-rootless"} {
		plan, err := Translate(load(t, name), testBundle, nil)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(plan)
		if err != nil {
			t.Fatal(err)
		}
		var got Plan
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		want := *plan
		want.Hooks, want.CgroupsPath, want.Resources, want.Seccomp = specs.Hooks{}, "", nil, nil
		again, err := json.Marshal(&got)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, data) {
			t.Errorf("%s: sent twice\n%s\nwant\n%s", name, again, data)
		}
		if !reflect.DeepEqual(got.Mounts, want.Mounts) || !reflect.DeepEqual(got.Config, want.Config) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestTranslatePolicy(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		pol         *policy.Policy
		wantNeed    sandbox.NetworkNeed
		wantDomains []string
	}{
		{"no policy", nil, sandbox.NetworkFull, nil},
		{"nothing", &policy.Policy{}, sandbox.NetworkNone, nil},
		{
			"a domain", &policy.Policy{Domains: []string{"example.org"}, NetworkNeed: sandbox.NetworkHTTPS},
			sandbox.NetworkHTTPS, []string{"example.org"},
		},
	} {
		plan, err := Translate(minimal(), testBundle, test.pol)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Config.NetworkNeed != test.wantNeed || !reflect.DeepEqual(plan.Config.Domains, test.wantDomains) {
			t.Errorf("%s: got %v %v, want %v %v", test.name,
				plan.Config.NetworkNeed, plan.Config.Domains, test.wantNeed, test.wantDomains)
		}
	}
}

// minimal is a config.json with no more than Translate demands.
func minimal() *specs.Spec {
	return &specs.Spec{
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{Args: []string{"sh"}, Cwd: "/"},
		Linux:   &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.MountNamespace}}},
	}
}
