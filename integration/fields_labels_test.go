package integration

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// needSelinux skips where the host has no SELinux, or has it and the test is
// about hosts without.
func needSelinux(t *testing.T, wanted bool) {
	t.Helper()
	what := "a host without SELinux"
	if wanted {
		what = "SELinux"
	}
	need(t, what, func() error {
		var fs unix.Statfs_t
		isOn := unix.Statfs("/sys/fs/selinux", &fs) == nil && fs.Type == unix.SELINUX_MAGIC
		if isOn != wanted {
			return errors.New("/sys/fs/selinux says otherwise")
		}
		return nil
	})
}

const (
	processLabel = "system_u:system_r:container_t:s0:c1,c2"
	mountLabel   = "system_u:object_r:container_file_t:s0:c1,c2"
)

func labels(spec *specs.Spec) {
	spec.Process.SelinuxLabel, spec.Linux.MountLabel = processLabel, mountLabel
}

// TestSelinuxLabels runs a program under a label, with a file system of another.
func TestSelinuxLabels(t *testing.T) {
	t.Parallel()
	needRoot(t)
	needSelinux(t, true)
	each(t, func(t *testing.T, l *lab) {
		got := l.output("cat /proc/self/attr/current; ls -dZ /dev /dev/shm /dev/mqueue", labels)
		contains(t, "label of the process", got, processLabel)
		equal(t, "file systems with the label", strings.Count(got, mountLabel), 3)
	})
}

// TestSelinuxOff ignores the labels of another host, as crun does.
func TestSelinuxOff(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	needSelinux(t, false)
	equal(t, "output", l.output("echo ran", labels), "ran")
}

func resctrl() (root string, err error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("resctrl"))
	if err == nil && len(mounts) == 0 {
		err = errors.New("no resctrl file system is mounted")
	}
	if err != nil {
		return "", err
	}
	return mounts[0].Mountpoint, nil
}

func intelRdt(rdt specs.LinuxIntelRdt) edit {
	return func(spec *specs.Spec) { spec.Linux.IntelRdt = &rdt }
}

// TestIntelRdt gives a container a class of its own.
func TestIntelRdt(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	var root string
	need(t, "resctrl", func() (err error) {
		root, err = resctrl()
		return err
	})
	c := l.create(sh("exec sleep 1000"), intelRdt(specs.LinuxIntelRdt{}))
	dir := filepath.Join(root, c.id)
	equal(t, "tasks", strings.TrimSpace(readFile(t, filepath.Join(dir, "tasks"))), itoa(c.pid))
	l.wantSilent(l.call("delete", "--force", c.id))
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is still there", dir)
	}
}

// TestIntelRdtMissing says what is missing.
func TestIntelRdtMissing(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	need(t, "a host without resctrl", func() error {
		if _, err := resctrl(); err == nil {
			return errors.New("it is mounted")
		}
		return nil
	})
	id := l.newID()
	b := l.bundle(id, sh("exit 0"), intelRdt(specs.LinuxIntelRdt{ClosID: "gold"}))
	l.wantFail(l.call("create", "--bundle", b.dir, id), "linux.intelRdt: no resctrl file system is mounted")
	l.wantGone(id)
}
