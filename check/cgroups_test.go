package check

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestFindHierarchies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, mounts, v1, v2 string }{
		{"v2", "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n", "", "/sys/fs/cgroup"},
		{"v1", "tmpfs /sys/fs/cgroup tmpfs ro 0 0\ncgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n" +
			"cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,name=systemd 0 0\ncgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n",
			"cpu=/sys/fs/cgroup/cpu,cpuacct pids=/sys/fs/cgroup/pids", ""},
		{"hybrid", "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n",
			"memory=/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"},
		{"those of a container", "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\ncgroup /b/rootfs/sys/fs/cgroup/memory cgroup ro,memory 0 0\n" +
			"cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup2 /b/rootfs/sys/fs/cgroup cgroup2 ro 0 0\n",
			"memory=/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"},
		{"none", "proc /proc proc rw 0 0\nshort\n", "", ""},
	} {
		h := findHierarchies(tt.mounts)
		var v1 []string
		for _, controller := range slices.Sorted(maps.Keys(h.v1)) {
			v1 = append(v1, controller+"="+h.v1[controller])
		}
		if strings.Join(v1, " ") != tt.v1 || h.v2 != tt.v2 {
			t.Errorf("%s: got %v, %q", tt.name, v1, h.v2)
		}
	}
}

func TestOwnCgroup(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0::/user.slice/user-1000.slice\n": "/user.slice/user-1000.slice",
		"12:pids:/x\n0::/\n":               "/",
		"12:pids:/x\n":                     "/",
	} {
		if got := ownCgroup(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestMissingControllers(t *testing.T) {
	t.Parallel()
	want(t, missingControllers([]string{"pids", "memory"}, []string{"memory", "pids"}, true), OK, "memory pids", "")
	want(t, missingControllers([]string{"pids"}, []string{"memory", "pids"}, false), Missing, "no memory;", "cgroup_enable=memory")
	want(t, missingControllers(nil, []string{"memory", "pids"}, true), Missing, "no memory, pids;", "Delegate=")
}

func TestDelegated(t *testing.T) {
	t.Parallel()
	c := onHost(nil, nil)
	want(t, c.delegated("/proc/nowhere"), Bad, "/proc/nowhere can't be written to", "--cgroup-manager disabled")
	c.Rootless = true
	want(t, c.delegated("/proc/nowhere"), Missing, "without limits", "Delegate=yes")
}

func TestSystemd(t *testing.T) {
	t.Parallel()
	none := onHost(nil, nil)
	want(t, none.systemd(), Missing, "does not run here", "cgroupfs")
	none.Systemd = true
	want(t, none.systemd(), Bad, "does not run here", "cgroupfs")
	there := onHost(map[string]string{"/run/systemd/system/x": ""}, nil)
	want(t, there.systemd(), OK, "", "")
	there.Rootless = true
	want(t, there.systemd(), Missing, "no user manager", "loginctl enable-linger 1000")
	there.getenv = func(name string) string { return map[string]string{"DBUS_SESSION_BUS_ADDRESS": "unix:path=/x"}[name] }
	want(t, there.systemd(), OK, "", "")
}

func TestSubIDs(t *testing.T) {
	t.Parallel()
	const path = "/etc/subuid"
	want(t, subIDs(path, "other:1:2\nme:100000:65536\n", "me", "1000"), OK, "65536 ids", "")
	want(t, subIDs(path, "1000:100000:65536\n", "me", "1000"), OK, "65536 ids", "")
	want(t, subIDs(path, "me:100000:1000\nme:300000:64536\n", "me", "1000"), OK, "65536 ids", "")
	want(t, subIDs(path, "me:100000:1000\n", "me", "1000"), Missing, "1000 ids for user me", "me:100000:65536 >>/etc/subuid")
	want(t, subIDs(path, "other:100000:65536\n", "me", "1000"), Missing, "no line for user me", "me:100000:65536 >>/etc/subuid")
	want(t, subIDs(path, "", "me", "1000"), Missing, "no line", "me:")
}

func TestRuntimeDir(t *testing.T) {
	t.Parallel()
	for dir, status := range map[string]Status{"": Missing, "/proc/nowhere": Missing, t.TempDir(): OK} {
		c := onHost(nil, map[string]string{"XDG_RUNTIME_DIR": dir})
		if r := c.runtimeDir(); r.Status != status {
			t.Errorf("%q: %+v, want %s", dir, r, status)
		}
	}
}
