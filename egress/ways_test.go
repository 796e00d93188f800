package egress

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"eggrun/internal/need"
	"eggrun/policy"
	"eggrun/sandbox"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// TestWayOut has each kind of mount that leads to a process of the host, and
// its harmless neighbour.
func TestWayOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	makeDir := func(path string) string {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	listen := func(path string) string {
		path = filepath.Join(makeDir(path), "s")
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		return path
	}
	socket := listen("volume/deep")
	listen("far/1/2/3")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Dir(socket), link); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(makeDir("clean"), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	const services = "is where services of the host listen"
	for _, tt := range []struct{ source, want string }{
		{socket, "a socket of the host"},
		{filepath.Dir(socket), "is in it"},
		{link, "is in it"},
		{filepath.Join(dir, "volume"), "is in it"},
		{"/", services},
		{"/run", services},
		{"/var/run", services},
		{"/var/", services},
		{"/tmp/", services},
		{filepath.Join(dir, "clean"), ""},
		{file, ""},
		{filepath.Join(dir, "far"), ""}, // deeper than is looked
		{filepath.Join(dir, "missing"), ""},
		{"/proc", "processes of the host"},
		{"/proc/self/", "processes of the host"},
		{"/proc/self/root", services},
		{"/proc/self/root/run", services},
		{"/proc/uptime", ""},
		{"/dev", "the devices of the host"},
		{"/dev/pts", "a terminal of the host"},
		{"/dev/shm", ""},
	} {
		got, _, err := (&wayFinder{devices: readDeviceNames()}).wayOut(tt.source)
		if err != nil || (got == nil) != (tt.want == "") || got != nil && !strings.Contains(got.what, tt.want) {
			t.Errorf("%s: %+v, %v, want %q", tt.source, got, err, tt.want)
		}
	}
}

// TestWayBelow has a procfs mounted in a directory that is shared with all that is
// below it, as the root of a chroot on the host has.
func TestWayBelow(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	inner := filepath.Join(dir, "root/proc")
	for _, path := range []string{inner, filepath.Join(dir, "root2")} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("proc", inner, "proc", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(inner, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	link := filepath.Join(dir, "link")
	if err := os.Symlink("root", link); err != nil {
		t.Fatal(err)
	}
	pol, err := policyOf("good.example")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		source    string
		recursive bool
		want      bool
	}{
		{filepath.Join(dir, "root"), true, true},
		{link, true, true},
		{dir, true, true},
		{filepath.Join(dir, "root"), false, false},
		{filepath.Join(dir, "root2"), true, false},
		{filepath.Join(dir, "missing"), true, false},
		{"/sys", true, false}, // read-only with all of it
	} {
		plan := &spec.Plan{Mounts: []spec.Mount{{Mount: sandbox.Mount{Source: tt.source, Target: "/x"}, Recursive: tt.recursive}}}
		var g gaps
		if err := checkMounts(&g, plan, pol, Surroundings{}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(g.found, " "); strings.Contains(got, "a proc is mounted below it") != tt.want || !tt.want && got != "" {
			t.Errorf("%s: %q, want a gap: %v", tt.source, got, tt.want)
		}
	}
}

// TestAllowSockets names each of the ways in the policy, by any of its paths.
func TestAllowSockets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		allowed, source string
		want            bool
	}{
		{"", socket, false},
		{socket, socket, true},
		{socket, dir, true},
		{link + "/s", dir, true},
		{socket, link + "/s", true},
		{dir, dir, true},
		{dir, link, true},
		{dir, socket, false}, // a directory is named for what it has
		{socket + "2", socket, false},
		{"/run", "/run", true},
		{"/run", "/", false},
	} {
		way, _, err := (&wayFinder{allowed: []string{tt.allowed}, devices: readDeviceNames()}).wayOut(tt.source)
		if err != nil || (way == nil) != tt.want {
			t.Errorf("%s with %q: %+v, %v, want allowed %v", tt.source, tt.allowed, way, err, tt.want)
		}
	}
}

// TestNotifyDir has conmon's socket pass, and nothing else by its name.
func TestNotifyDir(t *testing.T) {
	t.Parallel()
	bundle := t.TempDir()
	dir := filepath.Join(bundle, "notify")
	for name, tt := range map[string]struct {
		listen, source, notify string
		want                   bool
	}{
		"podman's":          {"notify/notify.sock", dir, dir, true},
		"none is known":     {"notify/notify.sock", dir, "", false},
		"of another bundle": {"notify/notify.sock", dir, dir + "2", false},
		"beside it":         {"notify/other.sock", dir, dir, false},
		"below it":          {"notify/notify.sock/notify.sock", dir, dir, false},
		"itself":            {"notify/notify.sock", dir + "/notify.sock", dir, false},
		"the bundle":        {"notify/notify.sock", bundle, dir, false},
	} {
		socket := filepath.Join(bundle, tt.listen)
		if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		plan := &spec.Plan{Namespaces: ownNamespaces, Rootfs: t.TempDir()}
		plan.SetMounts([]spec.Mount{{Mount: sandbox.Mount{Source: tt.source, Target: "/run/notify"}}})
		err = Confine(plan, &policy.Policy{}, Surroundings{NotifyDir: tt.notify})
		if (err == nil) != tt.want {
			t.Errorf("%s: %v, want allowed %v", name, err, tt.want)
		}
		_ = listener.Close()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMaskSockets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	bind := func(source string) spec.Mount {
		return spec.Mount{Mount: sandbox.Mount{Source: source, Target: "/x"}}
	}
	tmpfs := spec.Mount{Mount: sandbox.Mount{Source: "/run", Target: "/run"}, Type: "tmpfs"}
	plan := &spec.Plan{Rootfs: t.TempDir()}
	plan.SetMounts([]spec.Mount{tmpfs, bind(dir + "/s"), bind("/dev/shm")})
	if err := Confine(plan, &policy.Policy{}, Surroundings{}); err == nil {
		t.Error("a socket passes")
	}
	plan.Namespaces = ownNamespaces
	if err := Confine(plan, &policy.Policy{MaskSockets: true}, Surroundings{}); err != nil {
		t.Error(err)
	}
	if len(plan.Mounts) != 2 || len(plan.Config.Mounts) != 1 || plan.Config.Mounts[0].Source != "/dev/shm" {
		t.Errorf("mounts %+v, in the view %+v", plan.Mounts, plan.Config.Mounts)
	}
	// Of a directory nobody would guess that it is not there.
	plan.SetMounts([]spec.Mount{bind(dir)})
	wantGap(t, Confine(plan, &policy.Policy{MaskSockets: true}, Surroundings{}), fmt.Sprintf(
		`cannot enforce domains: mount %q on "/x": the socket %q is in it; drop the volume, or name it in eggrun.allow-sockets`, dir, dir+"/s"))
}

var ownNamespaces = []spec.Namespace{{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.MountNamespace}}

// TestWays has one of each way that Confine knows, and all at once.
func TestWays(t *testing.T) {
	t.Parallel()
	rootfs := t.TempDir()
	for name, tt := range map[string]struct {
		change func(plan *spec.Plan)
		want   string
	}{
		"nothing":          {func(*spec.Plan) {}, ""},
		"harmless":         {func(plan *spec.Plan) { plan.Sysctl = map[string]string{"net/core/somaxconn": "1", "kernel/sem": "1"} }, ""},
		"no pid namespace": {func(plan *spec.Plan) { plan.Namespaces = ownNamespaces[1:] }, "host pid namespace requested"},
		"the caller's pid namespace": {func(plan *spec.Plan) {
			plan.Namespaces = []spec.Namespace{{Type: specs.PIDNamespace, Path: "/proc/self/ns/pid"}, {Type: specs.NetworkNamespace}}
		}, "host pid namespace requested"},
		"mount": {func(plan *spec.Plan) {
			plan.Mounts = []spec.Mount{{Mount: sandbox.Mount{Source: "/run", Target: "/host"}}}
		}, `mount "/run" on "/host"`},
		"a disk": {func(plan *spec.Plan) {
			plan.Mounts = []spec.Mount{{Mount: sandbox.Mount{Source: "/dev/sda", Target: "/x"}, Type: "ext4"}}
		}, `mount of type "ext4" on "/x"`},
		"an agent": {func(plan *spec.Plan) { plan.Seccomp = &specs.LinuxSeccomp{ListenerPath: "/x"} }, "linux.seccomp.listenerPath"},
		"rootfs":   {func(plan *spec.Plan) { plan.Rootfs = "/" }, `rootfs "/"`},
		"sysctl":   {func(plan *spec.Plan) { plan.Sysctl = map[string]string{"net/ipv4/ip_forward": "1"} }, `linux.sysctl "net/ipv4/ip_forward"`},
		"a device": {func(plan *spec.Plan) {
			plan.Devices = []spec.Device{{Path: "/dev/sda", Mode: unix.S_IFBLK | 0o600, Major: 8}}
		}, `linux.devices: "/dev/sda"`},
		"a rule": {func(plan *spec.Plan) {
			plan.Resources = &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}}
		}, "linux.resources.devices allows"},
	} {
		plan := &spec.Plan{Namespaces: ownNamespaces, Rootfs: rootfs}
		tt.change(plan)
		err := Confine(plan, &policy.Policy{}, Surroundings{})
		var enforcement *sandbox.EnforcementError
		if tt.want == "" && err != nil || tt.want != "" && (!errors.As(err, &enforcement) || !strings.HasPrefix(err.Error(), "cannot enforce domains: "+tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// holder is a process in namespaces of its own, as flags say.
func holder(t *testing.T, flags uintptr) int {
	t.Helper()
	return holderBy(t, "sleep", flags)
}

// holderBy is holder with the program sleep at a path.
func holderBy(t *testing.T, program string, flags uintptr) int {
	t.Helper()
	need.Root(t)
	cmd := exec.Command(program, "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// TestHostNetwork has namespaces that are the host's though they are not this
// process's.
func TestHostNetwork(t *testing.T) {
	t.Parallel()
	inContainer, onHost := holder(t, unix.CLONE_NEWNET|unix.CLONE_NEWPID), holder(t, unix.CLONE_NEWNET)
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	// Not written by this process, whose other children might hold it open.
	rootlessport := filepath.Join(t.TempDir(), "rootlessport")
	if err := exec.Command("cp", sleep, rootlessport).Run(); err != nil {
		t.Fatal(err)
	}
	forwarder := holderBy(t, rootlessport, unix.CLONE_NEWNET)
	for path, want := range map[string]bool{
		"":                  false,
		"/proc/self/ns/net": true,
		fmt.Sprintf("/proc/%d/ns/net", inContainer): false,
		fmt.Sprintf("/proc/%d/ns/net", onHost):      true,
		fmt.Sprintf("/proc/%d/ns/net", forwarder):   false,
	} {
		got, err := isHostNetwork(&spec.Plan{Namespaces: []spec.Namespace{{Type: specs.NetworkNamespace, Path: path}}})
		if err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", path, got, err, want)
		}
	}
}

// TestOthers looks for who is in a pid namespace.
func TestOthers(t *testing.T) {
	t.Parallel()
	ns := func(pid int, name string) string { return fmt.Sprintf("/proc/%d/ns/%s", pid, name) }
	first, second := holder(t, unix.CLONE_NEWNET|unix.CLONE_NEWPID), holder(t, unix.CLONE_NEWNET|unix.CLONE_NEWPID)
	for _, tt := range []struct {
		pid, network string
		want         bool
	}{
		{ns(first, "pid"), ns(first, "net"), false},
		{ns(first, "pid"), ns(second, "net"), true},
		{ns(first, "pid"), "", true},
		{"/proc/self/ns/pid", "/proc/self/ns/net", true}, // the holders are below it
	} {
		got, err := hasOthers(tt.pid, tt.network)
		if err != nil || got != tt.want {
			t.Errorf("%s with %q: %v, %v, want %v", tt.pid, tt.network, got, err, tt.want)
		}
	}
}
