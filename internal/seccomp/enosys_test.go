//go:build cgo

package seccomp

import (
	"fmt"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// runtimeCalls is what the test binary and the probe need to get through a
// filter that denies by default.
var runtimeCalls = []string{
	"access", "arch_prctl", "brk", "close", "clone", "clone3", "dup", "execve", "exit", "exit_group", "fcntl", "fstat",
	"futex", "getpid", "getrandom", "getrlimit", "gettid", "madvise", "mmap", "mprotect", "munmap", "nanosleep",
	"newfstatat", "openat", "prctl", "pread64", "prlimit64", "read", "readlink", "readlinkat", "rseq", "rt_sigaction",
	"rt_sigprocmask", "rt_sigreturn", "sched_yield", "set_robust_list", "set_tid_address", "sigaltstack", "tgkill", "write", "writev",
}

func allowing(action specs.LinuxSeccompAction, names ...string) *specs.LinuxSeccomp {
	return &specs.LinuxSeccomp{
		DefaultAction: action,
		Syscalls:      []specs.LinuxSyscall{{Names: append(names, runtimeCalls...), Action: specs.ActAllow}},
	}
}

func TestNewerCallsAnswerENOSYS(t *testing.T) {
	t.Parallel()
	profile := allowing(specs.ActErrno, "openat2") // 437
	profile.DefaultErrnoRet = ptr(uint(testErrno))
	ops := []string{
		call("n", unix.SYS_GETPPID),     // old, not listed
		call("n", unix.SYS_OPENAT2),     // listed
		call("n", unix.SYS_PIDFD_GETFD), // 438
		call("n", 999),                  // nobody has it
		call("n", unix.SYS_PIDFD_OPEN),  // 434, not listed
	}
	want := []string{errnoLine(testErrno), errnoLine(unix.EINVAL), errnoLine(unix.ENOSYS), errnoLine(unix.ENOSYS), errnoLine(testErrno)}
	if got := runProbe(t, []*Filter{mustCompile(t, profile)}, ops...); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// Control: the kernel does have pidfd_getfd.
	if got := runProbe(t, nil, call("n", unix.SYS_PIDFD_GETFD, -1)); got[0] != errnoLine(unix.EBADF) {
		t.Errorf("pidfd_getfd without a filter: %q", got)
	}
}

func TestNewerCallsByDefaultAction(t *testing.T) {
	t.Parallel()
	tests := []struct {
		action specs.LinuxSeccompAction
		want   uint32
	}{
		{specs.ActErrno, retENOSYS},
		{specs.ActKill, retENOSYS},
		{specs.ActKillProcess, retENOSYS},
		{specs.ActTrap, retENOSYS},
		// These let calls through: nothing is to be softened.
		{specs.ActAllow, unix.SECCOMP_RET_ALLOW},
		{specs.ActLog, unix.SECCOMP_RET_LOG},
		{specs.ActTrace, unix.SECCOMP_RET_TRACE | uint32(unix.EPERM)},
	}
	for _, tt := range tests {
		t.Run(string(tt.action), func(t *testing.T) {
			t.Parallel()
			f := mustCompile(t, &specs.LinuxSeccomp{
				DefaultAction: tt.action,
				Syscalls:      []specs.LinuxSyscall{{Names: []string{"getppid"}, Action: specs.ActErrno, ErrnoRet: ptr(uint(testErrno))}},
			})
			if got := verdict(t, f, nativeAudit(t), 999); got != tt.want {
				t.Errorf("call 999: %#x, want %#x", got, tt.want)
			}
		})
	}
	t.Run("no names at all", func(t *testing.T) {
		t.Parallel()
		f := mustCompile(t, &specs.LinuxSeccomp{DefaultAction: specs.ActErrno})
		if got := verdict(t, f, nativeAudit(t), 999); got != retErrno(unix.EPERM) {
			t.Errorf("call 999: %#x, want EPERM: nothing says how new the profile is", got)
		}
	})
}

// TestCeilingPerABI has a profile whose newest call differs from ABI to ABI.
func TestCeilingPerABI(t *testing.T) {
	t.Parallel()
	needAMD64(t)
	f := mustCompile(t, &specs.LinuxSeccomp{
		DefaultAction: specs.ActErrno,
		Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32},
		Syscalls:      []specs.LinuxSyscall{{Names: []string{"renameat2", "execveat"}, Action: specs.ActAllow}},
	})
	tests := []struct {
		audit, nr uint32
		want      uint32
	}{
		{unix.AUDIT_ARCH_X86_64, 322, unix.SECCOMP_RET_ALLOW}, // execveat
		{unix.AUDIT_ARCH_X86_64, 321, retErrno(unix.EPERM)},
		{unix.AUDIT_ARCH_X86_64, 323, retENOSYS},
		{unix.AUDIT_ARCH_I386, 358, unix.SECCOMP_RET_ALLOW}, // execveat
		{unix.AUDIT_ARCH_I386, 323, retErrno(unix.EPERM)},
		{unix.AUDIT_ARCH_I386, 359, retENOSYS},
		{unix.AUDIT_ARCH_X86_64, 545 | x32Bit, unix.SECCOMP_RET_ALLOW}, // execveat
		{unix.AUDIT_ARCH_X86_64, 323 | x32Bit, retErrno(unix.EPERM)},
		{unix.AUDIT_ARCH_X86_64, 546 | x32Bit, retENOSYS},
		{unix.AUDIT_ARCH_AARCH64, 9999, unix.SECCOMP_RET_KILL_THREAD},
	}
	for _, tt := range tests {
		if got := verdict(t, f, tt.audit, tt.nr); got != tt.want {
			t.Errorf("arch %#x call %#x: %#x, want %#x", tt.audit, tt.nr, got, tt.want)
		}
	}
}

// TestPrologue judges ABIs that libseccomp would not put beside this machine's.
func TestPrologue(t *testing.T) {
	t.Parallel()
	byName := func(name specs.Arch) abi {
		return abis[slices.IndexFunc(abis, func(a abi) bool { return a.name == name })]
	}
	const through = unix.SECCOMP_RET_TRAP // what stands for the filter behind
	program, err := assemble(append(enosysPrologue([]ceiling{
		{byName(specs.ArchX86_64), 400}, {byName(specs.ArchX32), 500 | x32Bit}, {byName(specs.ArchARM), 300},
		{byName(specs.ArchS390X), 200}, {byName(specs.ArchAARCH64), 100},
	}), bpf.RetConstant{Val: through}))
	if err != nil {
		t.Fatal(err)
	}
	judge := newVM(t, &Filter{Program: program})
	tests := []struct {
		audit, nr uint32
		want      uint32
	}{
		{unix.AUDIT_ARCH_X86_64, 0, through},
		{unix.AUDIT_ARCH_X86_64, 400, through},
		{unix.AUDIT_ARCH_X86_64, 401, retENOSYS},
		{unix.AUDIT_ARCH_X86_64, x32Bit, through},
		{unix.AUDIT_ARCH_X86_64, 500 | x32Bit, through},
		{unix.AUDIT_ARCH_X86_64, 501 | x32Bit, retENOSYS},
		{unix.AUDIT_ARCH_ARM, 300, through},
		{unix.AUDIT_ARCH_ARM, 301, retENOSYS},
		{unix.AUDIT_ARCH_ARM, 0x0effff, retENOSYS},
		{unix.AUDIT_ARCH_ARM, 0x0f0005, through}, // set_tls
		{unix.AUDIT_ARCH_S390X, 0, retENOSYS},
		{unix.AUDIT_ARCH_S390X, 1, through},
		{unix.AUDIT_ARCH_S390X, 201, retENOSYS},
		{unix.AUDIT_ARCH_AARCH64, 0, through},
		{unix.AUDIT_ARCH_AARCH64, 101, retENOSYS},
		{unix.AUDIT_ARCH_RISCV64, 101, through},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%#x/%d", tt.audit, tt.nr), func(t *testing.T) {
			if got := judge(tt.audit, tt.nr); got != tt.want {
				t.Errorf("got %#x, want %#x", got, tt.want)
			}
		})
	}
}
