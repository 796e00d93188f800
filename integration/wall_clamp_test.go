package integration

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// clampedMask has the bits of the capabilities that a container with a policy
// may have: docker's default without NET_RAW.
const clampedMask = 1<<0 | 1<<1 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<18 | 1<<27 | 1<<29 | 1<<31

// everyCapability is [privileged] with those that the clamp leaves.
func everyCapability(spec *specs.Spec) {
	privileged(spec)
	for _, set := range []*[]string{
		&spec.Process.Capabilities.Bounding, &spec.Process.Capabilities.Permitted, &spec.Process.Capabilities.Effective,
		&spec.Process.Capabilities.Inheritable, &spec.Process.Capabilities.Ambient,
	} {
		*set = append(*set, "CAP_NET_BIND_SERVICE", "CAP_AUDIT_WRITE")
	}
}

// unconfined is a config.json as of a privileged container with
// --security-opt unmask=ALL, without its devices.
func unconfined(spec *specs.Spec) {
	everyCapability(spec)
	spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths, spec.Linux.Seccomp = nil, nil, nil
	for i := range spec.Mounts {
		m := &spec.Mounts[i]
		if m.Destination == "/sys" {
			m.Options = []string{"nosuid", "noexec", "nodev", "rw"}
		}
	}
}

// TestClampCapabilities asks for every capability in all five sets.
func TestClampCapabilities(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	const clamped = clampedMask
	script := capabilityMasks
	open := l.sleeper(unconfined)
	for name, got := range map[string]string{"create": l.output(script, unconfined), "exec": open.processOutput(sh(script), everyCapability)} {
		if strings.TrimSpace(got) == strings.TrimSpace(masks(clamped, clamped, clamped, clamped, clamped)) || !strings.Contains(got, "3") {
			t.Errorf("control, %s: %s", name, got)
		}
	}
	want := strings.TrimSpace(masks(clamped, clamped, clamped, clamped, clamped))
	equal(t, "create", strings.TrimSpace(l.output(script, unconfined, domains(allowedName))), want)
	c := l.sleeper(unconfined, domains(allowedName))
	equal(t, "exec", strings.TrimSpace(c.processOutput(sh(script), everyCapability)), want)
	kill := uint64(1 << 5)
	few := l.sleeper(domains(allowedName))
	got := few.execOutput("grep CapEff /proc/self/status | cut -f2", "--cap", "CAP_SYS_ADMIN", "--cap", "CAP_NET_RAW", "--cap", "CAP_KILL")
	equal(t, "exec by flags", got, hex16(kill|1<<10|1<<29))
	equal(t, "no_new_privs is not forced", c.processOutput(sh("grep NoNewPrivs /proc/self/status | cut -f2"), privileged), "0")
}

// TestClampFiles writes, as root without need of a capability, where the kernel
// takes settings.
func TestClampFiles(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	second := addMounts(
		specs.Mount{Destination: "/proc2", Type: "proc", Source: "proc"},
		specs.Mount{Destination: "/sys2", Type: "sysfs", Source: "sysfs"},
		specs.Mount{Destination: "/sys3", Source: "/sys", Options: []string{"rbind", "rw"}},
		specs.Mount{Destination: "/setting", Source: "/proc/sys/net/ipv4/conf/all/route_localnet", Options: []string{"bind"}},
	)
	const script = `for f in /proc/sys/net/ipv4/conf/all/route_localnet /proc2/sys/net/ipv4/conf/all/route_localnet /setting; do
		echo 1 2>/dev/null >$f && echo "wrote $f"; done
		for f in /sys /sys2 /sys3; do { true >>$f/class/net/lo/ifalias; } 2>/dev/null && echo "may write $f"; done; true`
	const all = "wrote /proc/sys/net/ipv4/conf/all/route_localnet\nwrote /proc2/sys/net/ipv4/conf/all/route_localnet\nwrote /setting\nmay write /sys\nmay write /sys2\nmay write /sys3"
	open := l.sleeper(unconfined, second)
	equal(t, "control, create", l.output(script, unconfined, second, quiet), all)
	equal(t, "control, exec", open.processOutput(sh(script), quiet, privileged), all)
	walled := l.sleeper(unconfined, second, domains(allowedName))
	equal(t, "create", l.output(script, unconfined, second, quiet, domains(allowedName)), "")
	equal(t, "exec", walled.processOutput(sh(script), quiet, privileged), "")
	// What the container has of its own stays writable.
	const own = "echo 7 >/proc/self/oom_score_adj && cat /proc/self/oom_score_adj"
	equal(t, "its own", walled.execOutput(own), "7")
}

// TestClampRefused is what create refuses, each beside its harmless neighbour,
// which runs, and itself without a policy, which runs too.
func TestClampRefused(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	rule := func(kind string, major, minor int64) edit {
		return func(spec *specs.Spec) { allowDevice(spec, kind, major, minor, "rwm") }
	}
	device := func(path, kind string, major, minor int64) edit {
		return func(spec *specs.Spec) {
			spec.Linux.Devices = append(spec.Linux.Devices, specs.LinuxDevice{Path: path, Type: kind, Major: major, Minor: minor})
		}
	}
	bind := func(source string) edit {
		return addMounts(specs.Mount{Destination: "/host", Source: source, Options: []string{"rbind"}})
	}
	for _, tt := range []struct {
		name              string
		hostile, harmless edit
		want              []string
	}{
		{"sysctl", sysctl("net.ipv4.ip_forward", "1"), sysctl("net.ipv4.ip_unprivileged_port_start", "80"), []string{"net/ipv4/ip_forward", "drop --sysctl"}},
		{"every device", func(spec *specs.Spec) {
			spec.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
		}, rule("c", 1, 3), []string{"linux.resources.devices", "without --privileged"}},
		{"rule for a disk", rule("b", 7, 0), rule("c", 10, 200), []string{"b 7:0"}},
		{"node of a disk", device("/dev/disk", "b", 7, 0), device("/dev/mynull", "c", 1, 3), []string{`"/dev/disk"`, "--device"}},
		{"memory", device("/dev/mem", "c", 1, 1), device("/dev/net/tun", "c", 10, 200), []string{`"/dev/mem"`}},
		{"a device, bound", bind("/dev/kmsg"), bind("/dev/zero"), []string{"/dev/kmsg"}},
		{"/dev", bind("/dev"), bind("/dev/shm"), []string{"devices of the host"}},
		{"terminals", bind("/dev/pts"), bind("/dev/shm"), []string{"terminal"}},
		{"/proc", bind("/proc"), bind("/proc/uptime"), []string{"processes of the host"}},
		{"/", bind("/"), bind("/etc"), []string{"services of the host"}},
		{"/run", bind("/run"), bind("/etc"), []string{"services of the host"}},
		{"/var/run", bind("/var/run"), bind("/etc"), []string{"services of the host"}},
		{"/tmp", bind("/tmp"), bind("/etc"), []string{"services of the host"}},
		{"/var", bind("/var"), bind("/etc"), []string{"services of the host"}},
		{"the root by a magic link", bind("/proc/self/root"), bind("/etc"), []string{"services of the host"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, rt)
			id := l.newID()
			b := l.bundle(id, sh("exit 0"), tt.hostile, domains(allowedName))
			l.wantFail(l.call("create", "--bundle", b.dir, id), append(tt.want, "cannot enforce domains")...)
			l.wantGone(id)
			equal(t, "without a policy", l.output("echo ok", tt.hostile), "ok")
			equal(t, "the neighbour", l.output("echo ok", tt.harmless, domains(allowedName)), "ok")
		})
	}
}

// TestClampPIDNamespace joins the pid namespace of a container without a policy:
// its processes can be looked into by name, from /proc. Behind the same wall that
// is no harm.
func TestClampPIDNamespace(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	other := l.sleeper()
	ns := func(kind specs.LinuxNamespaceType, name string) edit {
		return withNamespace(kind, "/proc/"+itoa(other.pid)+"/ns/"+name)
	}
	pid, net := ns(specs.PIDNamespace, "pid"), ns(specs.NetworkNamespace, "net")
	const look = "ls -d /proc/1/root/bin"
	id := l.newID()
	b := l.bundle(id, sh(look), pid, domains(allowedName))
	l.wantFail(l.call("create", "--bundle", b.dir, id), "cannot enforce domains", "pid namespace", "--pid")
	equal(t, "without a policy", l.output(look, pid), "/proc/1/root/bin")
	equal(t, "in the same network namespace", l.output(look, pid, net, domains(allowedName)), "/proc/1/root/bin")
}

// TestClampPIDNamespaceJoined is the other way round: who joins the pid namespace
// of a container with a policy could be made to connect by that.
func TestClampPIDNamespaceJoined(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	for _, tt := range []struct {
		other  *container
		refuse bool
	}{{l.sleeper(), false}, {l.sleeper(domains(allowedName)), true}} {
		pid := withNamespace(specs.PIDNamespace, "/proc/"+itoa(tt.other.pid)+"/ns/pid")
		net := withNamespace(specs.NetworkNamespace, "/proc/"+itoa(tt.other.pid)+"/ns/net")
		if tt.refuse {
			id := l.newID()
			b := l.bundle(id, sh("exit 0"), pid)
			l.wantFail(l.call("create", "--bundle", b.dir, id), "cannot enforce domains of container "+tt.other.id, "--pid")
			l.wantGone(id)
		} else {
			equal(t, "without a policy", l.output("echo ok", pid), "ok")
		}
		equal(t, "in the same network namespace", l.output("echo ok", pid, net), "ok")
	}
}

// handed is a descriptor of the host, and a way out by it.
type handed struct {
	name     string
	file     *os.File
	way      []string
	harmless bool
}

// handedIn opens one of each kind.
func (l *lab) handedIn(c *canary) []handed {
	t := l.t
	t.Helper()
	file := func(fd int, err error) *os.File {
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "handed")
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	open := func(path string, flags int) *os.File {
		return file(unix.Open(path, flags|unix.O_CLOEXEC, 0))
	}
	const cloexec = unix.SOCK_CLOEXEC
	listener := file(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|cloexec, 0))
	if err := unix.Listen(int(listener.Fd()), 1); err != nil {
		t.Fatal(err)
	}
	pair := func(kind int) *os.File {
		fds, err := unix.Socketpair(unix.AF_UNIX, kind|cloexec, 0)
		file(fds[1], err)
		return file(fds[0], err)
	}
	inSecret := filepath.Join(l.dir, "secret")
	writeFile(t, inSecret, "fd ok", 0o644)
	return []handed{
		{"listening socket", listener, []string{"turn", canaryIPv4 + ":" + c.port}, false},
		{"UDP socket", file(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|cloexec, 0)), []string{"send", canaryIPv4 + ":" + c.port}, false},
		{"datagrams of a pair", pair(unix.SOCK_DGRAM), []string{"send", "@" + c.unixName + "-packets"}, false},
		{"directory", open("/proc", unix.O_RDONLY|unix.O_DIRECTORY), []string{"climb", ".." + inSecret}, false},
		{"directory, by name only", open("/proc", unix.O_PATH), []string{"climb", ".." + inSecret}, false},
		{"namespace", open("/proc/self/ns/net", unix.O_RDONLY), nil, false},
		{"setting", open("/proc/sys/net/ipv4/conf/all/route_localnet", unix.O_RDONLY), []string{"reopen", ""}, false},
		{"pidfd", file(unix.PidfdOpen(os.Getpid(), 0)), nil, false},
		{"device", open("/dev/kmsg", unix.O_WRONLY), nil, false},
		{"file", open(inSecret, unix.O_RDWR), []string{"reopen", ""}, true},
		{"stream of a pair", pair(unix.SOCK_STREAM), nil, true},
		{"event counter", file(unix.Eventfd(0, unix.EFD_CLOEXEC)), nil, true},
		{"null", open("/dev/null", unix.O_RDWR), []string{"reopen", ""}, true},
	}
}

// TestClampDescriptors hands each to create and exec by --preserve-fds, and as
// the standard input. Without a policy they work.
func TestClampDescriptors(t *testing.T) {
	l, c := newLab(t, eggrunOnly(t)), newCanary(t)
	c.packets(t, "unixgram", "@"+c.unixName+"-packets")
	open, walled := l.sleeper(withProbe, unconfined), l.sleeper(withProbe, domains(allowedName))
	for _, h := range l.handedIn(c) {
		t.Run(h.name, func(t *testing.T) {
			command := []string{"/bin/echo", "fd ok"}
			if h.way != nil {
				command = []string{"/probe", "fd", h.way[0], "3", h.way[1]}
			}
			given := invocation{args: []string{"--preserve-fds", "1"}, extraFiles: []*os.File{h.file}}
			executed := func(c *container, in invocation) result {
				in.args = c.execArgs(in.args, command...)
				return c.invoke(in)
			}
			contains(t, "control, create", l.runWith(given, args(command...), withProbe, unconfined).stdout, "fd ok")
			contains(t, "control, exec", executed(open, given).stdout, "fd ok")
			before := c.visits.Load()
			created := l.runWith(given, args(command...), withProbe, domains(allowedName))
			asInput := l.runWith(invocation{stdin: h.file}, sh("echo fd ok"), domains(allowedName))
			execd := executed(walled, given)
			execdInput := walled.invoke(invocation{args: walled.execArgs(nil, "/bin/echo", "fd ok"), stdin: h.file})
			for name, r := range map[string]result{"create": created, "create, as input": asInput, "exec": execd, "exec, as input": execdInput} {
				if h.harmless {
					contains(t, name+" ("+r.stderr+")", r.stdout, "fd ok")
					continue
				}
				equal(t, "output of "+name, r.stdout, "")
				contains(t, name, r.stderr, "cannot enforce domains: descriptor ")
			}
			equal(t, "visits", c.visits.Load(), before)
		})
	}
	// What nobody hands over is no reason.
	files := []*os.File{l.handedIn(c)[0].file}
	r := l.runWith(invocation{extraFiles: files}, sh("echo fd ok"), domains(allowedName))
	equal(t, "not handed over ("+r.stderr+")", r.stdout, "fd ok\n")
}

// TestClampRacingVolume exchanges the source of a mount, which lies in a volume
// of another container, for a link to a directory with a socket. What is mounted
// must be what was looked at.
func TestClampRacingVolume(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	volume, sockets := makeDir(t, filepath.Join(l.dir, "volume")), makeDir(t, filepath.Join(l.dir, "sockets"))
	listener, err := net.Listen("unix", filepath.Join(sockets, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	real, link := makeDir(t, filepath.Join(volume, "x")), filepath.Join(volume, "y")
	if err := os.Symlink(sockets, link); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, real, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	}()
	mount := addMounts(specs.Mount{Destination: "/volume", Source: real, Options: []string{"bind"}})
	count := map[string]int{}
	for range 60 {
		id := l.newID()
		r := l.call("run", "--bundle", l.bundle(id, sh("ls /volume"), mount, domains(allowedName)).dir, id)
		switch {
		case strings.Contains(r.stderr, "replaced while it was looked at"):
			count["replaced"]++
		case strings.Contains(r.stderr, "is in it"):
			count["refused"]++
		case r.code == 0 && r.stdout == "":
			count["mounted"]++
		default:
			t.Errorf("exit %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
		}
	}
	close(stop)
	<-done
	// The control: there were tries that would have succeeded.
	if count["replaced"] == 0 || count["refused"] == 0 {
		t.Errorf("outcomes: %v", count)
	}
}
