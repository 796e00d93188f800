//go:build cgo

package seccomp

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// enabled says whether filters can be compiled.
const enabled = true

// treeThreshold is how many rules a filter has at least for libseccomp to search
// them as a binary tree. libseccomp up to 2.5.4 goes wrong on a tree of none, and
// a node holds four.
const treeThreshold = 33

// LibseccompVersion returns the version of the libseccomp that this binary was
// built with, like "2.5.4", or "" for none.
func LibseccompVersion() string {
	major, minor, micro := libseccomp.GetLibraryVersion()
	return fmt.Sprintf("%d.%d.%d", major, minor, micro)
}

// build compiles rs.
func build(rs *ruleset) (*Filter, error) {
	flags, err := kernelFlags(rs)
	if err != nil {
		return nil, err
	}
	filter, err := libseccomp.NewFilter(libAction(rs.action))
	if err != nil {
		return nil, fmt.Errorf("linux.seccomp.defaultAction: libseccomp %s: %w", LibseccompVersion(), err)
	}
	defer filter.Release()
	if err := addRules(filter, rs); err != nil {
		return nil, err
	}
	prologue, err := prologueFor(rs)
	if err != nil {
		return nil, err
	}
	program, err := assemble(prologue)
	if err != nil {
		return nil, err
	}
	compiled, err := export(filter)
	if err != nil {
		return nil, err
	}
	f := &Filter{Program: append(program, compiled...), Flags: flags}
	return f, f.check()
}

// addRules fills filter with everything in rs but the flags.
func addRules(filter *libseccomp.ScmpFilter, rs *ruleset) error {
	for _, a := range rs.abis {
		arch, err := libseccomp.GetArchFromString(a.lib)
		if err == nil {
			err = filter.AddArch(arch)
		}
		if err != nil {
			return fmt.Errorf("linux.seccomp.architectures %q: libseccomp %s on this machine: %w; drop it", a.name, LibseccompVersion(), err)
		}
	}
	if rs.badArch != unix.SECCOMP_RET_KILL_THREAD {
		if err := filter.SetBadArchAction(libAction(rs.badArch)); err != nil {
			return fmt.Errorf("seccomp filter: set action for other architectures: %w", err)
		}
	}
	if len(rs.rules) >= treeThreshold {
		// Before libseccomp 2.5 there is no tree; the filter is right without.
		_ = filter.SetOptimize(2)
	}
	for i := range rs.rules {
		if err := addRule(filter, &rs.rules[i], rs.action); err != nil {
			return fmt.Errorf("linux.seccomp.syscalls %q: libseccomp %s: %w", rs.rules[i].name, LibseccompVersion(), err)
		}
	}
	return nil
}

// addRule adds r unless it says nothing new.
func addRule(filter *libseccomp.ScmpFilter, r *rule, defaultAction uint32) error {
	if r.action == defaultAction {
		return nil // libseccomp would refuse it
	}
	nr, err := libseccomp.GetSyscallFromName(r.name)
	if err != nil {
		return nil
	}
	action := libAction(r.action)
	if len(r.args) == 0 {
		return filter.AddRule(nr, action)
	}
	var conds []libseccomp.ScmpCondition
	var seen [maxArgs]bool
	repeated := false
	for _, arg := range r.args {
		cond, err := libseccomp.MakeCondition(arg.Index, libOperator(arg.Op), arg.Value, arg.ValueTwo)
		if err != nil {
			return err
		}
		conds = append(conds, cond)
		repeated = repeated || seen[arg.Index]
		seen[arg.Index] = true
	}
	if !repeated {
		return filter.AddRuleConditional(nr, action, conds)
	}
	for i := range conds {
		if err := filter.AddRuleConditional(nr, action, conds[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// prologueFor returns the instructions that go before the rules of rs.
func prologueFor(rs *ruleset) ([]bpf.Instruction, error) {
	if rs.newest == 0 && (permits(rs.action) || rs.action == retENOSYS) {
		return nil, nil
	}
	// The machine's own ABI comes first, for it is used most, and also if the
	// profile leaves it out: docker's does on ppc64le.
	native, err := nativeABI()
	if err != nil {
		return nil, err
	}
	known := []abi{native}
	for _, a := range rs.abis {
		if !slices.Contains(known, a) {
			known = append(known, a)
		}
	}
	var ceilings []ceiling
	for _, a := range known {
		last, err := rs.last(a)
		if err != nil {
			return nil, err
		}
		if last != 0 {
			ceilings = append(ceilings, ceiling{abi: a, last: last})
		}
	}
	return enosysPrologue(ceilings), nil
}

// last returns the highest call number of a that rs knows, 0 for none.
func (rs *ruleset) last(a abi) (uint32, error) {
	if rs.newest != 0 {
		if a.name == specs.ArchX32 {
			return rs.newest | x32Bit, nil
		}
		return rs.newest, nil
	}
	arch, err := libseccomp.GetArchFromString(a.lib)
	if err != nil {
		return 0, fmt.Errorf("linux.seccomp.architectures %q: %w", a.name, err)
	}
	var last uint32
	for i := range rs.rules {
		nr, err := libseccomp.GetSyscallFromNameByArch(rs.rules[i].name, arch)
		// Negative: the call exists, but not here.
		if err != nil || nr < 0 || a.audit == unix.AUDIT_ARCH_ARM && nr >= armPrivate {
			continue
		}
		last = max(last, uint32(nr))
	}
	return last, nil
}

func nativeABI() (abi, error) {
	arch, err := libseccomp.GetNativeArch()
	if err != nil {
		return abi{}, fmt.Errorf("native architecture: libseccomp: %w", err)
	}
	i := slices.IndexFunc(abis, func(a abi) bool { return a.lib == arch.String() })
	if i < 0 {
		return abi{}, fmt.Errorf("native architecture %q: unknown", arch)
	}
	return abis[i], nil
}

// export returns the program of filter. libseccomp before 2.6 writes it to a
// descriptor only, and could fill a pipe that nobody reads meanwhile.
func export(filter *libseccomp.ScmpFilter) ([]byte, error) {
	fd, err := unix.MemfdCreate("seccomp", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("export seccomp filter: memfd_create: %w", err)
	}
	file := os.NewFile(uintptr(fd), "seccomp")
	defer file.Close()
	if err := filter.ExportBPF(file); err != nil {
		return nil, fmt.Errorf("export seccomp filter: libseccomp %s: %w", LibseccompVersion(), err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("export seccomp filter: %w", err)
	}
	program, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("export seccomp filter: %w", err)
	}
	return program, nil
}

// kernelFlags returns the SECCOMP_FILTER_FLAG_* bits for the flags of a profile
// and for its use of an agent.
func kernelFlags(rs *ruleset) (uint, error) {
	var bits uint
	if rs.notifies() {
		bits |= unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	}
	if rs.flags == nil && flagSupported(specs.LinuxSeccompFlagSpecAllow) {
		bits |= unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
	}
	for _, flag := range rs.flags {
		if !flagSupported(flag) {
			return 0, fmt.Errorf("linux.seccomp.flags %q: this kernel lacks it; drop the flag", flag)
		}
		switch flag {
		case specs.LinuxSeccompFlagLog:
			bits |= unix.SECCOMP_FILTER_FLAG_LOG
		case specs.LinuxSeccompFlagSpecAllow:
			bits |= unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
		case specs.LinuxSeccompFlagWaitKillableRecv:
			// The kernel refuses it without a listener.
			if rs.notifies() {
				bits |= unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
			}
		}
	}
	return bits, nil
}

// flagSupported asks the kernel: libseccomp, which is not needed for it, may be
// older and not know the flag.
func flagSupported(flag specs.LinuxSeccompFlag) bool {
	switch flag {
	case flagTSYNC:
		return true
	case specs.LinuxSeccompFlagLog:
		return kernelKnows(unix.SECCOMP_FILTER_FLAG_LOG)
	case specs.LinuxSeccompFlagSpecAllow:
		return kernelKnows(unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW)
	case specs.LinuxSeccompFlagWaitKillableRecv:
		return kernelKnows(unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV | unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
	}
	return false
}

// kernelKnows loads no program at all: flags are judged first, with EINVAL, then
// the address of the program, with EFAULT.
func kernelKnows(flags uintptr) bool {
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, 0)
	return errno == unix.EFAULT
}

// libAction translates a SECCOMP_RET_* value.
func libAction(ret uint32) libseccomp.ScmpAction {
	code := int16(ret & unix.SECCOMP_RET_DATA)
	switch ret & unix.SECCOMP_RET_ACTION_FULL {
	case unix.SECCOMP_RET_ALLOW:
		return libseccomp.ActAllow
	case unix.SECCOMP_RET_ERRNO:
		return libseccomp.ActErrno.SetReturnCode(code)
	case unix.SECCOMP_RET_KILL_THREAD:
		return libseccomp.ActKillThread
	case unix.SECCOMP_RET_KILL_PROCESS:
		return libseccomp.ActKillProcess
	case unix.SECCOMP_RET_LOG:
		return libseccomp.ActLog
	case unix.SECCOMP_RET_TRACE:
		return libseccomp.ActTrace.SetReturnCode(code)
	case unix.SECCOMP_RET_TRAP:
		return libseccomp.ActTrap
	case unix.SECCOMP_RET_USER_NOTIF:
		return libseccomp.ActNotify
	}
	return libseccomp.ActInvalid
}

func libOperator(op specs.LinuxSeccompOperator) libseccomp.ScmpCompareOp {
	switch op {
	case specs.OpEqualTo:
		return libseccomp.CompareEqual
	case specs.OpGreaterEqual:
		return libseccomp.CompareGreaterEqual
	case specs.OpGreaterThan:
		return libseccomp.CompareGreater
	case specs.OpLessEqual:
		return libseccomp.CompareLessOrEqual
	case specs.OpLessThan:
		return libseccomp.CompareLess
	case specs.OpMaskedEqual:
		return libseccomp.CompareMaskedEqual
	case specs.OpNotEqual:
		return libseccomp.CompareNotEqual
	}
	return libseccomp.CompareInvalid
}
