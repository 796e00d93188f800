package egress

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"eggrun/policy"
	"eggrun/spec"

	"golang.org/x/sys/unix"
)

// types are the file systems that a container with a policy may have of its own.
// Others show what is the host's, as a disk does, or lead to servers. Sockets
// that overlayfs shows are not those that somebody listens on.
var types = []string{"proc", "sysfs", "tmpfs", "ramfs", "hugetlbfs", "devpts", "mqueue", "cgroup", "cgroup2", "overlay"}

// checkMounts refuses mounts of the host that lead to its processes: their
// sockets, their /proc and their terminals, and devices. Where the policy says
// so a socket is left out instead.
func checkMounts(g *gaps, plan *spec.Plan, pol *policy.Policy) error {
	w := &wayFinder{allowed: pol.AllowSockets, devices: readDeviceNames()}
	// A root file system is not searched: sockets that a layer of an image
	// holds have nobody who listens.
	if place := w.servicePlace(plan.Rootfs); place != "" {
		g.add("give the container a root file system of its own", "rootfs %q: %q is where services of the host listen", plan.Rootfs, place)
	}
	var kept []spec.Mount
	for i := range plan.Mounts {
		m := &plan.Mounts[i]
		if !m.IsBind() {
			if !slices.Contains(types, m.Type) {
				g.add("drop the mount", "mount of type %q on %q: it could lead to the host", m.Type, m.Target)
			}
			kept = append(kept, *m)
			continue
		}
		way, err := w.wayOut(m.Source)
		if err != nil {
			return fmt.Errorf("mount %q on %q: %w", m.Source, m.Target, err)
		}
		if way != nil && way.isSocket && pol.MaskSockets {
			continue
		}
		if way != nil {
			g.add(way.fix, "mount %q on %q: %s", m.Source, m.Target, way.what)
		}
		kept = append(kept, *m)
	}
	if len(kept) < len(plan.Mounts) {
		plan.SetMounts(kept)
	}
	return nil
}

// CheckMounts is the part of [Confine] for mounts that a container with a policy
// gets later; those of plan are the new ones.
func CheckMounts(plan *spec.Plan, pol *policy.Policy) error {
	var g gaps
	clampMounts(plan)
	for i := range plan.Mounts {
		// What create does to protect parts of it is not done again.
		m := &plan.Mounts[i]
		if m.Type == "proc" {
			g.add("leave it to config.json", "mount of a procfs on %q", m.Target)
		}
		for _, denied := range slices.Concat(plan.PolicyDeny, plan.PolicyDenyWrite) {
			if denied == m.Target || strings.HasPrefix(denied, m.Target+"/") {
				g.add("leave it to config.json", "mount on %q, where the policy denies %q", m.Target, denied)
			}
		}
	}
	if err := checkMounts(&g, plan, pol); err != nil {
		return err
	}
	return g.err()
}

// wayFinder looks for ways to the host's processes.
type wayFinder struct {
	allowed []string // sockets, or directories of such, that may be there
	devices *deviceNames
}

// way is one that was found.
type way struct {
	what, fix string
	isSocket  bool
}

const (
	fixVolume  = "drop the volume, or share a directory in which no process of the host listens"
	fixSocket  = "drop the volume, or name it in eggrun.allow-sockets"
	fixDevice  = "drop the device"
	fixKernel  = "drop the volume, for the container has its own /proc and /dev"
	maxEntries = 10_000
	maxDepth   = 2
)

// wayOut returns how a bind mount of source leads to processes of the host, nil
// if it does not. A missing source is left to the mount to report.
func (w *wayFinder) wayOut(source string) (*way, error) {
	var stat unix.Stat_t
	err := unix.Stat(source, &stat)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "stat", Path: source, Err: err}
	}
	if w.isAllowed(source) {
		return nil, nil
	}
	var filesystem unix.Statfs_t
	if err := unix.Statfs(source, &filesystem); err != nil {
		return nil, &os.PathError{Op: "statfs", Path: source, Err: err}
	}
	switch format := stat.Mode & unix.S_IFMT; {
	case format == unix.S_IFSOCK:
		return &way{what: "a socket of the host", fix: fixSocket, isSocket: true}, nil
	case filesystem.Type == unix.DEVPTS_SUPER_MAGIC:
		return &way{what: "a terminal of the host", fix: fixKernel}, nil
	case format == unix.S_IFCHR || format == unix.S_IFBLK:
		if !w.devices.allow(format, unix.Major(stat.Rdev), unix.Minor(stat.Rdev)) {
			return &way{what: "a device that leads to the host", fix: fixDevice}, nil
		}
		return nil, nil
	case format != unix.S_IFDIR:
		return nil, nil
	case filesystem.Type == unix.PROC_SUPER_MAGIC:
		return &way{what: "processes of the host can be seen there", fix: fixKernel}, nil
	}
	if same, err := samePlace(source, "/dev"); err != nil || same {
		return &way{what: "the devices of the host are there", fix: fixKernel}, err
	}
	if place := w.servicePlace(source); place != "" {
		return &way{what: fmt.Sprintf("%q is where services of the host listen", place), fix: fixVolume}, nil
	}
	return w.search(source), nil
}

func samePlace(a, b string) (bool, error) {
	infoA, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	infoB, err := os.Stat(b)
	return err == nil && os.SameFile(infoA, infoB), err
}

// isAllowed tells whether the policy names path, as it is written or where its
// links lead.
func (w *wayFinder) isAllowed(path string) bool {
	return slices.ContainsFunc(w.allowed, func(allowed string) bool {
		if filepath.Clean(allowed) == filepath.Clean(path) {
			return true
		}
		a, errA := filepath.EvalSymlinks(allowed)
		b, errB := filepath.EvalSymlinks(path)
		return errA == nil && errB == nil && a == b
	})
}

// servicePlaces are directories in which services of the host listen, now or
// later, and sockets of theirs in the caller's home directory.
func servicePlaces() (dirs, sockets []string) {
	dirs = []string{"/run", "/var/run", "/tmp", "/run/user", "/run/dbus", "/run/systemd", "/run/docker", "/run/containerd", "/run/podman", "/run/crio"}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		dirs = append(dirs, dir)
	}
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		for _, name := range []string{".docker/run/docker.sock", ".docker/desktop/docker.sock", ".colima/default/docker.sock", ".rd/docker.sock", ".gnupg/S.gpg-agent"} {
			sockets = append(sockets, filepath.Join(home, name))
		}
	}
	return dirs, sockets
}

// servicePlace returns the first such place that is dir or lies below it, "" for
// none. Directories are compared by what they are: another mount of the host's
// root may show it under any name.
func (w *wayFinder) servicePlace(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		return ""
	}
	dirs, sockets := servicePlaces()
	for _, socket := range sockets {
		// By itself a home directory is none of them.
		if _, err := os.Lstat(socket); err == nil && !w.isAllowed(socket) {
			dirs = append(dirs, socket)
		}
	}
	for _, place := range dirs {
		if isAtOrAbove(info, place) {
			return place
		}
		// /var/run is a link on most systems.
		if at, err := filepath.EvalSymlinks(place); err == nil && isAtOrAbove(info, at) {
			return place
		}
	}
	return ""
}

func isAtOrAbove(dir fs.FileInfo, path string) bool {
	for {
		if there, err := os.Stat(path); err == nil && os.SameFile(dir, there) {
			return true
		}
		if path == "/" {
			return false
		}
		path = filepath.Dir(path)
	}
}

// search looks for a socket in a directory and two levels below,
// among at most ten thousand entries: a volume may be large, and sockets lie
// near its top. One that is made later is not found by any walk; SECURITY.md says
// so.
func (w *wayFinder) search(dir string) *way {
	var found *way
	entries := 0
	depth := strings.Count(filepath.Clean(dir), "/")
	// With the slash a link is followed.
	_ = filepath.WalkDir(dir+"/", func(path string, entry fs.DirEntry, err error) error {
		entries++
		switch {
		case err != nil:
			// What the caller cannot read he cannot share for reading either;
			// what has gone meanwhile is no socket.
			return fs.SkipDir
		case entry.Type()&fs.ModeSocket != 0 && !w.isAllowed(path):
			found = &way{what: fmt.Sprintf("the socket %q is in it", path), fix: fixSocket}
			return fs.SkipAll
		case entries > maxEntries:
			return fs.SkipAll
		case entry.IsDir() && strings.Count(filepath.Clean(path), "/")-depth > maxDepth:
			return fs.SkipDir
		}
		return nil
	})
	return found
}
