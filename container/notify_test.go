package container

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"eggrun/internal/state"
	"eggrun/spec"

	"golang.org/x/sys/unix"
)

func TestPrepareNotify(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		socket string
		want   bool
	}{
		{"/run/systemd/notify", true},
		{"@abstract", true},
		{"", false},
		{"vsock:2:1234", false},
		{"relative", false},
	} {
		dir, err := state.Create(t.TempDir(), "c")
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		plan := &spec.Plan{Process: &spec.Process{Env: []string{"NOTIFY_SOCKET=/theirs", "A=1"}}}
		c := &creation{Container: Container{dir: dir}, options: &CreateOptions{NotifySocket: test.socket}, plan: plan}
		if err := c.prepareNotify(); err != nil {
			t.Fatal(err)
		}
		source := filepath.Join(dir.Path(), "notify")
		if _, err := os.Stat(source); (err == nil) != test.want {
			t.Errorf("%q: directory: %v", test.socket, err)
		}
		if !test.want {
			if len(plan.Mounts) != 0 || plan.Process.Env[0] != "NOTIFY_SOCKET=/theirs" {
				t.Errorf("%q: got %+v", test.socket, plan)
			}
			continue
		}
		if want := []string{"A=1", "NOTIFY_SOCKET=/run/notify/notify.sock"}; !slices.Equal(plan.Process.Env, want) {
			t.Errorf("%q: environment %q, want %q", test.socket, plan.Process.Env, want)
		}
		m := plan.Mounts[0]
		if m.Source != source || m.Target != "/run/notify" || !m.IsBind() || !m.ReadOnly || m.Set&unix.MOUNT_ATTR_RDONLY == 0 {
			t.Errorf("%q: mount %+v", test.socket, m)
		}
	}
	c := &creation{options: &CreateOptions{NotifySocket: "/run/x"}, plan: &spec.Plan{}}
	if err := c.prepareNotify(); err != nil || len(c.plan.Mounts) != 0 {
		t.Errorf("without a process: got %+v, %v", c.plan, err)
	}
}
