package integration

import (
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// profile is a seccomp profile that allows all but a few system calls.
func profile(rules ...specs.LinuxSyscall) edit {
	return func(spec *specs.Spec) {
		spec.Linux.Seccomp = &specs.LinuxSeccomp{
			DefaultAction: specs.ActAllow,
			Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32, specs.ArchAARCH64, specs.ArchARM},
			Syscalls:      rules,
		}
	}
}

func TestSeccomp(t *testing.T) {
	t.Parallel()
	eperm, enosys, errno := uint(1), uint(38), uint(99) // EADDRNOTAVAIL
	mkdir := []string{"mkdir", "mkdirat"}
	tests := []struct {
		name   string
		script string
		edit   edit
		want   string
	}{
		{"no profile", "mkdir /d && echo made; grep ^Seccomp: /proc/self/status | cut -f2", func(*specs.Spec) {}, "made\n0"},
		{"errno by default", "mkdir /d 2>&1; grep ^Seccomp: /proc/self/status | cut -f2", profile(specs.LinuxSyscall{Names: mkdir, Action: specs.ActErrno}), "mkdir: can't create directory '/d': Operation not permitted\n2"},
		{"errno given", "mkdir /d 2>&1 || true", profile(specs.LinuxSyscall{Names: mkdir, Action: specs.ActErrno, ErrnoRet: &errno}), "mkdir: can't create directory '/d': Cannot assign requested address"},
		{"kill", "mkdir /d 2>/dev/null; echo $?", profile(specs.LinuxSyscall{Names: mkdir, Action: specs.ActKillProcess}), "159"},
		{"unknown names", "mkdir /d && echo made", profile(specs.LinuxSyscall{Names: []string{"no_such_call"}, Action: specs.ActErrno}), "made"},
		{"argument", "chmod 700 /tmp && echo ok; chmod 4700 /tmp 2>&1 || true", profile(
			specs.LinuxSyscall{Names: []string{"chmod"}, Action: specs.ActErrno, ErrnoRet: &eperm, Args: []specs.LinuxSeccompArg{{Index: 1, Value: 0o4700, Op: specs.OpEqualTo}}},
			specs.LinuxSyscall{Names: []string{"fchmodat", "fchmodat2"}, Action: specs.ActErrno, ErrnoRet: &eperm, Args: []specs.LinuxSeccompArg{{Index: 2, Value: 0o4700, Op: specs.OpEqualTo}}},
		), "ok\nchmod: /tmp: Operation not permitted"},
		{"masked argument", "chmod 700 /tmp && echo ok; chmod 2711 /tmp 2>&1 || true", profile(
			specs.LinuxSyscall{Names: []string{"chmod"}, Action: specs.ActErrno, Args: []specs.LinuxSeccompArg{{Index: 1, Value: 0o7000, ValueTwo: 0o2000, Op: specs.OpMaskedEqual}}},
		), "ok\nchmod: /tmp: Operation not permitted"},
		{"default errno", "mkdir /d 2>&1 || true", func(spec *specs.Spec) {
			profile()(spec)
			spec.Linux.Seccomp.DefaultAction, spec.Linux.Seccomp.DefaultErrnoRet = specs.ActErrno, &enosys
			spec.Linux.Seccomp.Syscalls = []specs.LinuxSyscall{{Names: allButMkdir(), Action: specs.ActAllow}}
		}, "mkdir: can't create directory '/d': Function not implemented"},
		{"without no_new_privs", "grep -e ^NoNewPrivs -e ^Seccomp: /proc/self/status | cut -f2", both(profile(specs.LinuxSyscall{Names: mkdir, Action: specs.ActErrno}), func(spec *specs.Spec) { spec.Process.NoNewPrivileges = false }), "0\n2"},
		{"as another user", "mkdir /tmp/d 2>&1 || true", both(asUser(1000, 1000), profile(specs.LinuxSyscall{Names: mkdir, Action: specs.ActErrno})), "mkdir: can't create directory '/tmp/d': Operation not permitted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				equal(t, "output", l.output(tt.script, tt.edit), tt.want)
			})
		})
	}
}

// allButMkdir is what busybox and a runtime's last steps call.
func allButMkdir() []string {
	return strings.Fields(`read write open openat close stat fstat lstat newfstatat poll lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask
		rt_sigreturn ioctl pread64 pwrite64 readv writev access faccessat faccessat2 pipe pipe2 select dup dup2 dup3 getpid getuid getgid geteuid getegid getppid
		fork vfork clone clone3 execve exit exit_group wait4 kill uname fcntl getcwd chdir readlink readlinkat umask prlimit64 getrlimit set_tid_address
		set_robust_list rseq futex arch_prctl prctl sigaltstack getrandom sched_yield sched_getaffinity nanosleep clock_nanosleep clock_gettime
		epoll_create1 epoll_ctl epoll_pwait eventfd2 getdents64 capget capset setuid setgid setgroups setresuid setresgid keyctl tgkill gettid
		statfs fstatfs close_range openat2 madvise mremap setsid statx fchdir getpgrp setpgid restart_syscall`)
}

// TestSeccompPodman loads a profile as big as podman's default.
func TestSeccompPodman(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		big := func(spec *specs.Spec) {
			errno := uint(38)
			spec.Linux.Seccomp = &specs.LinuxSeccomp{
				DefaultAction: specs.ActErrno, DefaultErrnoRet: &errno,
				Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32},
				Syscalls:      []specs.LinuxSyscall{{Names: append(allButMkdir(), "mkdir", "mkdirat", "mount", "unshare"), Action: specs.ActAllow}},
			}
		}
		equal(t, "output", l.output("mkdir /d && rmdir /d 2>&1 || true; echo end", big), "rmdir: '/d': Function not implemented\nend")
	})
}
