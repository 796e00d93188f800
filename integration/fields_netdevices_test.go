package integration

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// moveDevice asks for a device of the host.
func moveDevice(hostName, name string) edit {
	return func(spec *specs.Spec) {
		if spec.Linux.NetDevices == nil {
			spec.Linux.NetDevices = map[string]specs.LinuxNetDevice{}
		}
		spec.Linux.NetDevices[hostName] = specs.LinuxNetDevice{Name: name}
	}
}

// vethPair makes two devices that are tied to each other, until the test ends.
func (l *lab) vethPair(name string) (moving, staying string) {
	l.t.Helper()
	moving, staying = name+"m", name+"s"
	l.helper("ip", "link", "add", moving, "type", "veth", "peer", "name", staying)
	l.t.Cleanup(func() {
		// Either may be gone with the container that had the other.
		_, _ = suite.reaper.output(exec.Command("ip", "link", "delete", staying))
	})
	l.helper("ip", "link", "set", staying, "up")
	return moving, staying
}

// TestNetDevices moves one end of a pair into the container and talks to it
// from the other.
func TestNetDevices(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	moving, staying := l.vethPair("eggnd1")
	l.helper("ip", "address", "add", "10.99.1.1/24", "dev", staying)
	l.helper("ip", "address", "add", "10.99.1.2/24", "brd", "+", "dev", moving)
	l.helper("ip", "address", "add", "10.99.2.2/32", "scope", "link", "dev", moving)
	l.helper("ip", "address", "add", "fd00:99::2/64", "nodad", "dev", moving)
	l.helper("ip", "address", "add", "fd00:99::3/64", "valid_lft", "1000", "preferred_lft", "900", "dev", moving)
	l.helper("ip", "link", "set", moving, "mtu", "1400", "up")

	c := l.create(sh("exec sleep 1000"), moveDevice(moving, "eth0"))
	inside := func(args ...string) string {
		return l.helper("nsenter", append([]string{"--net=/proc/" + itoa(c.pid) + "/ns/net", "ip"}, args...)...)
	}
	link := inside("-o", "link", "show", "dev", "eth0")
	contains(t, "link", link, "mtu 1400")
	contains(t, "link", link, ",UP")
	addresses := inside("-o", "address", "show", "dev", "eth0", "scope", "global")
	contains(t, "addresses", addresses, "10.99.1.2/24 brd 10.99.1.255")
	contains(t, "addresses", addresses, "fd00:99::2/64")
	for _, unwanted := range []string{"10.99.2.2", "fd00:99::3"} {
		if all := inside("-o", "address", "show"); strings.Contains(all, unwanted) {
			t.Errorf("addresses %q: %s is not global or not permanent", all, unwanted)
		}
	}
	if all := l.helper("ip", "-o", "link", "show"); strings.Contains(all, moving) {
		t.Errorf("%s is still on the host: %s", moving, all)
	}
	l.helper("/bin/busybox", "ping", "-c", "1", "-W", "5", "10.99.1.2")
	l.wantSilent(l.call("delete", "--force", c.id))
}

// TestNetDeviceNames moves without a new name, and with one that the kernel
// completes.
func TestNetDeviceNames(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	first, _ := l.vethPair("eggnd2")
	second, _ := l.vethPair("eggnd3")
	third, _ := l.vethPair("eggnd4")
	got := l.output("cd /sys/class/net && echo $(ls | grep -v '^sit\\|^tunl\\|^gre\\|^erspan\\|^ip\\|^teql')",
		moveDevice(first, ""), moveDevice(second, "net%d"), moveDevice(third, "net%d"))
	equal(t, "devices", got, "eggnd2m lo net0 net1")
}

func TestNetDeviceErrors(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	for _, tt := range []struct {
		name string
		edit func(moving string) edit
		want string
	}{
		{"no such device", func(string) edit { return moveDevice("eggnone", "") }, `linux.netDevices "eggnone": no such device on the host`},
		{"name taken", func(moving string) edit { return moveDevice(moving, "lo") }, `name "lo": taken by a device of the container`},
		{"device that stays", func(string) edit { return moveDevice("lo", "lo2") }, `linux.netDevices "lo": move: invalid argument`},
		{"with a policy", func(moving string) edit {
			return both(moveDevice(moving, ""), domains("example.org"))
		}, `linux.netDevices gives the container`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, rt)
			moving, _ := l.vethPair("eggnd5")
			id := l.newID()
			b := l.bundle(id, sh("exit 0"), tt.edit(moving))
			l.wantFail(l.call("create", "--bundle", b.dir, id), tt.want)
			l.wantGone(id)
			l.helper("ip", "link", "show", moving) // still here
		})
	}
}
