package egress

import (
	"runtime"

	"eggrun/internal/seccomp"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// calls are the system calls that a sidecar makes: those of Go's runtime and
// network poller, of reading files, and of sockets. Neither execve(2) nor any
// that looks into other processes, makes namespaces or mounts is among them.
// What needs a look at the arguments is in [sidecarFilter].
var calls = []string{
	// Files that are open, and the runtime's pipes and events.
	"read", "write", "readv", "writev", "pread64", "pwrite64", "close", "lseek", "fstat", "fstat64",
	"newfstatat", "fstatat64", "statfs", "statfs64", "ftruncate", "ftruncate64", "fcntl", "fcntl64", "flock", "pipe2", "splice", "sendfile", "sendfile64",
	"eventfd2", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "poll", "ppoll", "ppoll_time64",
	// Sockets.
	"connect", "bind", "getsockname", "getpeername", "getsockopt", "setsockopt", "accept4", "shutdown",
	"sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg", "recvmmsg",
	// Memory, threads, signals and time.
	"munmap", "mremap", "madvise", "mincore", "brk", "futex", "futex_time64", "sched_yield", "sched_getaffinity",
	"set_robust_list", "rseq", "membarrier", "exit", "exit_group", "gettid", "getpid", "tgkill",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigreturn", "rt_sigtimedwait", "sigaltstack", "restart_syscall",
	"nanosleep", "clock_nanosleep", "clock_nanosleep_time64", "clock_gettime", "clock_gettime64", "gettimeofday",
	"getuid", "geteuid", "getgid", "getegid", "getuid32", "geteuid32", "getgid32", "getegid32",
	"capget", "getrandom", "uname", "prlimit64", "getrlimit", "ugetrlimit",
}

// sidecarFilter is the sidecar's allow-list. cacheDir is as for
// [seccomp.Compile].
func sidecarFilter(cacheDir string) (*seccomp.Filter, error) {
	eperm, enosys := uint(unix.EPERM), uint(unix.ENOSYS)
	cloneFlags := uint(0)
	if runtime.GOARCH == "s390x" {
		cloneFlags = 1 // the stack comes first there
	}
	allow := func(name string, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
		return specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: args}
	}
	is := func(index uint, value uint64) specs.LinuxSeccompArg {
		return specs.LinuxSeccompArg{Index: index, Op: specs.OpEqualTo, Value: value}
	}
	under := func(index uint, mask, value uint64) specs.LinuxSeccompArg {
		return specs.LinuxSeccompArg{Index: index, Op: specs.OpMaskedEqual, Value: mask, ValueTwo: value}
	}
	const (
		toWrite   = unix.O_ACCMODE | unix.O_CREAT | unix.O_TRUNC
		namespace = unix.CLONE_NEWNS | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	)
	profile := &specs.LinuxSeccomp{
		DefaultAction:   specs.ActErrno,
		DefaultErrnoRet: &eperm,
		Syscalls: []specs.LinuxSyscall{
			{Names: calls, Action: specs.ActAllow},
			allow("socket", is(0, unix.AF_INET)),
			allow("socket", is(0, unix.AF_INET6)),
			// Addresses and routes are asked for, and nothing else.
			allow("socket", is(0, unix.AF_NETLINK), is(2, unix.NETLINK_ROUTE)),
			allow("openat", under(2, toWrite, unix.O_RDONLY)),
			// Threads, no processes. The arguments of clone3(2) lie in memory.
			allow("clone", under(cloneFlags, unix.CLONE_THREAD|namespace, unix.CLONE_THREAD)),
			{Names: []string{"clone3"}, Action: specs.ActErrno, ErrnoRet: &enosys},
			// Nothing that was written is executed.
			allow("mmap", under(2, unix.PROT_EXEC, 0)),
			allow("mmap2", under(2, unix.PROT_EXEC, 0)),
			allow("mprotect", under(2, unix.PROT_EXEC, 0)),
			// The runtime names its memory; the rest is for checkCaged.
			allow("prctl", is(0, unix.PR_SET_VMA)),
			allow("prctl", is(0, unix.PR_GET_NO_NEW_PRIVS)),
			allow("prctl", is(0, unix.PR_SET_DUMPABLE), is(1, 0)),
		},
	}
	return seccomp.Compile(profile, cacheDir)
}
