//go:build cgo

package seccomp

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"eggrun/internal/need"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

func mustGuard(t testing.TB) *Filter {
	t.Helper()
	f, err := Guard("")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// guardedABI is an ABI that the guard has rules for here.
type guardedABI struct {
	abi
	lib libseccomp.ScmpArch
}

func guardedABIs(t *testing.T) []guardedABI {
	t.Helper()
	names, err := guardABIs(runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	var list []guardedABI
	for _, name := range names {
		a := abis[slices.IndexFunc(abis, func(a abi) bool { return a.name == name })]
		lib, err := libseccomp.GetArchFromString(a.lib)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, guardedABI{a, lib})
	}
	return list
}

// number returns the number of a call, or false if the ABI does not have it.
func (a guardedABI) number(name string) (uint32, bool) {
	// libseccomp names these by their place in socketcall(2) there.
	if direct := map[string]uint32{"socket": 359, "socketpair": 360}[name]; direct != 0 && a.audit == unix.AUDIT_ARCH_I386 {
		return direct, true
	}
	nr, err := libseccomp.GetSyscallFromNameByArch(name, a.lib)
	return uint32(nr), err == nil && nr >= 0
}

// TestGuardCalls goes through every call of every ABI.
func TestGuardCalls(t *testing.T) {
	t.Parallel()
	denied := map[uint32]string{
		retErrno(unix.EPERM): `mount umount umount2 pivot_root fsopen fsconfig fsmount fspick move_mount open_tree mount_setattr
			setns open_by_handle_at ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp userfaultfd perf_event_open bpf
			lookup_dcookie add_key request_key keyctl reboot swapon swapoff kexec_load kexec_file_load init_module finit_module
			delete_module acct quotactl quotactl_fd clock_settime clock_settime64 settimeofday stime iopl ioperm modify_ldt vm86
			vm86old uselib nfsservctl`,
		retENOSYS: "clone3 io_uring_setup io_uring_enter io_uring_register socketcall open_tree_attr",
		// Families and flags are 0 here: AF_UNSPEC is not on the list.
		retErrno(unix.EAFNOSUPPORT): "socket socketpair",
	}
	judge := newVM(t, mustGuard(t))
	for _, a := range guardedABIs(t) {
		t.Run(string(a.name), func(t *testing.T) {
			want := map[uint32]uint32{}
			for ret, names := range denied {
				for _, name := range strings.Fields(names) {
					if nr, ok := a.number(name); ok {
						want[nr] = ret
					}
				}
			}
			if len(want) < 40 {
				t.Fatalf("only %d of the calls exist", len(want))
			}
			for nr := range uint32(guardNewest + 1) {
				if _, ok := want[nr]; !ok {
					want[nr] = unix.SECCOMP_RET_ALLOW
				}
			}
			for _, nr := range []uint32{guardNewest + 1, 999, 100_000} {
				want[nr] = retENOSYS
			}
			for nr, want := range want {
				if got := judge(a.audit, nr); got != want {
					name, _ := libseccomp.ScmpSyscall(nr).GetNameByArch(a.lib)
					t.Errorf("%s (%d): %#x, want %#x", name, nr, got, want)
				}
			}
		})
	}
}

func TestGuardOtherABIs(t *testing.T) {
	t.Parallel()
	judge := newVM(t, mustGuard(t))
	const noSuchABI = 0x12345678
	others := []uint32{noSuchABI, unix.AUDIT_ARCH_PPC}
	for _, audit := range others {
		for _, nr := range []uint32{0, 1, 41, 102, 466, 999} {
			if got := judge(audit, nr); got != retENOSYS {
				t.Errorf("arch %#x call %d: %#x, want ENOSYS", audit, nr, got)
			}
		}
	}
	needAMD64(t)
	for nr := range uint32(600) {
		if got := judge(unix.AUDIT_ARCH_X86_64, nr|x32Bit); got != retENOSYS {
			t.Errorf("x32 call %d: %#x, want ENOSYS", nr, got)
		}
	}
}

// TestGuardArguments sets the upper halves of registers that the kernel cuts off.
func TestGuardArguments(t *testing.T) {
	t.Parallel()
	const high = 0xdeadbeef << 32
	type argCase struct {
		name string
		args []uint64
		want uint32
	}
	var tests []argCase
	add := func(want uint32, name string, args ...uint64) { tests = append(tests, argCase{name, args, want}) }

	for family := range uint64(64) {
		want := retErrno(unix.EAFNOSUPPORT)
		if slices.Contains([]uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}, family) {
			want = unix.SECCOMP_RET_ALLOW
		}
		for _, name := range []string{"socket", "socketpair"} {
			add(want, name, family, 1)
			add(want, name, family|high, 1)
		}
	}
	for _, family := range []uint64{0xffffffff, 1 << 31, 1<<31 | unix.AF_INET, 1<<16 | unix.AF_UNIX} {
		add(retErrno(unix.EAFNOSUPPORT), "socket", family)
	}
	// What goes by the name of a family that is on the list.
	for kind := range uint64(16) {
		want := map[bool]uint32{true: retErrno(unix.EAFNOSUPPORT), false: unix.SECCOMP_RET_ALLOW}[kind == unix.SOCK_PACKET]
		for _, flags := range []uint64{0, unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, high} {
			add(want, "socket", unix.AF_INET, kind|flags, 0)
		}
	}
	for _, protocol := range []uint64{unix.IPPROTO_SMC, unix.IPPROTO_SMC | high} {
		add(retErrno(unix.EAFNOSUPPORT), "socket", unix.AF_INET, 1, protocol)
		add(retErrno(unix.EAFNOSUPPORT), "socket", unix.AF_INET6, 1, protocol)
	}
	for _, protocol := range []uint64{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_MPTCP, unix.IPPROTO_SMC + 1} {
		add(unix.SECCOMP_RET_ALLOW, "socket", unix.AF_INET, 1, protocol)
	}
	for bit := range 32 {
		flag := uint64(1) << bit
		want := uint32(unix.SECCOMP_RET_ALLOW)
		if flag&(unix.CLONE_NEWNS|unix.CLONE_NEWCGROUP|unix.CLONE_NEWUTS|unix.CLONE_NEWIPC|unix.CLONE_NEWUSER|unix.CLONE_NEWPID|unix.CLONE_NEWNET) != 0 {
			want = retErrno(unix.EPERM)
		}
		add(want, "clone", flag|uint64(unix.SIGCHLD), 0)
		add(want, "clone", flag|uint64(unix.SIGCHLD)|high, 0)
		want = retErrno(unix.EPERM)
		if flag&(unix.CLONE_FILES|unix.CLONE_FS|unix.CLONE_SYSVSEM|unix.CLONE_VM|unix.CLONE_SIGHAND|unix.CLONE_THREAD) != 0 {
			want = unix.SECCOMP_RET_ALLOW
		}
		add(want, "unshare", flag)
		add(want, "unshare", flag|unix.CLONE_FS)
	}
	add(retErrno(unix.EPERM), "unshare", unix.CLONE_FS|unix.CLONE_NEWTIME)
	for _, cmd := range []uint64{unix.TIOCSTI, unix.TIOCLINUX} {
		add(retErrno(unix.EPERM), "ioctl", 0, cmd)
		add(retErrno(unix.EPERM), "ioctl", 0, cmd|high)
	}
	for _, cmd := range []uint64{unix.TCGETS, unix.TIOCGWINSZ, unix.TIOCSCTTY, unix.TIOCSTI + 1, unix.TIOCSTI - 1} {
		add(unix.SECCOMP_RET_ALLOW, "ioctl", 0, cmd)
	}

	judge := newVM(t, mustGuard(t))
	for _, a := range guardedABIs(t) {
		t.Run(string(a.name), func(t *testing.T) {
			for _, tt := range tests {
				nr, ok := a.number(tt.name)
				if !ok {
					t.Fatalf("no number for %s", tt.name)
				}
				if got := judge(a.audit, nr, tt.args...); got != tt.want {
					t.Errorf("%s(%#x): %#x, want %#x", tt.name, tt.args, got, tt.want)
				}
			}
			if nr, _ := a.number("unshare"); strings.Contains(a.abi.lib, "64") {
				if got := judge(a.audit, nr, 1<<37); got != retErrno(unix.EPERM) {
					t.Errorf("unshare of a flag to come: %#x", got)
				}
			}
		})
	}
}

func TestGuardForOtherMachines(t *testing.T) {
	t.Parallel()
	for _, goarch := range []string{"386", "amd64", "arm", "arm64", "loong64", "ppc64le", "riscv64", "s390x"} {
		profile, err := guardProfile(goarch)
		if err != nil {
			t.Errorf("%s: %v", goarch, err)
			continue
		}
		for _, sc := range profile.Syscalls {
			if want := map[bool]uint{true: 1}[goarch == "s390x"]; sc.Names[0] == "clone" && sc.Args[0].Index != want {
				t.Errorf("%s: the flags of clone are argument %d", goarch, want)
			}
		}
	}
	if _, err := guardProfile("mips64"); err == nil || err.Error() != "guard filter: no rules for mips64" {
		t.Errorf("mips64: %v", err)
	}
}

func TestNoneOf(t *testing.T) {
	t.Parallel()
	values := []uint32{1, 2, 10, 16, 0xffffffff}
	args := noneOf(3, values)
	for _, v := range []uint32{0, 1, 2, 3, 4, 9, 10, 11, 15, 16, 17, 255, 1 << 16, 1 << 31, 0xfffffffe, 0xffffffff} {
		hits := 0
		for _, arg := range args {
			if arg.Index != 3 || arg.Value>>32 != 0 {
				t.Fatalf("condition %+v", arg)
			}
			if uint64(v)&arg.Value == arg.ValueTwo {
				hits++
			}
		}
		if want := map[bool]int{false: 1}[slices.Contains(values, v)]; hits != want {
			t.Errorf("%#x: %d conditions hold, want %d", v, hits, want)
		}
	}
}

// attack is a call that works, or at least gets as far as the kernel's own
// checks, without the guard.
type attack struct {
	name string
	ops  []string // the last one counts
	want unix.Errno
}

// TestGuardStopsAttacks makes each call with and without the guard.
func TestGuardStopsAttacks(t *testing.T) {
	t.Parallel()
	need.Root(t) // without, the kernel answers EPERM to most of these itself
	const bad = -1
	high := func(v uint64) string { return fmt.Sprintf("%#x", v|0xdeadbeef<<32) }
	n := func(nr int, args ...any) []string { return []string{call("n", nr, args...)} }
	attacks := []attack{
		{"packet socket", n(unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW, 0), unix.EAFNOSUPPORT},
		{"packet socket, upper half", n(unix.SYS_SOCKET, high(unix.AF_PACKET), unix.SOCK_RAW, 0), unix.EAFNOSUPPORT},
		{"packet socket, old", n(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_PACKET, 0), unix.EAFNOSUPPORT},
		{"SMC", n(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SMC), unix.EAFNOSUPPORT},
		{"vsock", n(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM, 0), unix.EAFNOSUPPORT},
		{"io_uring", n(unix.SYS_IO_URING_SETUP, 0, 0), unix.ENOSYS},
		{"io_uring_register", n(unix.SYS_IO_URING_REGISTER, bad, 0), unix.ENOSYS},
		{"namespace by unshare", n(unix.SYS_UNSHARE, unix.CLONE_NEWNET), unix.EPERM},
		{"namespace by clone", n(unix.SYS_CLONE, unix.CLONE_NEWUTS|uint64(unix.SIGCHLD)), unix.EPERM},
		{"namespace by clone, upper half", n(unix.SYS_CLONE, high(unix.CLONE_NEWUTS|uint64(unix.SIGCHLD))), unix.EPERM},
		{"clone3", n(unix.SYS_CLONE3, 0, 0), unix.ENOSYS},
		{"setns", n(unix.SYS_SETNS, bad, 0), unix.EPERM},
		{"mount", n(unix.SYS_MOUNT, 0, bad, 0, 0, 0), unix.EPERM},
		{"umount", n(unix.SYS_UMOUNT2, bad, 0), unix.EPERM},
		{"pivot_root", n(unix.SYS_PIVOT_ROOT, bad, bad), unix.EPERM},
		{"fsopen", n(unix.SYS_FSOPEN, bad, 0), unix.EPERM},
		{"open_tree", n(unix.SYS_OPEN_TREE, bad, bad, 0), unix.EPERM},
		{"open_tree_attr", n(467, bad, bad, 0), unix.ENOSYS},
		{"mount_setattr", n(unix.SYS_MOUNT_SETATTR, bad, 0, 0, 0, 0), unix.EPERM},
		{"ptrace", n(unix.SYS_PTRACE, unix.PTRACE_TRACEME), unix.EPERM},
		{"process_vm_readv", n(unix.SYS_PROCESS_VM_READV, bad, 0, 0, 0, 0, 0), unix.EPERM},
		{"pidfd_getfd", n(unix.SYS_PIDFD_GETFD, bad, 0, 0), unix.EPERM},
		{"keyctl", n(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, bad, 0), unix.EPERM},
		{"bpf", n(unix.SYS_BPF, bad, 0, 0), unix.EPERM},
		{"userfaultfd", n(unix.SYS_USERFAULTFD, bad), unix.EPERM},
		{"open_by_handle_at", n(unix.SYS_OPEN_BY_HANDLE_AT, bad, 0, 0), unix.EPERM},
		{"reboot", n(unix.SYS_REBOOT, 0, 0, 0, 0), unix.EPERM},
		{"typing", n(unix.SYS_IOCTL, bad, unix.TIOCSTI, "@0"), unix.EPERM},
		{"typing, upper half", n(unix.SYS_IOCTL, bad, high(unix.TIOCSTI), "@0"), unix.EPERM},
		{"pasting", n(unix.SYS_IOCTL, bad, high(unix.TIOCLINUX), "@0"), unix.EPERM},
	}
	checkAttacks(t, attacks)
}

// TestGuardStopsI386Attacks makes 64-bit programs change to the i386 ABI.
func TestGuardStopsI386Attacks(t *testing.T) {
	t.Parallel()
	needI386(t)
	const socketcall, socket, unshare, ioctl, mount = 102, 359, 310, 54, 21
	const sysSocket = 1
	viaMemory := func(family int) []string {
		return []string{
			fmt.Sprintf("w:0:%d", family), "w:4:1", "w:8:0",
			call("i", socketcall, sysSocket, "@0"),
		}
	}
	checkAttacks(t, []attack{
		{"socketcall", viaMemory(unix.AF_UNIX), unix.ENOSYS},
		{"socketcall packet", viaMemory(unix.AF_PACKET), unix.ENOSYS},
		{"socket", []string{call("i", socket, unix.AF_PACKET, unix.SOCK_RAW, 0)}, unix.EAFNOSUPPORT},
		{"mount", []string{call("i", mount, 0, "0xfffff000", 0, 0, 0)}, unix.EPERM},
		{"unshare", []string{call("i", unshare, unix.CLONE_NEWUTS)}, unix.EPERM},
		{"typing", []string{call("i", ioctl, -1, unix.TIOCSTI, 0)}, unix.EPERM},
	})
}

func checkAttacks(t *testing.T, attacks []attack) {
	guard := mustGuard(t)
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			free := runProbe(t, nil, a.ops...)
			need.That(t, "attack "+a.name, func() error {
				if free[len(free)-1] == errnoLine(a.want) {
					return fmt.Errorf("the kernel answers %v without the guard", a.want)
				}
				return nil
			})
			guarded := runProbe(t, []*Filter{guard}, a.ops...)
			if got := guarded[len(guarded)-1]; got != errnoLine(a.want) {
				t.Errorf("got %s, want %d (without the guard %s)", got, -int(a.want), free[len(free)-1])
			}
		})
	}
}

// TestGuardLetsProgramsRun starts what uses threads, processes, sockets and pipes.
func TestGuardLetsProgramsRun(t *testing.T) {
	t.Parallel()
	guard := []*Filter{mustGuard(t)}
	got := runProbe(t, guard,
		"p",
		call("n", unix.SYS_UNSHARE, unix.CLONE_FS|unix.CLONE_FILES),
		call("n", unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM, 0, "@0"),
		call("n", unix.SYS_SECCOMP, unix.SECCOMP_GET_NOTIF_SIZES, 0, "@0"),
	)
	if want := []string{"0", "0", "0", "0"}; !slices.Equal(got, want) {
		t.Errorf("probe: %q, want %q", got, want)
	}
	for _, nr := range []string{"1", "2", "10", "16", "0xdeadbeef00000002"} {
		if got := runProbe(t, guard, call("n", unix.SYS_SOCKET, nr, unix.SOCK_DGRAM, 0)); strings.HasPrefix(got[0], "-") {
			t.Errorf("socket family %s: %s", nr, got[0])
		}
	}
	for _, tt := range []struct {
		argv []string
		want string
	}{
		{[]string{"/bin/sh", "-c", "ls / | cat >/dev/null && (exit 3); echo $?"}, "3"},
		{[]string{"/proc/self/exe"}, "hello"}, // a Go program: the child becomes this binary again
	} {
		if out := run(t, guard, tt.argv...); out.status != 0 || !slices.Equal(out.lines, []string{tt.want}) {
			t.Errorf("%q: %+v, want %s", tt.argv, out, tt.want)
		}
	}
}

// TestGuardBesidesProfile loads both with a profile that denies seccomp(2): the
// guard has to be first.
func TestGuardBesidesProfile(t *testing.T) {
	t.Parallel()
	need.Root(t)
	profile := mustCompile(t, allowing("SCMP_ACT_ERRNO", "unshare", "getppid"))
	ops := []string{call("n", unix.SYS_UNSHARE, unix.CLONE_NEWUTS), call("n", unix.SYS_GETCWD, 0, 0), call("n", unix.SYS_GETPPID)}
	if got := runProbe(t, []*Filter{mustGuard(t), profile}, ops...); got[0] != "-1" || got[1] != "-1" || strings.HasPrefix(got[2], "-") {
		t.Errorf("both: %q, want the denials of both", got)
	}
	if got := runProbe(t, []*Filter{profile}, ops...); got[0] != "0" {
		t.Errorf("profile alone: %q, want unshare to work", got)
	}
	if out := run(t, []*Filter{profile, mustGuard(t)}, "/bin/true"); !strings.Contains(out.stderr, "an outer filter may forbid it") {
		t.Errorf("the other way round: %+v", out)
	}
}
