package linux

import (
	"os"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The three functions with which package syscall surrounds its own fork: they
// block signals, forbid stack growth between fork and exec, and give the child
// default signal handlers.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// spawnArgs is all that the forked child touches, made before the fork.
type spawnArgs struct {
	join            []int
	joined          []bool
	joinUser        int     // -1 for none
	first, second   uintptr // CLONE_NEW* bits of the two clones
	intoCgroup      bool
	clone3          clone3Args // of the first clone, with intoCgroup
	oneStage        bool
	newUser         bool
	newTime         bool
	offsets         []byte
	offsetsFD       uintptr
	offsetsPath     [len(offsetsPath) + 1]byte
	uid, gid        uintptr
	keepGroups      bool
	keep            []int
	needed          []int // all descriptors that the child uses, ascending
	exe             int
	argv, env       **byte
	report, proceed int
	proceedWrite    int
	pid             uintptr // of the second child
	message         [2]int32
	empty           [1]byte
	proceedByte     [1]byte
}

// clone3Args is struct clone_args of linux/sched.h, as of Linux 5.7.
type clone3Args struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// offsetsPath is opened before any mount namespace is joined.
const offsetsPath = "/proc/self/timens_offsets"

// forkSpawn forks and returns the pid of the first child, and whether it was
// born in the request's cgroup.
func forkSpawn(req *SpawnRequest, report, proceed, proceedWrite *os.File) (childPID int, inCgroup bool, err error) {
	argv, err := syscall.SlicePtrFromStrings(req.Argv)
	if err != nil {
		return 0, false, err
	}
	env, err := syscall.SlicePtrFromStrings(req.Env)
	if err != nil {
		return 0, false, err
	}
	join, joinOpen := descriptors(req.Join)
	keep, keepOpen := descriptors(req.Keep)
	args := &spawnArgs{
		join: join, joined: make([]bool, len(join)), joinUser: -1,
		newUser: req.New&unix.CLONE_NEWUSER != 0, newTime: req.New&unix.CLONE_NEWTIME != 0,
		offsets: req.TimeOffsets, keep: append(keep, req.Preserve...),
		uid: uintptr(req.UID), gid: uintptr(req.GID), keepGroups: req.KeepGroups,
		exe: int(req.Exe.Fd()), argv: &argv[0], env: &env[0],
		report: int(report.Fd()), proceed: int(proceed.Fd()), proceedWrite: int(proceedWrite.Fd()),
	}
	args.first, args.second, args.oneStage = req.stages()
	copy(args.offsetsPath[:], offsetsPath)
	if req.Cgroup != nil {
		args.intoCgroup = true
		args.clone3 = clone3Args{
			flags:      unix.CLONE_INTO_CGROUP | uint64(args.first),
			exitSignal: uint64(unix.SIGCHLD),
			cgroup:     uint64(req.Cgroup.Fd()),
		}
	}
	if req.JoinUser != nil {
		args.joinUser = int(req.JoinUser.Fd())
	}
	args.needed = append(slices.Concat(join, args.keep), args.exe, args.report, args.proceed)
	if args.joinUser >= 0 {
		args.needed = append(args.needed, args.joinUser)
	}
	slices.Sort(args.needed)
	// No other fork of this process may inherit what is being prepared, and
	// no descriptor may be half-way between open and close-on-exec.
	syscall.ForkLock.Lock()
	pid, errno := rawSpawn(args)
	syscall.ForkLock.Unlock()
	joinOpen()
	keepOpen()
	runtime.KeepAlive(req)
	if errno != 0 {
		return 0, false, os.NewSyscallError("clone", errno)
	}
	return int(pid), args.intoCgroup, nil
}

// rawSpawn forks. In the child it does not return: until execveat there is a
// single thread with a copy of this process's memory, so only raw system calls
// are made, nothing is allocated and the stack does not grow.
//
//go:noinline
//go:norace
//go:nocheckptr
func rawSpawn(a *spawnArgs) (pid uintptr, errno syscall.Errno) {
	beforeFork()
	if a.intoCgroup {
		pid, _, errno = syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&a.clone3)), unsafe.Sizeof(a.clone3), 0)
	}
	// Whatever else is wrong, clone will find it too.
	if !a.intoCgroup || errno != 0 {
		a.intoCgroup = false
		pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD)|a.first, 0, 0, 0, 0, 0)
	}
	if errno != 0 || pid != 0 {
		afterFork()
		return pid, errno
	}
	afterForkInChild()

	// With its own copy it would wait for ever for a parent that was killed.
	syscall.RawSyscall(unix.SYS_CLOSE, uintptr(a.proceedWrite), 0, 0)
	if a.first&unix.CLONE_NEWUSER != 0 {
		awaitMaps(a)
	}
	if !a.oneStage {
		closeOthers(a)
		if len(a.offsets) > 0 {
			openOffsets(a)
		}
		// Those who may trace all that is in a user namespace may not trace
		// this. With a new one the files in /proc for its maps must stay ours.
		if !a.newUser {
			syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0)
		}
		if errno = joinAll(a); errno != 0 {
			die(a, reportJoin, errno)
		}
		if a.newTime {
			makeTime(a)
		}
		a.pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD)|unix.CLONE_PARENT|a.second, 0, 0, 0, 0, 0)
		if errno != 0 {
			die(a, reportFork, errno)
		}
		if a.pid != 0 {
			die(a, reportPID, syscall.Errno(a.pid))
		}
	}
	if a.second&unix.CLONE_NEWUSER != 0 {
		awaitMaps(a)
	}
	if a.newUser || a.joinUser >= 0 {
		takeIDs(a)
	}
	for _, fd := range a.keep {
		syscall.RawSyscall(unix.SYS_FCNTL, uintptr(fd), unix.F_SETFD, 0)
	}
	_, _, errno = syscall.RawSyscall6(unix.SYS_EXECVEAT, uintptr(a.exe), uintptr(unsafe.Pointer(&a.empty)),
		uintptr(unsafe.Pointer(a.argv)), uintptr(unsafe.Pointer(a.env)), unix.AT_EMPTY_PATH, 0)
	die(a, reportExec, errno)
	panic("unreachable")
}

// awaitMaps waits until the parent has written the id maps.
//
//go:nosplit
//go:norace
func awaitMaps(a *spawnArgs) {
	n, _, errno := syscall.RawSyscall(unix.SYS_READ, uintptr(a.proceed), uintptr(unsafe.Pointer(&a.proceedByte)), 1)
	if errno != 0 || n != 1 {
		die(a, reportWait, errno)
	}
}

// openOffsets opens the offsets of the time namespace that the next child will
// be in.
//
//go:nosplit
//go:norace
func openOffsets(a *spawnArgs) {
	// No directory is looked at, for the path is absolute.
	fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT, 0, uintptr(unsafe.Pointer(&a.offsetsPath)), unix.O_WRONLY|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		die(a, reportOffsets, errno)
	}
	a.offsetsFD = fd
}

// makeTime makes the time namespace that the next child will be in.
//
//go:nosplit
//go:norace
func makeTime(a *spawnArgs) {
	if _, _, errno := syscall.RawSyscall(unix.SYS_UNSHARE, unix.CLONE_NEWTIME, 0, 0); errno != 0 {
		die(a, reportTime, errno)
	}
	if len(a.offsets) == 0 {
		return
	}
	// The kernel takes all lines in one write or none.
	if _, _, errno := syscall.RawSyscall(unix.SYS_WRITE, a.offsetsFD, uintptr(unsafe.Pointer(&a.offsets[0])), uintptr(len(a.offsets))); errno != 0 {
		die(a, reportOffsets, errno)
	}
}

// closeOthers closes every descriptor but those that the child uses: what it is
// about to enter may hold somebody who can look into it.
//
//go:nosplit
//go:norace
func closeOthers(a *spawnArgs) {
	first := uintptr(3)
	for _, fd := range a.needed {
		if first < uintptr(fd) {
			syscall.RawSyscall(unix.SYS_CLOSE_RANGE, first, uintptr(fd)-1, 0)
		}
		first = uintptr(fd) + 1
	}
	syscall.RawSyscall(unix.SYS_CLOSE_RANGE, first, uintptr(^uint32(0)), 0)
}

// joinAll joins what it may, then the user namespace, then the rest.
//
//go:nosplit
//go:norace
func joinAll(a *spawnArgs) syscall.Errno {
	for i, fd := range a.join {
		_, _, errno := syscall.RawSyscall(unix.SYS_SETNS, uintptr(fd), 0, 0)
		if errno != 0 && a.joinUser < 0 {
			return errno
		}
		a.joined[i] = errno == 0
	}
	if a.joinUser < 0 {
		return 0
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETNS, uintptr(a.joinUser), unix.CLONE_NEWUSER, 0); errno != 0 {
		die(a, reportJoinUser, errno)
	}
	for i, fd := range a.join {
		if a.joined[i] {
			continue
		}
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETNS, uintptr(fd), 0, 0); errno != 0 {
			return errno
		}
	}
	return 0
}

// takeIDs takes ids of the user namespace. A root that did not take uid 0 would
// lose the capabilities that it has there in execveat.
//
//go:nosplit
//go:norace
func takeIDs(a *spawnArgs) {
	if !a.keepGroups {
		// EPERM: setgroups is denied in namespaces that an unprivileged user mapped.
		_, _, errno := syscall.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
		if errno != 0 && errno != unix.EPERM {
			die(a, reportSetgroups, errno)
		}
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESGID, a.gid, a.gid, a.gid); errno != 0 {
		die(a, reportSetgid, errno)
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, a.uid, a.uid, a.uid); errno != 0 {
		die(a, reportSetuid, errno)
	}
}

// die reports and leaves.
//
//go:nosplit
//go:norace
func die(a *spawnArgs, stage int32, value syscall.Errno) {
	a.message[0], a.message[1] = stage, int32(value)
	syscall.RawSyscall(unix.SYS_WRITE, uintptr(a.report), uintptr(unsafe.Pointer(&a.message)), 8)
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 127, 0, 0)
	}
}
