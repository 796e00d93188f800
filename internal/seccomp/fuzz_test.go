//go:build cgo

package seccomp

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// FuzzCompile expects an error or a program that the kernel's checker, as far as
// x/net/bpf has it too, accepts.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		`{}`,
		`{"defaultAction":"SCMP_ACT_ALLOW"}`,
		`{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":38,"architectures":["SCMP_ARCH_X86","SCMP_ARCH_X32","SCMP_ARCH_ARM"],
		  "flags":["SECCOMP_FILTER_FLAG_LOG"],"syscalls":[{"names":["read","write"],"action":"SCMP_ACT_ALLOW"}]}`,
		`{"defaultAction":"SCMP_ACT_KILL","syscalls":[{"names":["socket"],"action":"SCMP_ACT_ALLOW","args":[
		  {"index":0,"value":1,"op":"SCMP_CMP_EQ"},{"index":0,"value":4294967295,"valueTwo":2,"op":"SCMP_CMP_MASKED_EQ"}]}]}`,
		`{"defaultAction":"SCMP_ACT_TRACE","syscalls":[{"names":["clone","clone3","socketcall","_llseek"],"action":"SCMP_ACT_TRAP","errnoRet":5,
		  "args":[{"index":5,"value":18446744073709551615,"op":"SCMP_CMP_GE"},{"index":1,"value":7,"op":"SCMP_CMP_NE"}]}]}`,
		`{"defaultAction":"SCMP_ACT_ALLOW","flags":[],"listenerPath":"/x","syscalls":[{"names":["mount"],"action":"SCMP_ACT_NOTIFY"}]}`,
	} {
		f.Add([]byte(seed))
	}
	if b, err := os.ReadFile("/usr/share/containers/seccomp.json"); err == nil {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var profile specs.LinuxSeccomp
		if json.Unmarshal(b, &profile) != nil {
			return
		}
		filter, err := Compile(&profile, "")
		if err != nil || filter == nil {
			return
		}
		judge := newVM(t, filter)
		for _, audit := range []uint32{nativeAudit(t), 0} {
			for _, nr := range []uint32{0, 41, 999, x32Bit, 0xffffffff} {
				judge(audit, nr, 1, 2, 3)
			}
		}
	})
}
