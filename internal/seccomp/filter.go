package seccomp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	insnSize = 8    // bytes of a struct sock_filter
	maxInsns = 4096 // BPF_MAXINSNS of linux/bpf_common.h, the limit of one filter
)

// Filter is a compiled seccomp filter. It is plain data, marshals to JSON, and
// fits the machine that it was compiled on.
type Filter struct {
	// Program holds struct sock_filter records of linux/filter.h, 8 bytes
	// each, in the byte order of the machine.
	Program []byte `json:"program"`
	// Flags are SECCOMP_FILTER_FLAG_* bits of linux/seccomp.h. TSYNC is not
	// among them: who loads the filter decides about it.
	Flags uint `json:"flags,omitempty"`
}

// loadableFlags are the flags that a Filter may carry.
const loadableFlags = unix.SECCOMP_FILTER_FLAG_LOG | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW |
	unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV

// Prog is a decoded [Filter] that can be loaded by a single system call.
type Prog struct {
	insns []unix.SockFilter
	fprog unix.SockFprog
	flags uintptr
}

// HasListener says whether f hands calls to an agent. Such a filter is loaded
// with [Prog.LoadListener]: seccomp(2) returns a descriptor, which [Prog.Load]
// would take for the id of a thread.
func (f *Filter) HasListener() bool { return f.Flags&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 }

// Prog decodes f, so that [Prog.Load] has nothing left to allocate. It returns
// an error if f is not a whole program of 1 to 4096 instructions or has flags
// that this package does not make.
func (f *Filter) Prog() (*Prog, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	insns := make([]unix.SockFilter, len(f.Program)/insnSize)
	for i := range insns {
		b := f.Program[i*insnSize:][:insnSize]
		insns[i] = unix.SockFilter{
			Code: binary.NativeEndian.Uint16(b),
			Jt:   b[2],
			Jf:   b[3],
			K:    binary.NativeEndian.Uint32(b[4:]),
		}
	}
	return &Prog{
		insns: insns,
		fprog: unix.SockFprog{Len: uint16(len(insns)), Filter: &insns[0]},
		flags: uintptr(f.Flags),
	}, nil
}

// check says whether f has the shape of a program; the kernel judges the rest.
func (f *Filter) check() error {
	switch n := len(f.Program); {
	case n == 0 || n%insnSize != 0:
		return fmt.Errorf("seccomp program: %d bytes are no whole number of instructions", n)
	case n > maxInsns*insnSize:
		return fmt.Errorf("seccomp program: %d instructions, the kernel takes %d; shorten the profile or list fewer architectures",
			n/insnSize, maxInsns)
	case f.Flags&^loadableFlags != 0:
		return fmt.Errorf("seccomp program: unknown flags %#x", f.Flags&^loadableFlags)
	case f.Flags&unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV != 0 && !f.HasListener():
		return errors.New("seccomp program: WAIT_KILLABLE_RECV needs a listener")
	}
	return nil
}
