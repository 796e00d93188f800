package seccomp

import (
	"fmt"
	"runtime"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// guardNewest is the last system call that the lists below were checked against:
// removexattrat(2), Linux 6.13. The next one is open_tree_attr(2), a way to
// mount. From 424 on all ABIs of the guard number their calls alike.
const guardNewest = 466

// Guard returns the filter that containers with a policy get besides their
// profile's, and that the stand-alone wrapper gets: what could lead around the
// wall that the policy is, whatever the profile and the capabilities allow.
// cacheDir is as for [Compile].
//
// It lets everything through but:
//
//   - socket(2) and socketpair(2) of families other than AF_UNIX, AF_INET,
//     AF_INET6 and AF_NETLINK, which the network namespace may not confine:
//     EAFNOSUPPORT, as if the kernel had no such family. The same for the two
//     that go by the name of AF_INET: AF_PACKET as SOCK_PACKET, and AF_SMC, which
//     leaves TCP for RDMA, as IPPROTO_SMC.
//   - New namespaces and mounts, looking into other processes, kernel-wide
//     state, and typing into the terminal (TIOCSTI, TIOCLINUX): EPERM.
//   - What a filter cannot look into, because the arguments lie in memory:
//     clone3(2), io_uring, and socketcall(2) of 32-bit programs: ENOSYS. On that
//     glibc falls back to clone(2) and socket(2), and what prefers io_uring to
//     epoll or threads, as it does on kernels without; EPERM it would rather
//     report.
//   - Every call newer than Linux 6.13: ENOSYS.
//   - The x32 ABI, and any other that the machine may have: ENOSYS, which is
//     what kernels without x32 answer.
//
// chroot(2) is let through: it does not lead out of a mount namespace.
// adjtimex(2) and clock_adjtime(2) too, for they also read; to set the clock
// takes CAP_SYS_TIME.
func Guard(cacheDir string) (*Filter, error) {
	profile, err := guardProfile(runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	rs, err := parse(profile)
	if err != nil {
		return nil, err
	}
	rs.badArch = retENOSYS
	rs.newest = guardNewest
	return cached(cacheDir, "guard", profile, func() (*Filter, error) { return build(rs) })
}

// guardABIs returns the ABIs that the guard has rules for: the machine's own and
// the 32-bit one beside it.
func guardABIs(goarch string) ([]specs.Arch, error) {
	switch goarch {
	case "386":
		return []specs.Arch{specs.ArchX86}, nil
	case "amd64":
		return []specs.Arch{specs.ArchX86_64, specs.ArchX86}, nil
	case "arm":
		return []specs.Arch{specs.ArchARM}, nil
	case "arm64":
		return []specs.Arch{specs.ArchAARCH64, specs.ArchARM}, nil
	case "loong64":
		return []specs.Arch{specs.ArchLOONGARCH64}, nil
	case "ppc64le":
		return []specs.Arch{specs.ArchPPC64LE}, nil
	case "riscv64":
		return []specs.Arch{specs.ArchRISCV64}, nil
	case "s390x":
		return []specs.Arch{specs.ArchS390X, specs.ArchS390}, nil
	}
	// MIPS numbers its calls from an offset, which guardNewest does not know.
	return nil, fmt.Errorf("guard filter: no rules for %s", goarch)
}

// guardEPERM are the calls that the guard denies whatever their arguments.
var guardEPERM = []string{
	// Mounts.
	"mount", "umount", "umount2", "pivot_root", "fsopen", "fsconfig", "fsmount", "fspick",
	"move_mount", "open_tree", "open_tree_attr", "mount_setattr",
	"open_by_handle_at", // takes files out of mounts that are not here
	"setns",
	// Other processes: one outside the wall may share the user or the PID namespace.
	"ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp",
	"userfaultfd", // holds the kernel up at a place of the attacker's choice
	"perf_event_open", "bpf", "lookup_dcookie",
	"add_key", "request_key", "keyctl", // keyrings have no namespace
	// The machine.
	"reboot", "swapon", "swapoff", "kexec_load", "kexec_file_load",
	"init_module", "finit_module", "delete_module", "acct", "quotactl", "quotactl_fd",
	"clock_settime", "clock_settime64", "settimeofday", "stime",
	"iopl", "ioperm",
	// Old corners that hardly any program needs.
	"modify_ldt", "vm86", "vm86old", "uselib", "nfsservctl",
}

// guardENOSYS are the calls that the guard pretends not to have.
var guardENOSYS = []string{
	"clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "socketcall",
}

// guardFamilies are the socket families that a container may use.
var guardFamilies = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

const (
	// namespaces are the flags of clone(2) that make one. CLONE_NEWTIME is not
	// among them: its bit belongs to the signal there.
	namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	// unshareable are the flags of unshare(2) that don't. A list of these does
	// not age: flags that make namespaces are still being added.
	unshareable = unix.CLONE_FILES | unix.CLONE_FS | unix.CLONE_SYSVSEM | unix.CLONE_VM |
		unix.CLONE_SIGHAND | unix.CLONE_THREAD
)

// socketTypes is SOCK_TYPE_MASK of the kernel: the other bits of a socket's type
// are flags.
const socketTypes = 0xf

// guardProfile writes the guard as a profile for goarch.
//
// The kernel cuts families, clone flags and ioctl commands to 32 bits, while a
// filter sees all 64 of the register, of which the caller may set the upper half
// as it likes (CVE-2019-10063). So these are compared under a 32-bit mask.
// Several conditions on one argument mean "any of these".
func guardProfile(goarch string) (*specs.LinuxSeccomp, error) {
	arches, err := guardABIs(goarch)
	if err != nil {
		return nil, err
	}
	eperm, enosys, eafnosupport := uint(unix.EPERM), uint(unix.ENOSYS), uint(unix.EAFNOSUPPORT)
	cloneFlags := uint(0)
	if goarch == "s390x" {
		cloneFlags = 1 // the stack comes first there
	}
	// unshare(2) takes a long; no flag is up there yet.
	upper := specs.LinuxSeccompArg{Index: 0, Op: specs.OpGreaterThan, Value: 0xffffffff}
	deny := func(errno *uint, args []specs.LinuxSeccompArg, names ...string) specs.LinuxSyscall {
		return specs.LinuxSyscall{Names: names, Action: specs.ActErrno, ErrnoRet: errno, Args: args}
	}
	return &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow,
		Architectures: arches,
		Syscalls: []specs.LinuxSyscall{
			deny(&eperm, nil, guardEPERM...),
			deny(&enosys, nil, guardENOSYS...),
			deny(&eafnosupport, noneOf(0, guardFamilies), "socket", "socketpair"),
			deny(&eafnosupport, []specs.LinuxSeccompArg{masked(1, socketTypes, unix.SOCK_PACKET)}, "socket", "socketpair"),
			deny(&eafnosupport, []specs.LinuxSeccompArg{masked(2, 0xffffffff, unix.IPPROTO_SMC)}, "socket", "socketpair"),
			deny(&eperm, anyBit(cloneFlags, namespaces), "clone"),
			deny(&eperm, append(anyBit(0, ^uint32(unshareable)), upper), "unshare"),
			deny(&eperm, []specs.LinuxSeccompArg{
				masked(1, 0xffffffff, unix.TIOCSTI), masked(1, 0xffffffff, unix.TIOCLINUX),
			}, "ioctl"),
		},
	}, nil
}

// masked is the condition that an argument under mask is value.
func masked(index uint, mask, value uint32) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Op: specs.OpMaskedEqual, Value: uint64(mask), ValueTwo: uint64(value)}
}

// anyBit returns conditions of which one holds if the argument has a bit of bits.
func anyBit(index uint, bits uint32) []specs.LinuxSeccompArg {
	var args []specs.LinuxSeccompArg
	for bit := uint32(1); bit != 0; bit <<= 1 {
		if bits&bit != 0 {
			args = append(args, masked(index, bit, bit))
		}
	}
	return args
}

// noneOf returns conditions of which one holds if the lower 32 bits of the
// argument are none of values. libseccomp cannot say "and not" of one argument,
// so they are the blocks of numbers with a common beginning, as in a routing
// table, that cover everything between the values.
func noneOf(index uint, values []uint32) []specs.LinuxSeccompArg {
	var args []specs.LinuxSeccompArg
	var cover func(first uint32, bits int)
	cover = func(first uint32, bits int) {
		mask := uint32(0xffffffff << bits)
		for _, v := range values {
			if v&mask != first {
				continue
			}
			if bits > 0 {
				cover(first, bits-1)
				cover(first|1<<(bits-1), bits-1)
			}
			return
		}
		args = append(args, masked(index, mask, first))
	}
	cover(0, 32)
	return args
}
