package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestDefaultDevices are the ones that every container gets.
func TestDefaultDevices(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		got := l.output(`for d in null zero full random urandom tty; do stat -c '%n %F %t:%T %a %u:%g' /dev/$d; done
for s in fd stdin stdout stderr ptmx; do echo $s $(readlink /dev/$s); done`)
		equal(t, "devices", got, strings.Join([]string{
			"/dev/null character special file 1:3 666 0:0",
			"/dev/zero character special file 1:5 666 0:0",
			"/dev/full character special file 1:7 666 0:0",
			"/dev/random character special file 1:8 666 0:0",
			"/dev/urandom character special file 1:9 666 0:0",
			"/dev/tty character special file 5:0 666 0:0",
			"fd /proc/self/fd",
			"stdin /proc/self/fd/0",
			"stdout /proc/self/fd/1",
			"stderr /proc/self/fd/2",
			"ptmx pts/ptmx",
		}, "\n"))
		equal(t, "use", l.output("echo x >/dev/null; head -c 4 /dev/zero | od -An -tx1; head -c 8 /dev/urandom | wc -c"), " 00 00 00 00\n8")
	})
}

func TestExtraDevices(t *testing.T) {
	t.Parallel()
	mode, id := os.FileMode(0o640), uint32(1000)
	device := func(path, kind string, major, minor int64) specs.LinuxDevice {
		return specs.LinuxDevice{Path: path, Type: kind, Major: major, Minor: minor, FileMode: &mode, UID: &id, GID: &id}
	}
	each(t, func(t *testing.T, l *lab) {
		got := l.output("stat -c '%n %F %t:%T %a %u:%g' /dev/mynull /dev/sub/blk /dev/fifo; echo x >/dev/mynull && echo usable",
			asUser(1000, 1000), func(spec *specs.Spec) {
				spec.Linux.Devices = []specs.LinuxDevice{device("/dev/mynull", "c", 1, 3), device("/dev/sub/blk", "b", 7, 99), {Path: "/dev/fifo", Type: "p", FileMode: &mode}}
				allowDevice(spec, "c", 1, 3, "rwm")
				allowDevice(spec, "b", 7, 99, "rwm")
			})
		equal(t, "devices", got, strings.Join([]string{
			"/dev/mynull character special file 1:3 640 1000:1000",
			"/dev/sub/blk block special file 7:63 640 1000:1000",
			"/dev/fifo fifo 0:0 640 0:0",
			"usable",
		}, "\n"))
	})
}

func allowDevice(spec *specs.Spec, kind string, major, minor int64, access string) {
	spec.Linux.Resources.Devices = append(spec.Linux.Resources.Devices,
		specs.LinuxDeviceCgroup{Allow: true, Type: kind, Major: &major, Minor: &minor, Access: access})
}

// TestDeviceCgroup makes and opens a device that the rules do not name. Its
// control is the same container with the rule.
func TestDeviceCgroup(t *testing.T) {
	t.Parallel()
	const script = "mknod /tmp/kmsg c 1 11 2>/dev/null && head -c 1 /tmp/kmsg >/dev/null 2>&1 && echo open || echo refused"
	each(t, func(t *testing.T, l *lab) {
		mknod := addCapabilities("CAP_MKNOD", "CAP_SYSLOG", "CAP_SYS_ADMIN")
		equal(t, "without a rule", l.output(script, mknod), "refused")
		equal(t, "with a rule", l.output(script, mknod, func(spec *specs.Spec) { allowDevice(spec, "c", 1, 11, "rwm") }), "open")
	})
}

// TestDevicesDoNotFollowLinks is CVE-2026-41579: /dev of the image is a link
// to a directory of the host.
func TestDevicesDoNotFollowLinks(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		outside := makeDir(t, filepath.Join(l.dir, "outside"))
		id := l.newID()
		b := l.bundle(id, sh("exit 0"), func(spec *specs.Spec) {
			kept := spec.Mounts[:0]
			for _, mount := range spec.Mounts {
				if !strings.HasPrefix(mount.Destination, "/dev") {
					kept = append(kept, mount)
				}
			}
			spec.Mounts = kept
		})
		if err := os.Remove(filepath.Join(b.rootfs, "dev")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, filepath.Join(b.rootfs, "dev")); err != nil {
			t.Fatal(err)
		}
		_ = l.call("run", "--bundle", b.dir, id)
		if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
			t.Errorf("outside the root file system: %v (%v), want nothing", entries, err)
		}
	})
}
