//go:build cgo

package seccomp

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// verdict runs f's program on a made-up system call and returns SECCOMP_RET_*.
// It judges ABIs that this machine cannot call.
func verdict(t testing.TB, f *Filter, audit, nr uint32, args ...uint64) uint32 {
	t.Helper()
	return newVM(t, f)(audit, nr, args...)
}

func newVM(t testing.TB, f *Filter) func(audit, nr uint32, args ...uint64) uint32 {
	t.Helper()
	p, err := f.Prog()
	if err != nil {
		t.Fatal(err)
	}
	var raw []bpf.RawInstruction
	for _, i := range p.insns {
		raw = append(raw, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	insns, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("program has instructions that x/net/bpf does not know")
	}
	vm, err := bpf.NewVM(insns)
	if err != nil {
		t.Fatal(err)
	}
	return func(audit, nr uint32, args ...uint64) uint32 {
		t.Helper()
		// struct seccomp_data, but for the order of the bytes in each word: the
		// VM loads them as from a packet, the kernel as from memory.
		data := binary.BigEndian.AppendUint32(nil, nr)
		data = binary.BigEndian.AppendUint32(data, audit)
		for _, v := range append([]uint64{0xdeadbeef}, append(args, make([]uint64, maxArgs-len(args))...)...) {
			lo, hi := uint32(v), uint32(v>>32)
			if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
				lo, hi = hi, lo
			}
			data = binary.BigEndian.AppendUint32(data, lo)
			data = binary.BigEndian.AppendUint32(data, hi)
		}
		ret, err := vm.Run(data)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(ret)
	}
}

func retErrno(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }
