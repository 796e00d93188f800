package linux

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Exec is a program with its arguments, ready to be executed by one system call.
type Exec struct {
	path      *byte
	argv, env []*byte
}

// PrepareExec makes everything that [Exec.Run] needs.
func PrepareExec(path string, argv, env []string) (*Exec, error) {
	pathPtr, err := unix.BytePtrFromString(path)
	if err != nil {
		return nil, err
	}
	argvPtrs, err := syscall.SlicePtrFromStrings(argv)
	if err != nil {
		return nil, err
	}
	envPtrs, err := syscall.SlicePtrFromStrings(env)
	if err != nil {
		return nil, err
	}
	return &Exec{path: pathPtr, argv: argvPtrs, env: envPtrs}, nil
}

// Run executes the program in place of this process, by the calling thread, and
// returns only the errno of a failure. Unlike [syscall.Exec] it leaves
// RLIMIT_NOFILE as it is. It allocates nothing.
func (e *Exec) Run() syscall.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(e.path)),
		uintptr(unsafe.Pointer(&e.argv[0])), uintptr(unsafe.Pointer(&e.env[0])))
	return errno
}

// RawWrite is write(2) by the calling thread, which the Go runtime does not learn
// of: around an ordinary one it may wake another thread, by a futex(2) that a
// filter then hands to an agent. It allocates nothing; data must not be empty.
func RawWrite(fd int, data []byte) syscall.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)))
	return errno
}

// ExecFile executes an open file in place of this process (O_PATH will do), with
// the rights of the calling thread. It returns only an error.
func ExecFile(exe *os.File, argv, env []string) error {
	program, err := PrepareExec("", argv, env)
	if err != nil {
		return err
	}
	RestoreNOFILE()
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, exe.Fd(), uintptr(unsafe.Pointer(program.path)),
		uintptr(unsafe.Pointer(&program.argv[0])), uintptr(unsafe.Pointer(&program.env[0])), unix.AT_EMPTY_PATH, 0)
	return os.NewSyscallError("execveat", errno)
}
