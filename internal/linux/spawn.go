package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// SpawnRequest says which program is to run, and in which namespaces.
type SpawnRequest struct {
	// Exe is the program, open (O_PATH will do). It is executed through the
	// descriptor, so no name is looked up after the first setns.
	Exe  *os.File
	Argv []string
	Env  []string

	// Join are namespace files (/proc/PID/ns/*, or bind mounts of them).
	Join []*os.File
	// JoinUser is the user namespace to join, nil for none.
	JoinUser *os.File
	// New has CLONE_NEW* bits for new namespaces.
	New uintptr
	// Cgroup is a directory of cgroup v2 (O_PATH will do) in which the program
	// starts, if the kernel lets it, see [Child]; nil for the caller's.
	Cgroup *os.File
	// TimeOffsets are lines for /proc/PID/timens_offsets, see
	// time_namespaces(7); nil for none. Only where New has CLONE_NEWTIME.
	TimeOffsets []byte
	// MapIDs writes the id maps of a new user namespace from outside; the
	// child waits for it. It is called only where New has CLONE_NEWUSER.
	MapIDs func(pid int) error
	// UID and GID are the ids with which the program starts in a user
	// namespace, new or joined; 0 keeps all capabilities there.
	UID, GID uint32
	// KeepGroups leaves it the caller's supplementary groups there.
	KeepGroups bool

	// Preserve and Keep are the descriptors beside the standard streams that
	// stay open in the child, at their numbers. All others must be
	// close-on-exec already, as Go's are.
	Preserve []int
	Keep     []*os.File
}

// Child is a process that [SpawnIn] started. It is not reaped by SpawnIn.
type Child struct {
	PID int
	// Pidfd is close-on-exec; the caller closes it.
	Pidfd *os.File
	// InCgroup is set where the program was started in the Cgroup of its
	// request. Otherwise it is in the caller's: Linux before 5.7, a filter on
	// clone3(2), or a cgroup that takes no process.
	InCgroup bool
}

// SpawnIn starts a program in other namespaces and returns when it has been
// executed. The program's parent is the calling process.
//
// A threaded process cannot join a user namespace (EINVAL, setns(2)) and Go's
// always are, so the joining is done by a forked child that makes nothing but
// raw system calls. A process joins a pid namespace only for its children:
// where something is joined, the child forks again, with CLONE_PARENT, and
// leaves. So it does for a new time namespace, which clone(2) cannot make and
// whose offsets are fixed once a process is in it.
//
// Namespaces other than the user namespace are joined first, with the caller's
// privileges; those that were refused are tried again from inside the user
// namespace, which may own them. With a user namespace, new or joined, the
// program starts as its root (uid and gid 0).
//
// The error wraps an errno. EPERM: no CAP_SYS_ADMIN over a namespace or, for
// CLONE_NEWUSER, refused by a sysctl or an LSM; EINVAL: a namespace file of no
// known type; ENOSPC: a limit of /proc/sys/user is reached. See clone(2).
func SpawnIn(req SpawnRequest) (*Child, error) {
	reportRead, reportWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reportRead.Close()
	goRead, goWrite, err := os.Pipe()
	if err != nil {
		reportWrite.Close()
		return nil, err
	}
	defer goWrite.Close()

	pid, inCgroup, err := forkSpawn(&req, reportWrite, goRead, goWrite)
	reportWrite.Close()
	goRead.Close()
	if err != nil {
		return nil, err
	}
	pid, err = followSpawn(&req, pid, reportRead, goWrite)
	if err != nil {
		return nil, err
	}
	pidfd, err := PidfdOpen(pid)
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		reap(pid)
		return nil, err
	}
	return &Child{PID: pid, Pidfd: pidfd, InCgroup: inCgroup}, nil
}

// What a report of the forked child says. The order is that of spawnStages.
const (
	reportPID = iota // the value is the pid of the second child
	reportJoin
	reportJoinUser
	reportTime
	reportOffsets
	reportFork
	reportWait
	reportSetgroups
	reportSetgid
	reportSetuid
	reportExec
)

var spawnStages = [...]string{
	reportPID: "", reportJoin: "setns", reportJoinUser: "setns user",
	reportTime: "unshare time", reportOffsets: "write timens_offsets", reportFork: "clone",
	reportWait: "read", reportSetgroups: "setgroups", reportSetgid: "setgid", reportSetuid: "setuid",
	reportExec: "execveat",
}

// stages returns the CLONE_NEW* bits for the clone of the first child and of the
// second; one is false where there is a second.
func (r *SpawnRequest) stages() (first, second uintptr, one bool) {
	others := r.New &^ unix.CLONE_NEWTIME
	switch {
	case len(r.Join) > 0 || r.JoinUser != nil:
		return 0, others, false
	case r.New != others:
		// The new user namespace is to own the time namespace, which the
		// caller may have no right to make.
		return others & unix.CLONE_NEWUSER, others &^ unix.CLONE_NEWUSER, false
	}
	return others, 0, true
}

// followSpawn reads the child's reports until its end of the pipe closes, which
// the successful execveat does, and returns the pid that is left.
func followSpawn(req *SpawnRequest, pid int, report io.Reader, proceed io.Writer) (int, error) {
	first, second, _ := req.stages()
	if first&unix.CLONE_NEWUSER != 0 {
		if err := mapAndProceed(req, pid, proceed); err != nil {
			reap(pid)
			return 0, err
		}
	}
	// The second child may have failed before the first one has said who it
	// is: only the end of the pipe says that all is told.
	var failure error
	for {
		stage, value, err := readReport(report)
		switch {
		case errors.Is(err, io.EOF) && failure != nil:
			reap(pid)
			return 0, failure
		case errors.Is(err, io.EOF):
			return pid, nil
		case err != nil:
			return 0, fmt.Errorf("read spawn report: %w", err)
		case stage == reportPID:
			reap(pid) // the first child: it leaves right after this report
			pid = value
			if second&unix.CLONE_NEWUSER == 0 {
				continue
			}
			if err := mapAndProceed(req, pid, proceed); err != nil {
				reap(pid)
				return 0, err
			}
		default:
			failure = os.NewSyscallError(spawnStages[stage], unix.Errno(value))
		}
	}
}

// mapAndProceed writes the id maps and tells the child to go on. On an error
// the child is killed and left to be reaped.
func mapAndProceed(req *SpawnRequest, pid int, proceed io.Writer) error {
	err := req.MapIDs(pid)
	if err == nil {
		_, err = proceed.Write([]byte{1})
	}
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return err
}

func readReport(r io.Reader) (stage, value int, err error) {
	var report [8]byte
	if _, err := io.ReadFull(r, report[:]); err != nil {
		return 0, 0, err
	}
	return int(binary.NativeEndian.Uint32(report[:4])), int(int32(binary.NativeEndian.Uint32(report[4:]))), nil
}

func reap(pid int) {
	_, _ = retry(func() (int, error) { return unix.Wait4(pid, nil, 0, nil) })
}

// descriptors returns the numbers of files and keeps them open until the
// returned function is called.
func descriptors(files []*os.File) ([]int, func()) {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	return fds, func() { runtime.KeepAlive(files) }
}
