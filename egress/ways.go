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
func checkMounts(g *gaps, plan *spec.Plan, pol *policy.Policy, around Surroundings) error {
	w := &wayFinder{allowed: pol.AllowSockets, notifyDir: around.NotifyDir, own: around.Where.dirs(), devices: readDeviceNames()}
	// A root file system is not searched: sockets that a layer of an image
	// holds have nobody who listens.
	if root, err := os.Stat(plan.Rootfs); err == nil && w.servicePlace(root) != "" {
		g.add("give the container a root file system of its own", "rootfs %q: services of the host listen there", plan.Rootfs)
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
		way, id, err := w.wayOut(m.Source)
		if err == nil && way == nil && m.Recursive {
			way, err = w.wayBelow(m.Source)
		}
		if err != nil {
			return fmt.Errorf("mount %q on %q: %w", m.Source, m.Target, err)
		}
		if way != nil && way.isSocket && pol.MaskSockets {
			continue
		}
		if way != nil {
			g.add(way.fix, "mount %q on %q: %s", m.Source, m.Target, way.what)
		}
		m.Checked = id
		kept = append(kept, *m)
	}
	if len(kept) < len(plan.Mounts) {
		plan.SetMounts(kept)
	}
	return nil
}

// CheckMounts is the part of [Confine] for mounts that a container with a policy
// gets later; those of plan are the new ones.
func CheckMounts(plan *spec.Plan, pol *policy.Policy, where Where) error {
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
	if err := checkMounts(&g, plan, pol, Surroundings{Where: where}); err != nil {
		return err
	}
	return g.err()
}

// wayFinder looks for ways to the host's processes.
type wayFinder struct {
	allowed   []string // sockets, or directories of such, that may be there
	notifyDir string   // the engine's, see [Surroundings]
	own       []string // eggrun's own directories
	devices   *deviceNames
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
// if it does not, and what was looked at: whoever may write in a directory above
// could put a link to another place there before it is mounted. A missing source
// is left to the mount to report.
func (w *wayFinder) wayOut(source string) (*way, *spec.FileID, error) {
	f, err := os.OpenFile(source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, new(spec.FileID), nil // and nothing else may be there later
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	var stat unix.Stat_t
	var filesystem unix.Statfs_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return nil, nil, &os.PathError{Op: "stat", Path: source, Err: err}
	}
	if err := unix.Fstatfs(int(f.Fd()), &filesystem); err != nil {
		return nil, nil, &os.PathError{Op: "statfs", Path: source, Err: err}
	}
	at := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	id := &spec.FileID{Device: uint64(stat.Dev), Inode: stat.Ino}
	if known := w.knownWay(source, at, &stat, &filesystem); known != nil {
		return known, id, nil
	}
	if w.isOwn(at) {
		return &way{what: "eggrun keeps there what it believes", fix: fixVolume}, id, nil
	}
	return nil, id, nil
}

// knownWay is [wayFinder.wayOut] for what is open as at.
func (w *wayFinder) knownWay(source, at string, stat *unix.Stat_t, filesystem *unix.Statfs_t) *way {
	switch format := stat.Mode & unix.S_IFMT; {
	case w.isAllowed(at):
		return nil
	case format == unix.S_IFSOCK:
		return &way{what: "a socket of the host", fix: fixSocket, isSocket: true}
	case filesystem.Type == unix.DEVPTS_SUPER_MAGIC:
		return &way{what: "a terminal of the host", fix: fixKernel}
	case format == unix.S_IFCHR || format == unix.S_IFBLK:
		if !w.devices.allow(format, unix.Major(uint64(stat.Rdev)), unix.Minor(uint64(stat.Rdev))) {
			return &way{what: "a device that leads to the host", fix: fixDevice}
		}
		return nil
	case format != unix.S_IFDIR:
		return nil
	case filesystem.Type == unix.PROC_SUPER_MAGIC:
		return &way{what: "processes of the host can be seen there", fix: fixKernel}
	}
	return w.directoryWay(source, at)
}

// isOwn tells whether eggrun's own directories can be seen by a path, or it is
// of one: the control sockets of sidecars, also those that are yet to be made, and
// what exec does in a container.
func (w *wayFinder) isOwn(at string) bool {
	info, err := os.Stat(at)
	if err != nil {
		return true
	}
	real, err := filepath.EvalSymlinks(at)
	return slices.ContainsFunc(w.own, func(own string) bool {
		dir, ownErr := os.Stat(own)
		return isAtOrAbove(info, own) || err == nil && ownErr == nil && isAtOrAbove(dir, real)
	})
}

// directoryWay is [wayFinder.wayOut] for a directory that is open as at.
func (w *wayFinder) directoryWay(source, at string) *way {
	info, err := os.Stat(at)
	if err != nil {
		return &way{what: "it cannot be looked at", fix: fixVolume}
	}
	if dev, err := os.Stat("/dev"); err == nil && os.SameFile(info, dev) {
		return &way{what: "the devices of the host are there", fix: fixKernel}
	}
	if place := w.servicePlace(info); place != "" {
		return &way{what: fmt.Sprintf("%q is where services of the host listen", place), fix: fixVolume}
	}
	return w.search(source, at)
}

// isAllowed tells whether the policy names a path, or what its links lead to.
func (w *wayFinder) isAllowed(path string) bool {
	if len(w.allowed) == 0 {
		return false
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(w.allowed, func(allowed string) bool {
		named, err := filepath.EvalSymlinks(allowed)
		return err == nil && named == real
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
func (w *wayFinder) servicePlace(dir fs.FileInfo) string {
	dirs, sockets := servicePlaces()
	for _, socket := range sockets {
		// By itself a home directory is none of them.
		if _, err := os.Lstat(socket); err == nil && !w.isAllowed(socket) {
			dirs = append(dirs, socket)
		}
	}
	for _, place := range dirs {
		if isAtOrAbove(dir, place) {
			return place
		}
		// /var/run is a link on most systems.
		if at, err := filepath.EvalSymlinks(place); err == nil && isAtOrAbove(dir, at) {
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

// search looks for a socket in a directory, open as at, and two levels below,
// among at most ten thousand entries: a volume may be large, and sockets lie
// near its top. One that is made later is not found by any walk; SECURITY.md says
// so.
func (w *wayFinder) search(source, at string) *way {
	var found *way
	entries := 0
	depth := strings.Count(at, "/")
	// With the slash the link that a descriptor is in /proc is followed.
	_ = filepath.WalkDir(at+"/", func(path string, entry fs.DirEntry, err error) error {
		entries++
		isNotify := source == w.notifyDir && path == at+"/notify.sock"
		switch {
		case err != nil:
			// What the caller cannot read he cannot share for reading either;
			// what has gone meanwhile is no socket.
			return fs.SkipDir
		case entry.Type()&fs.ModeSocket != 0 && !isNotify && !w.isAllowed(path):
			found = &way{what: fmt.Sprintf("the socket %q is in it", filepath.Join(source, strings.TrimPrefix(path, at))), fix: fixSocket}
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
