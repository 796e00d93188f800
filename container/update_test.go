package container

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"testing"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// failingCgroup answers one Set after the other with the errors, and those after
// with none.
type failingCgroup struct {
	fakeCgroup
	errs []error
}

func (f *failingCgroup) Set(r *cgroups.Resources) error {
	_ = f.fakeCgroup.Set(r)
	if len(f.errs) == 0 {
		return nil
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	return err
}

func TestSetLimits(t *testing.T) {
	t.Parallel()
	const prefix = "cgroup limits: "
	change, err := changeLimits(
		&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr(int64(5))}, Devices: []specs.LinuxDeviceCgroup{{Access: "rwm"}}},
		&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr(int64(7))}, Devices: []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	apply := &cgroups.Resources{PidsLimit: ptr(int64(7)), SkipDevices: true}
	undo := &cgroups.Resources{PidsLimit: ptr(int64(5)), SkipDevices: true}
	missing := &os.PathError{Op: "openat2", Path: "/cgroup/pids.max", Err: os.ErrNotExist}
	for _, tt := range []struct {
		name string
		errs []error
		want string
		sets []*cgroups.Resources
	}{
		{"good", nil, "<nil>", []*cgroups.Resources{apply}},
		{"refused", []error{errors.New("no")}, prefix + "no", []*cgroups.Resources{apply, undo}},
		{"refused for good", []error{errors.New("no"), errors.New("never")}, prefix + "no; and then, setting back: " + prefix + "never", []*cgroups.Resources{apply, undo}},
		// podman takes "no such file or directory" for a program that is missing.
		{"no controller", []error{missing, missing}, prefix + `no file "pids.max" in the cgroup; its controller is not enabled there`, []*cgroups.Resources{apply, undo}},
	} {
		m := &failingCgroup{errs: tt.errs}
		err := setLimits(m, change.apply)
		if err != nil {
			err = takeBack(m, change, err)
		}
		if fmt.Sprint(err) != tt.want {
			t.Errorf("%s: error %v, want %s", tt.name, err, tt.want)
		}
		if !reflect.DeepEqual(m.sets, tt.sets) {
			t.Errorf("%s: limits", tt.name)
			for _, set := range m.sets {
				t.Logf("%+v", set)
			}
		}
	}
}

func TestUpdateRdt(t *testing.T) {
	t.Parallel()
	root := fakeResctrl(t)
	for _, tt := range []struct{ l3, mb, want string }{
		{"L3:0=f", "", "L3:0=f\n"},
		{"", "MB:0=20", "MB:0=20\n"},
		{"L3:0=f", "MB:0=20", "L3:0=f\nMB:0=20\n"},
	} {
		class := rdtClassOf(root, "c1", &specs.LinuxIntelRdt{ClosID: "gold"})
		if err := class.update(tt.l3, tt.mb); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(root + "/gold/schemata")
		if err != nil || string(got) != tt.want {
			t.Errorf("schemata %q, want %q, %v", got, tt.want, err)
		}
	}
	err := rdtClassOf(root, "c1", &specs.LinuxIntelRdt{ClosID: "lead"}).update("L3:0=f", "")
	if want := "linux.intelRdt: open " + root + "/lead/schemata: no such file or directory (ok)"; fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
