package egress

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"

	"golang.org/x/sys/unix"
)

// sidecarUID is the user and group that the sidecar runs as where root starts
// it: above all ids that distributions, systemd and containers give out, see
// systemd's UIDS-GIDS.md. Started in a user namespace, it gets a nested one with
// the caller's id alone.
const sidecarUID = 1_900_003_128

// controlFD is the sidecar's only descriptor beside the standard streams.
const controlFD = 3

// cageFlag is the hidden first argument of a sidecar that is not confined yet.
const cageFlag = "--cage"

// cage gives up everything that a sidecar needs not, and executes this program
// anew. It is started as root of its own mount, PID and IPC namespace, with args:
// the control socket's descriptor, the uid to take, and what the list of
// processes is to show. It returns only an error, of which the launcher has been
// told.
func cage(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("%d arguments, want 3", len(args))
	}
	fd, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	uid, err := strconv.ParseUint(args[1], 10, 32)
	if err != nil {
		return err
	}
	control := os.NewFile(uintptr(fd), "sidecar control")
	err = runCaged(control, uint32(uid), args[2])
	return errors.Join(err, syncsocket.New(control).SendFailure(err))
}

// runCaged does the work of cage.
//
// Capabilities, ids, no_new_privs and Landlock belong to a thread, and Go has
// many: what the one that calls execve has is what all have afterwards.
func runCaged(control *os.File, uid uint32, label string) error {
	runtime.LockOSThread() // never unlocked
	if err := detach(control); err != nil {
		return err
	}
	exe, err := executable(uid)
	if err != nil {
		return err
	}
	defer exe.Close()
	dirs, err := ownRoot()
	if err != nil {
		return err
	}
	if err := dropRights(dirs, exe, uid); err != nil {
		return err
	}
	return linux.ExecFile(exe, []string{"eggrun", "sidecar", label}, []string{})
}

// detach lets go of the caller's session, streams and descriptors: an engine
// reads the streams of a container to the end.
func detach(control *os.File) error {
	if _, err := unix.Setsid(); err != nil {
		return os.NewSyscallError("setsid", err)
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for stream := range 3 {
		if err := unix.Dup3(int(null.Fd()), stream, 0); err != nil {
			return os.NewSyscallError("dup3", err)
		}
	}
	// Before its number, which may be the control socket's, is taken.
	if err := null.Close(); err != nil {
		return err
	}
	if control.Fd() != controlFD {
		err = unix.Dup3(int(control.Fd()), controlFD, 0)
	}
	if err != nil {
		return os.NewSyscallError("dup3", err)
	}
	return linux.CloseOnExecFrom(controlFD + 1)
}

// executable returns this program in a form that uid may execute.
func executable(uid uint32) (*os.File, error) {
	exe, err := os.OpenFile("/proc/self/exe", unix.O_PATH, 0)
	if err != nil || uid == 0 {
		return exe, err
	}
	info, err := exe.Stat()
	if err == nil && info.Mode()&0o001 != 0 {
		return exe, nil
	}
	exe.Close()
	if err != nil {
		return nil, err
	}
	return linux.UnreadableSelf()
}

// ownRoot makes a root file system that has nothing but what the resolver reads,
// and returns the directories in which that is.
func ownRoot() (dirs []*os.File, err error) {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return nil, &os.PathError{Op: "make private", Path: "/", Err: err}
	}
	const attr = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	root, err := linux.NewMount("tmpfs", "", []string{"mode=0755", "size=64k", "nr_inodes=64"}, attr)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	paths := resolverDirs()
	trees := make([]*os.File, len(paths))
	for i, path := range paths {
		if trees[i], err = linux.CloneTree(path, true); err != nil {
			return nil, err
		}
		defer trees[i].Close()
		if err := linux.SetMountAttr(trees[i], attr|unix.MOUNT_ATTR_RDONLY, 0, true); err != nil {
			return nil, err
		}
	}
	// Over the old root, which pivot_root then lets go of.
	top, err := os.OpenFile("/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	if err := linux.MoveMount(root, top); err != nil {
		return nil, err
	}
	if err := linux.PivotRoot(root); err != nil {
		return nil, err
	}
	for i, path := range paths {
		dir, err := attachTree(trees[i], path)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	return dirs, linux.SetMountAttr(root, unix.MOUNT_ATTR_RDONLY, 0, false)
}

func attachTree(tree *os.File, path string) (*os.File, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	place, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer place.Close()
	if err := linux.MoveMount(tree, place); err != nil {
		return nil, err
	}
	return os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// resolverDirs are the directories of resolv.conf, hosts and nsswitch.conf.
// Whole directories, because the files are replaced by renaming new ones.
func resolverDirs() []string {
	dirs := []string{"/etc"}
	target, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err != nil {
		return dirs // the resolver then asks 127.0.0.1, as it would without eggrun
	}
	if dir := filepath.Dir(target); dir != "/etc" && !strings.HasPrefix(dir, "/etc/") {
		dirs = append(dirs, dir)
	}
	return dirs
}

// dropRights takes from the calling thread all that the sidecar needs not.
func dropRights(dirs []*os.File, exe *os.File, uid uint32) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("set no_new_privs", err)
	}
	if err := linux.RestrictToReading(dirs, exe); err != nil {
		return err
	}
	if err := limitResources(); err != nil {
		return err
	}
	// With an empty bounding set not even root gets anything by execve.
	none := linux.NewCapabilitySets(nil)
	if err := none.DropBounding(); err != nil {
		return err
	}
	if uid != 0 {
		if err := errors.Join(linux.SetGroups(nil), linux.SetGID(uid), linux.SetUID(uid)); err != nil {
			return err
		}
	}
	return none.Apply(0)
}

// limits bound what a broken sidecar can use up: memory for 4096 tunnels, and the
// descriptors that they hold at most, with as many clients that wait to ask. There
// is none for processes: it would count those of all sidecars, and the filter
// allows none anyway.
var limits = map[int]uint64{
	unix.RLIMIT_AS:       4 << 30,
	unix.RLIMIT_NOFILE:   7*4096 + 1024,
	unix.RLIMIT_CORE:     0,
	unix.RLIMIT_MEMLOCK:  0,
	unix.RLIMIT_MSGQUEUE: 0,
}

func limitResources() error {
	for resource, limit := range limits {
		var now unix.Rlimit
		if err := unix.Prlimit(0, resource, nil, &now); err != nil {
			return os.NewSyscallError("get rlimit", err)
		}
		now.Max = min(now.Max, limit)
		now.Cur = min(now.Cur, now.Max)
		if err := unix.Prlimit(0, resource, &now, nil); err != nil {
			return os.NewSyscallError("set rlimit", err)
		}
	}
	return nil
}

// checkCaged makes sure that this process is what [cage] was to make of
// it, and that nobody looks into it. The filter is loaded by then.
func checkCaged(uid int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	noNewPrivs, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return os.NewSyscallError("get no_new_privs", err)
	}
	var root unix.Statfs_t
	if err := unix.Statfs("/", &root); err != nil {
		return os.NewSyscallError("statfs", err)
	}
	_, hostErr := os.Stat("/proc")
	switch {
	case data[0].Permitted|data[1].Permitted|data[0].Inheritable|data[1].Inheritable != 0:
		return errors.New("the sidecar has capabilities")
	case noNewPrivs != 1:
		return errors.New("the sidecar lacks no_new_privs")
	case os.Getuid() != uid || os.Geteuid() != uid || os.Getegid() != uid:
		return fmt.Errorf("the sidecar has uid %d and gid %d, want %d", os.Geteuid(), os.Getegid(), uid)
	case os.Getpid() != 1:
		return errors.New("the sidecar sees other processes")
	case root.Type != unix.TMPFS_MAGIC || root.Flags&unix.ST_RDONLY == 0 || !errors.Is(hostErr, fs.ErrNotExist):
		return errors.New("the sidecar sees the host's files")
	}
	return os.NewSyscallError("set not dumpable", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}
