package seccomp

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// flagTSYNC is in the text of the runtime-spec but not among its Go constants.
const flagTSYNC specs.LinuxSeccompFlag = "SECCOMP_FILTER_FLAG_TSYNC"

// flagNames lists the flags that a profile may name.
var flagNames = []specs.LinuxSeccompFlag{
	flagTSYNC,
	specs.LinuxSeccompFlagSpecAllow,
	specs.LinuxSeccompFlagLog,
	specs.LinuxSeccompFlagWaitKillableRecv,
}

// actions maps the spec's actions to what the program returns.
var actions = []struct {
	name specs.LinuxSeccompAction
	ret  uint32 // SECCOMP_RET_*
}{
	{specs.ActAllow, unix.SECCOMP_RET_ALLOW},
	{specs.ActErrno, unix.SECCOMP_RET_ERRNO},
	{specs.ActKill, unix.SECCOMP_RET_KILL_THREAD},
	{specs.ActKillProcess, unix.SECCOMP_RET_KILL_PROCESS},
	{specs.ActKillThread, unix.SECCOMP_RET_KILL_THREAD},
	{specs.ActLog, unix.SECCOMP_RET_LOG},
	{specs.ActNotify, unix.SECCOMP_RET_USER_NOTIF},
	{specs.ActTrace, unix.SECCOMP_RET_TRACE},
	{specs.ActTrap, unix.SECCOMP_RET_TRAP},
}

var operators = []specs.LinuxSeccompOperator{
	specs.OpEqualTo,
	specs.OpGreaterEqual,
	specs.OpGreaterThan,
	specs.OpLessEqual,
	specs.OpLessThan,
	specs.OpMaskedEqual,
	specs.OpNotEqual,
}

// abi is a system call ABI, "architecture" in the spec.
type abi struct {
	name  specs.Arch
	lib   string // libseccomp's name
	audit uint32 // AUDIT_ARCH_* in seccomp_data.arch
}

// x32Bit marks a call of the x32 ABI, which shares AUDIT_ARCH_X86_64.
const x32Bit = 1 << 30

var abis = []abi{
	{specs.ArchX86, "x86", unix.AUDIT_ARCH_I386},
	{specs.ArchX86_64, "amd64", unix.AUDIT_ARCH_X86_64},
	{specs.ArchX32, "x32", unix.AUDIT_ARCH_X86_64},
	{specs.ArchARM, "arm", unix.AUDIT_ARCH_ARM},
	{specs.ArchAARCH64, "arm64", unix.AUDIT_ARCH_AARCH64},
	{specs.ArchMIPS, "mips", unix.AUDIT_ARCH_MIPS},
	{specs.ArchMIPS64, "mips64", unix.AUDIT_ARCH_MIPS64},
	{specs.ArchMIPS64N32, "mips64n32", unix.AUDIT_ARCH_MIPS64N32},
	{specs.ArchMIPSEL, "mipsel", unix.AUDIT_ARCH_MIPSEL},
	{specs.ArchMIPSEL64, "mipsel64", unix.AUDIT_ARCH_MIPSEL64},
	{specs.ArchMIPSEL64N32, "mipsel64n32", unix.AUDIT_ARCH_MIPSEL64N32},
	{specs.ArchPPC, "ppc", unix.AUDIT_ARCH_PPC},
	{specs.ArchPPC64, "ppc64", unix.AUDIT_ARCH_PPC64},
	{specs.ArchPPC64LE, "ppc64le", unix.AUDIT_ARCH_PPC64LE},
	{specs.ArchS390, "s390", unix.AUDIT_ARCH_S390},
	{specs.ArchS390X, "s390x", unix.AUDIT_ARCH_S390X},
	{specs.ArchPARISC, "parisc", unix.AUDIT_ARCH_PARISC},
	{specs.ArchPARISC64, "parisc64", unix.AUDIT_ARCH_PARISC64},
	{specs.ArchRISCV64, "riscv64", unix.AUDIT_ARCH_RISCV64},
	{specs.ArchLOONGARCH64, "loong64", unix.AUDIT_ARCH_LOONGARCH64},
	{specs.ArchM68K, "m68k", unix.AUDIT_ARCH_M68K},
	{specs.ArchSH, "sh", unix.AUDIT_ARCH_SHEL},
	{specs.ArchSHEB, "sheb", unix.AUDIT_ARCH_SH},
}
