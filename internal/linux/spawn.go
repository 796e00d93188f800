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
	// MapIDs writes the id maps of a new user namespace from outside; the
	// child waits for it. It is called only where New has CLONE_NEWUSER.
	MapIDs func(pid int) error
	// UID and GID are the ids with which the program starts in a user
	// namespace, new or joined; 0 keeps all capabilities there.
	UID, GID uint32

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
}

// SpawnIn starts a program in other namespaces and returns when it has been
// executed. The program's parent is the calling process.
//
// A threaded process cannot join a user namespace (EINVAL, setns(2)) and Go's
// always are, so the joining is done by a forked child that makes nothing but
// raw system calls. A process joins a pid namespace only for its children:
// where something is joined, the child forks again, with CLONE_PARENT, and
// leaves.
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

	pid, err := forkSpawn(&req, reportWrite, goRead)
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
		return nil, err
	}
	return &Child{PID: pid, Pidfd: pidfd}, nil
}

// What a report of the forked child says. The order is that of spawnStages.
const (
	reportPID = iota // the value is the pid of the second child
	reportJoin
	reportJoinUser
	reportFork
	reportWait
	reportSetgroups
	reportSetgid
	reportSetuid
	reportExec
)

var spawnStages = [...]string{
	reportPID: "", reportJoin: "setns", reportJoinUser: "setns user", reportFork: "clone",
	reportWait: "read", reportSetgroups: "setgroups", reportSetgid: "setgid", reportSetuid: "setuid",
	reportExec: "execveat",
}

// followSpawn reads the child's reports until its end of the pipe closes, which
// the successful execveat does, and returns the pid that is left.
func followSpawn(req *SpawnRequest, pid int, report io.Reader, proceed io.Writer) (int, error) {
	twoStages := len(req.Join) > 0 || req.JoinUser != nil
	if !twoStages {
		if err := mapAndProceed(req, pid, proceed); err != nil {
			reap(pid)
			return 0, err
		}
	}
	for {
		stage, value, err := readReport(report)
		switch {
		case errors.Is(err, io.EOF):
			return pid, nil
		case err != nil:
			return 0, fmt.Errorf("read spawn report: %w", err)
		case stage == reportPID:
			reap(pid) // the first child: it leaves right after this report
			pid = value
			if err := mapAndProceed(req, pid, proceed); err != nil {
				reap(pid)
				return 0, err
			}
		default:
			reap(pid)
			return 0, os.NewSyscallError(spawnStages[stage], unix.Errno(value))
		}
	}
}

// mapAndProceed writes the id maps and tells the child to go on. On an error
// the child dies, for it reads the end of the pipe.
func mapAndProceed(req *SpawnRequest, pid int, proceed io.Writer) error {
	if req.New&unix.CLONE_NEWUSER == 0 {
		return nil
	}
	if err := req.MapIDs(pid); err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		return err
	}
	_, err := proceed.Write([]byte{1})
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
