package seccomp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets into struct seccomp_data of linux/seccomp.h.
const (
	offNr   = 0
	offArch = 4
	wordLen = 4
)

const retENOSYS = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)

// ceiling is where a filter's knowledge of an ABI ends: a call with a higher
// number came into the kernel after the filter was written.
type ceiling struct {
	abi  abi
	last uint32
}

// armPrivate is the first of ARM's own calls (cacheflush, set_tls, …), far above
// all others. Every program for 32-bit ARM starts with one.
const armPrivate = 0x0f0000

// enosysPrologue returns instructions that answer ENOSYS to calls above the
// ceilings and otherwise go on with the instruction that follows them.
//
// A C library tries a new call first and takes the old one if the kernel does
// not know it. With the profile's errno, EPERM as a rule, it would give up:
// glibc did with clone3 and faccessat2.
func enosysPrologue(ceilings []ceiling) []bpf.Instruction {
	var prologue []bpf.Instruction
	for _, c := range slices.Backward(ceilings) {
		prologue = append(c.block(uint32(len(prologue))), prologue...)
	}
	return prologue
}

// block judges the calls of one ABI. Calls of another fall out at its end; calls
// that the filter knows jump over the rest instructions that follow.
func (c ceiling) block(rest uint32) []bpf.Instruction {
	judge := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: c.last, SkipFalse: 1},
		bpf.RetConstant{Val: retENOSYS},
		bpf.Jump{Skip: rest},
	}
	switch c.abi.audit {
	case unix.AUDIT_ARCH_X86_64:
		other := bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: x32Bit, SkipTrue: uint8(len(judge))}
		if c.abi.lib == "x32" {
			other = bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: x32Bit, SkipFalse: uint8(len(judge))}
		}
		judge = append([]bpf.Instruction{other}, judge...)
	case unix.AUDIT_ARCH_ARM:
		private := bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: armPrivate, SkipTrue: 2}
		judge = append([]bpf.Instruction{private}, judge...)
	case unix.AUDIT_ARCH_S390, unix.AUDIT_ARCH_S390X:
		// Numbers that do not fit the instruction go through call 0, and stay
		// 0 if the kernel does not know them. The real call 0, setup, is gone.
		zero := bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}
		judge = append([]bpf.Instruction{zero}, judge...)
	}
	return append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: wordLen},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: c.abi.audit, SkipFalse: uint8(1 + len(judge))},
		bpf.LoadAbsolute{Off: offNr, Size: wordLen},
	}, judge...)
}

// assemble encodes insns as struct sock_filter records.
func assemble(insns []bpf.Instruction) ([]byte, error) {
	raw, err := bpf.Assemble(insns)
	if err != nil {
		return nil, fmt.Errorf("assemble seccomp program: %w", err)
	}
	var b []byte
	for _, r := range raw {
		b = binary.NativeEndian.AppendUint16(b, r.Op)
		b = append(b, r.Jt, r.Jf)
		b = binary.NativeEndian.AppendUint32(b, r.K)
	}
	return b, nil
}
