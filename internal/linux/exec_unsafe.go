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

// RawRead is read(2), likewise.
func RawRead(fd int, data []byte) (n int, errno syscall.Errno) {
	r, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)))
	return int(r), errno
}

//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// HoldThread keeps the calling goroutine, which is locked to its thread, running
// there until [ReleaseThread]: the Go scheduler takes it off for nobody. To put
// such a goroutine on its thread again takes another thread, which Go may have
// to start, and where no process can be started that is the end of this one.
//
// In between nothing may block, and all system calls must be raw ones.
func HoldThread() { procPin() }

// ReleaseThread ends what [HoldThread] began.
func ReleaseThread() { procUnpin() }

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
