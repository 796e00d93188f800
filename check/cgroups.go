package check

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const cgroupsGroup = "cgroups"

// hierarchies are where cgroups are mounted.
type hierarchies struct {
	v1 map[string]string // by controller
	v2 string            // "" for none
}

// findHierarchies reads /proc/self/mounts. The first mount of a hierarchy is the one
// that is used: a later one may be a container's without a mount namespace.
func findHierarchies(mounts string) hierarchies {
	h := hierarchies{v1: map[string]string{}}
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		switch fields[2] {
		case "cgroup2":
			h.v2 = cmp.Or(h.v2, fields[1])
		case "cgroup":
			for option := range strings.SplitSeq(fields[3], ",") {
				if slices.Contains(limits, option) || option == "freezer" || option == "devices" || option == "blkio" {
					h.v1[option] = cmp.Or(h.v1[option], fields[1])
				}
			}
		}
	}
	return h
}

// limits are the controllers that config.json's common limits need. The one for
// disks has another name in v1, where those for devices and for pausing are
// controllers too.
var limits = []string{"cpu", "cpuset", "memory", "pids"}

// ownCgroup returns the caller's cgroup in v2, from /proc/self/cgroup.
func ownCgroup(text string) string {
	for line := range strings.Lines(text) {
		if own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return own
		}
	}
	return "/"
}

// cgroups checks whether containers can have cgroups, and limits.
func (c *checker) cgroups(context.Context) error {
	h := findHierarchies(c.read("/proc/self/mounts"))
	switch unified := len(h.v1) == 0; {
	case h.v2 == "" && unified:
		c.add(Result{cgroupsGroup, "hierarchy", Missing, "no cgroup file system is mounted; containers run without limits, with --cgroup-manager disabled",
			"mount -t cgroup2 cgroup2 /sys/fs/cgroup"})
		return nil
	case unified:
		c.unified(h.v2)
	default:
		c.legacy(h)
	}
	c.add(c.systemd())
	return nil
}

// unified checks cgroup v2.
func (c *checker) unified(mount string) {
	c.add(Result{Group: cgroupsGroup, Name: "hierarchy", Status: OK, Cause: "v2"})
	own := mount
	if c.Rootless {
		own = path.Join(mount, ownCgroup(c.read("/proc/self/cgroup")))
	}
	c.add(c.delegated(own))
	c.add(missingControllers(strings.Fields(c.read(path.Join(own, "cgroup.controllers"))), append([]string{"io"}, limits...), c.Rootless))
	if !c.Quick {
		c.add(c.cloneInto(own))
	}
}

// legacy checks v1, alone or with controllers of v2 beside it.
func (c *checker) legacy(h hierarchies) {
	layout := "v1"
	if h.v2 != "" {
		layout = "hybrid: v1, and v2 without its controllers"
	}
	c.add(Result{Group: cgroupsGroup, Name: "hierarchy", Status: OK, Cause: layout})
	if c.Rootless {
		c.add(Result{cgroupsGroup, "delegation", Missing, "a user manages no cgroups of v1; limits of config.json are refused or left out, as --rootless says",
			"boot with systemd.unified_cgroup_hierarchy=1"})
		return
	}
	var available []string
	for controller, mount := range h.v1 {
		available = append(available, controller)
		if !writable(mount) {
			c.add(Result{cgroupsGroup, controller, Bad, fmt.Sprintf("%s can't be written to", mount),
				"mount -o remount,rw " + mount + ", or give --cgroup-manager disabled"})
		}
	}
	c.add(missingControllers(available, append([]string{"blkio", "devices", "freezer"}, limits...), false))
}

// missingControllers says which limits there can't be.
func missingControllers(available, wanted []string, rootless bool) Result {
	r := Result{Group: cgroupsGroup, Name: "controllers", Status: OK}
	slices.Sort(available)
	r.Cause = strings.Join(available, " ")
	var missing []string
	for _, controller := range wanted {
		if !slices.Contains(available, controller) {
			missing = append(missing, controller)
		}
	}
	if len(missing) == 0 {
		return r
	}
	r.Status = Missing
	r.Cause = fmt.Sprintf("no %s; what config.json asks of them is refused", strings.Join(missing, ", "))
	r.Fix = "boot with cgroup_enable=" + missing[0] + " or a kernel that has them"
	if rootless {
		r.Fix = delegate
	}
	return r
}

// delegate is systemd's way to let users have controllers.
const delegate = `mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\nDelegate=cpu cpuset io memory pids\n' >/etc/systemd/system/user@.service.d/delegate.conf && systemctl daemon-reload, then log in anew`

// delegated tells whether cgroups can be made in one of v2.
func (c *checker) delegated(own string) Result {
	r := Result{Group: cgroupsGroup, Name: "delegation", Status: OK, Cause: own}
	if writable(own) && writable(path.Join(own, "cgroup.procs")) {
		return r
	}
	r.Status, r.Cause = Bad, own+" can't be written to"
	r.Fix = "mount -o remount,rw " + own + ", or give --cgroup-manager disabled"
	if c.Rootless {
		r.Status = Missing
		r.Cause += "; containers run without limits"
		r.Fix = "systemd-run --user --scope -p Delegate=yes COMMAND"
	}
	return r
}

// writable tells whether the effective ids may write to path.
func writable(path string) bool {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil
}

// cloneInto tries CLONE_INTO_CGROUP, by a process in our own cgroup.
func (c *checker) cloneInto(own string) Result {
	r := Result{Group: cgroupsGroup, Name: "clone into", Status: OK}
	dir, err := os.Open(own)
	if err == nil {
		defer dir.Close()
		cmd := exec.Command(c.Exe, "--version")
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
		err = cmd.Run()
	}
	if err != nil {
		r.Status, r.Cause = Missing, oneLine(err.Error())+"; a process gets into its cgroup after it was made"
		r.Fix = "allow clone3 in the seccomp profile that this runs under, and write to " + path.Join(own, "cgroup.procs")
	}
	return r
}

// systemd tells whether it can manage cgroups.
func (c *checker) systemd() Result {
	r := Result{Group: cgroupsGroup, Name: "systemd", Status: OK}
	switch {
	case !c.exists("/run/systemd/system"):
		r.Cause = "systemd does not run here; --systemd-cgroup and engines that give it need it"
		r.Fix = "podman --cgroup-manager cgroupfs, docker --exec-opt native.cgroupdriver=cgroupfs"
	case c.Rootless && !c.hasUserBus():
		r.Cause = "no user manager of systemd; --systemd-cgroup and podman for this user need it"
		r.Fix = fmt.Sprintf("loginctl enable-linger %d, the package dbus-user-session, and export XDG_RUNTIME_DIR=/run/user/%d", c.uid, c.uid)
	default:
		return r
	}
	r.Status = Missing
	if c.Systemd {
		r.Status = Bad
	}
	return r
}

func (c *checker) hasUserBus() bool {
	if c.getenv("DBUS_SESSION_BUS_ADDRESS") != "" {
		return true
	}
	dir := c.getenv("XDG_RUNTIME_DIR")
	info, err := fs.Stat(c.files, strings.TrimPrefix(path.Join("/", dir, "bus"), "/"))
	return dir != "" && err == nil && info.Mode()&fs.ModeSocket != 0
}
