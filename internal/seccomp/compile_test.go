//go:build cgo

package seccomp

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"eggrun/internal/need"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// testErrno is an errno that no system call of the tests answers by itself.
const testErrno = unix.EUCLEAN

// denying returns a profile that lets everything through but what sc says.
func denying(sc ...specs.LinuxSyscall) *specs.LinuxSeccomp {
	return &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: sc}
}

func TestCompileNothing(t *testing.T) {
	t.Parallel()
	for _, profile := range []*specs.LinuxSeccomp{nil, {}, {Architectures: []specs.Arch{specs.ArchX86}}} {
		if f, err := Compile(profile, ""); f != nil || err != nil {
			t.Errorf("Compile(%+v) = %v, %v, want nil, nil", profile, f, err)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	getcwd := func(action specs.LinuxSeccompAction, args ...specs.LinuxSeccompArg) *specs.LinuxSeccomp {
		return denying(specs.LinuxSyscall{Names: []string{"getcwd"}, Action: action, Args: args})
	}
	tests := []struct {
		name    string
		profile *specs.LinuxSeccomp
		wantErr string
	}{
		{"no default action", &specs.LinuxSeccomp{Syscalls: make([]specs.LinuxSyscall, 1)},
			`linux.seccomp.defaultAction "": unknown action`},
		{"unknown default action", &specs.LinuxSeccomp{DefaultAction: "SCMP_ACT_BLESS"},
			`linux.seccomp.defaultAction "SCMP_ACT_BLESS": unknown action`},
		{"unknown action", getcwd("ERRNO"), `linux.seccomp.syscalls[0].action "ERRNO": unknown action`},
		{"unknown architecture", &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Architectures: []specs.Arch{"SCMP_ARCH_X86", "x86"}},
			`linux.seccomp.architectures[1] "x86": unknown architecture`},
		{"unknown flag", &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Flags: []specs.LinuxSeccompFlag{"LOG"}},
			`linux.seccomp.flags[0] "LOG": unknown flag`},
		{"unknown operator", getcwd(specs.ActErrno, specs.LinuxSeccompArg{Op: "=="}),
			`linux.seccomp.syscalls[0].args[0].op "==": unknown operator`},
		{"seventh argument", getcwd(specs.ActErrno, specs.LinuxSeccompArg{Index: 6, Op: specs.OpEqualTo}),
			"linux.seccomp.syscalls[0].args[0].index: 6, but a system call has arguments 0 to 5"},
		{"empty name", denying(specs.LinuxSyscall{Names: []string{"read", ""}, Action: specs.ActErrno}),
			`linux.seccomp.syscalls[0].names[1] "": not the name of a system call`},
		{"name cut off", denying(specs.LinuxSyscall{Names: []string{"read\x00"}, Action: specs.ActErrno}),
			`linux.seccomp.syscalls[0].names[0] "read\x00": not the name of a system call`},
		{"errno that would become 0", denying(specs.LinuxSyscall{Names: []string{"read"}, Action: specs.ActErrno, ErrnoRet: ptr(uint(0x10000))}),
			`linux.seccomp.syscalls[0].action "SCMP_ACT_ERRNO": errno 65536, but the highest is 65535`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if f, err := Compile(tt.profile, ""); err == nil || err.Error() != tt.wantErr {
				t.Errorf("got %v, %v, want error %q", f, err, tt.wantErr)
			}
		})
	}
}

// TestCompileTooLong has so many conditions that the kernel would answer EINVAL.
func TestCompileTooLong(t *testing.T) {
	t.Parallel()
	var args []specs.LinuxSeccompArg
	for v := range uint64(4500) {
		args = append(args, specs.LinuxSeccompArg{Op: specs.OpEqualTo, Value: v})
	}
	_, err := Compile(denying(specs.LinuxSyscall{Names: []string{"getppid"}, Action: specs.ActErrno, Args: args}), "")
	if err == nil || !strings.HasSuffix(err.Error(), "instructions, the kernel takes 4096; shorten the profile or list fewer architectures") {
		t.Errorf("got %v, want an error about the length", err)
	}
}

func TestCompileForeignArchitecture(t *testing.T) {
	t.Parallel()
	needAMD64(t)
	_, err := Compile(&specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Architectures: []specs.Arch{specs.ArchS390X}}, "")
	if !errors.Is(err, unix.EDOM) || !strings.HasPrefix(err.Error(), `linux.seccomp.architectures "SCMP_ARCH_S390X": libseccomp `) {
		t.Errorf("got %v, want EDOM for the other byte order", err)
	}
}

func TestCompileIgnoresLikeRunc(t *testing.T) {
	t.Parallel()
	f := mustCompile(t, &specs.LinuxSeccomp{
		DefaultAction:    specs.ActAllow,
		DefaultErrnoRet:  ptr(uint(unix.ENOSYS)), // has no meaning with ALLOW
		ListenerPath:     "/run/agent.sock",      // used by no rule
		ListenerMetadata: "x",
		Flags:            []specs.LinuxSeccompFlag{flagTSYNC},
		Syscalls: []specs.LinuxSyscall{
			{Names: []string{"no_such_call", "getcwd"}, Action: specs.ActErrno},
			{Names: []string{"getppid"}, Action: specs.ActAllow}, // says nothing new
		},
	})
	if f.Flags != 0 {
		t.Errorf("flags %#x, want none: TSYNC is the loader's", f.Flags)
	}
	native := nativeAudit(t)
	if got := verdict(t, f, native, unix.SYS_GETCWD); got != retErrno(unix.EPERM) {
		t.Errorf("getcwd: %#x, want EPERM", got)
	}
	if got := verdict(t, f, native, unix.SYS_GETPPID); got != unix.SECCOMP_RET_ALLOW {
		t.Errorf("getppid: %#x, want to be allowed", got)
	}
}

func TestCompileFlags(t *testing.T) {
	t.Parallel()
	supported := Features().SupportedFlags
	tests := []struct {
		flags []specs.LinuxSeccompFlag
		want  uint
	}{
		{nil, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW},
		{[]specs.LinuxSeccompFlag{}, 0},
		{[]specs.LinuxSeccompFlag{flagTSYNC}, 0},
		{[]specs.LinuxSeccompFlag{specs.LinuxSeccompFlagSpecAllow}, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW},
		{[]specs.LinuxSeccompFlag{specs.LinuxSeccompFlagLog}, unix.SECCOMP_FILTER_FLAG_LOG},
		{[]specs.LinuxSeccompFlag{flagTSYNC, specs.LinuxSeccompFlagLog, specs.LinuxSeccompFlagSpecAllow},
			unix.SECCOMP_FILTER_FLAG_LOG | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW},
		{[]specs.LinuxSeccompFlag{specs.LinuxSeccompFlagWaitKillableRecv}, 0},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%v", tt.flags), func(t *testing.T) {
			t.Parallel()
			wantErr := slices.ContainsFunc(tt.flags, func(f specs.LinuxSeccompFlag) bool { return !slices.Contains(supported, string(f)) })
			f, err := Compile(&specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Flags: tt.flags}, "")
			if wantErr {
				if err == nil || !strings.Contains(err.Error(), "drop the flag") {
					t.Errorf("got %v, %v, want an error about the flag", f, err)
				}
				return
			}
			if err != nil || f.Flags != tt.want {
				t.Fatalf("got %+v, %v, want flags %#x", f, err, tt.want)
			}
			if out := run(t, []*Filter{f}, "/bin/true"); out.status != 0 {
				t.Errorf("kernel refuses the flags: %s", out.stderr)
			}
		})
	}
}

// TestOperators has the kernel compare: getppid ignores its arguments, a filter
// does not.
func TestOperators(t *testing.T) {
	t.Parallel()
	const big = 0x1_0000_0005
	values := []uint64{0, 4, 5, 6, 0xffffffff, big - 1, big, big + 1, ^uint64(0)}
	tests := []struct {
		arg  specs.LinuxSeccompArg
		hits func(uint64) bool
	}{
		{specs.LinuxSeccompArg{Op: specs.OpEqualTo, Value: 5}, func(v uint64) bool { return v == 5 }},
		{specs.LinuxSeccompArg{Op: specs.OpEqualTo, Value: big}, func(v uint64) bool { return v == big }},
		{specs.LinuxSeccompArg{Op: specs.OpNotEqual, Value: 5}, func(v uint64) bool { return v != 5 }},
		{specs.LinuxSeccompArg{Op: specs.OpLessThan, Value: big}, func(v uint64) bool { return v < big }},
		{specs.LinuxSeccompArg{Op: specs.OpLessEqual, Value: big}, func(v uint64) bool { return v <= big }},
		{specs.LinuxSeccompArg{Op: specs.OpGreaterThan, Value: big}, func(v uint64) bool { return v > big }},
		{specs.LinuxSeccompArg{Op: specs.OpGreaterEqual, Value: big}, func(v uint64) bool { return v >= big }},
		{specs.LinuxSeccompArg{Op: specs.OpMaskedEqual, Value: 0xf, ValueTwo: 5}, func(v uint64) bool { return v&0xf == 5 }},
		{specs.LinuxSeccompArg{Op: specs.OpMaskedEqual, Value: 1 << 32, ValueTwo: 1 << 32}, func(v uint64) bool { return v&(1<<32) != 0 }},
	}
	for _, tt := range tests {
		for _, index := range []uint{0, 5} {
			arg := tt.arg
			arg.Index = index
			t.Run(fmt.Sprintf("%s %#x %#x arg%d", arg.Op, arg.Value, arg.ValueTwo, index), func(t *testing.T) {
				t.Parallel()
				f := mustCompile(t, denying(specs.LinuxSyscall{
					Names: []string{"getppid"}, Action: specs.ActErrno, ErrnoRet: ptr(uint(testErrno)), Args: []specs.LinuxSeccompArg{arg},
				}))
				var ops []string
				for _, v := range values {
					args := []any{0, 0, 0, 0, 0, 0}
					args[index] = v
					ops = append(ops, call("n", unix.SYS_GETPPID, args...))
				}
				for i, line := range runProbe(t, []*Filter{f}, ops...) {
					if got, want := line == errnoLine(testErrno), tt.hits(values[i]); got != want {
						t.Errorf("%#x: hit %v, want %v (printed %s)", values[i], got, want, line)
					}
				}
			})
		}
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	eq := func(index uint, v uint64) specs.LinuxSeccompArg {
		return specs.LinuxSeccompArg{Index: index, Value: v, Op: specs.OpEqualTo}
	}
	tests := []struct {
		name string
		args []specs.LinuxSeccompArg
		hits map[[2]uint64]bool
	}{
		{"different arguments are all needed", []specs.LinuxSeccompArg{eq(0, 1), eq(1, 2)},
			map[[2]uint64]bool{{1, 2}: true, {1, 0}: false, {0, 2}: false}},
		{"one argument twice is one of both", []specs.LinuxSeccompArg{eq(0, 1), eq(0, 2)},
			map[[2]uint64]bool{{1, 0}: true, {2, 0}: true, {3, 0}: false}},
		{"then the others stand alone too", []specs.LinuxSeccompArg{eq(0, 1), eq(0, 2), eq(1, 7)},
			map[[2]uint64]bool{{1, 0}: true, {0, 7}: true, {0, 0}: false}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := mustCompile(t, denying(specs.LinuxSyscall{Names: []string{"getppid"}, Action: specs.ActErrno, Args: tt.args}))
			for args, want := range tt.hits {
				if got := verdict(t, f, nativeAudit(t), unix.SYS_GETPPID, args[:]...) != unix.SECCOMP_RET_ALLOW; got != want {
					t.Errorf("%v: hit %v, want %v", args, got, want)
				}
			}
		})
	}
}

func nativeAudit(t testing.TB) uint32 {
	t.Helper()
	a, err := nativeABI()
	if err != nil {
		t.Fatal(err)
	}
	return a.audit
}

// TestArchitectures calls through int $0x80, past which a filter that only looks
// at the number sees another call.
func TestArchitectures(t *testing.T) {
	t.Parallel()
	needI386(t)
	const i386Getppid, i386Mount = 64, 21
	profile := denying(specs.LinuxSyscall{Names: []string{"getppid"}, Action: specs.ActErrno, ErrnoRet: ptr(uint(testErrno))})

	t.Run("not listed", func(t *testing.T) {
		t.Parallel()
		out := run(t, []*Filter{mustCompile(t, profile)}, probePath(t), call("n", unix.SYS_GETPPID), call("i", i386Getppid), "n:39")
		if !out.status.Signaled() || out.status.Signal() != syscall.SIGSYS || !slices.Equal(out.lines, []string{errnoLine(testErrno)}) {
			t.Errorf("status %#x, printed %q, want to be killed at the i386 call", out.status, out.lines)
		}
	})
	t.Run("listed", func(t *testing.T) {
		t.Parallel()
		both := *profile
		both.Architectures = []specs.Arch{specs.ArchX86}
		f := mustCompile(t, &both)
		// 64 is semget on x86-64.
		got := runProbe(t, []*Filter{f}, call("i", i386Getppid), call("i", i386Mount), call("n", i386Getppid, 0, -1, 0))
		if got[0] != errnoLine(testErrno) || got[1] == errnoLine(testErrno) || got[2] == errnoLine(testErrno) {
			t.Errorf("printed %q, want only the first to be %d", got, -int(testErrno))
		}
	})
	t.Run("control", func(t *testing.T) {
		t.Parallel()
		if got := runProbe(t, nil, call("i", i386Getppid)); strings.HasPrefix(got[0], "-") {
			t.Errorf("without a filter: %q", got)
		}
	})
}

func TestX32(t *testing.T) {
	t.Parallel()
	f := mustCompile(t, &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow,
		Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchX32},
		Syscalls:      []specs.LinuxSyscall{{Names: []string{"getppid"}, Action: specs.ActErrno, ErrnoRet: ptr(uint(testErrno))}},
	})
	needAMD64(t)
	// The filter answers before the kernel looks whether it has x32 at all.
	op := call("n", unix.SYS_GETPPID|x32Bit)
	if got := runProbe(t, []*Filter{f}, op); got[0] != errnoLine(testErrno) {
		t.Errorf("getppid through x32: %q, want %d", got, -int(testErrno))
	}
	if got := runProbe(t, nil, op); got[0] == errnoLine(testErrno) {
		t.Errorf("without the filter: %q", got)
	}
	only64 := mustCompile(t, denying(specs.LinuxSyscall{Names: []string{"getppid"}, Action: specs.ActErrno}))
	if got := verdict(t, only64, unix.AUDIT_ARCH_X86_64, unix.SYS_GETPID|x32Bit); got != unix.SECCOMP_RET_KILL_THREAD {
		t.Errorf("x32 where it is not listed: %#x, want kill", got)
	}
}

// podmanProfile returns the profile that podman writes into config.json for a
// container with the given capabilities, from the file it makes it of.
func podmanProfile(t testing.TB, caps ...string) *specs.LinuxSeccomp {
	t.Helper()
	b, err := os.ReadFile("/usr/share/containers/seccomp.json")
	need.That(t, "podman's seccomp profile", func() error { return err })
	type conditions struct{ Caps, Arches []string }
	var file struct {
		specs.LinuxSeccomp
		ArchMap []struct {
			Architecture     specs.Arch
			SubArchitectures []specs.Arch
		}
		Syscalls []struct {
			specs.LinuxSyscall
			Includes, Excludes conditions
		} `json:"syscalls"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	native, err := nativeABI()
	if err != nil {
		t.Fatal(err)
	}
	profile := file.LinuxSeccomp
	profile.Syscalls = nil
	for _, m := range file.ArchMap {
		if m.Architecture == native.name {
			profile.Architectures = append([]specs.Arch{m.Architecture}, m.SubArchitectures...)
		}
	}
	has := func(c conditions) bool {
		return slices.Contains(c.Arches, native.lib) ||
			slices.ContainsFunc(c.Caps, func(name string) bool { return slices.Contains(caps, name) })
	}
	for _, sc := range file.Syscalls {
		conditional := len(sc.Includes.Caps)+len(sc.Includes.Arches) > 0
		if conditional && !has(sc.Includes) || has(sc.Excludes) {
			continue
		}
		profile.Syscalls = append(profile.Syscalls, sc.LinuxSyscall)
	}
	return &profile
}

func TestPodmanProfile(t *testing.T) {
	t.Parallel()
	profile := podmanProfile(t, "CAP_SYS_CHROOT")
	f := mustCompile(t, profile)
	if out := run(t, []*Filter{f}, "/bin/sh", "-c", "ls / | cat >/dev/null && echo $((6*7))"); !slices.Equal(out.lines, []string{"42"}) {
		t.Errorf("a shell under podman's profile: %+v", out)
	}
	got := runProbe(t, []*Filter{f},
		"p",
		call("n", unix.SYS_UNSHARE, unix.CLONE_NEWUTS),
		call("n", unix.SYS_BPF, -1),
		call("n", unix.SYS_PERSONALITY, 0),
		call("n", unix.SYS_PERSONALITY, 0x40000),
		call("n", unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT),
		call("n", unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, 99),
	)
	want := []string{
		"0",
		"0", // podman lets unshare through; the capability decides
		errnoLine(unix.EPERM),
		"0",
		errnoLine(unix.ENOSYS),
		errnoLine(unix.EINVAL),
		errnoLine(unix.EPROTONOSUPPORT),
	}
	if os.Geteuid() != 0 {
		want[1] = errnoLine(unix.EPERM)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if control := runProbe(t, nil, call("n", unix.SYS_BPF, -1), call("n", unix.SYS_PERSONALITY, 0x40000)); control[0] == want[2] && os.Geteuid() == 0 || control[1] == want[4] {
		t.Errorf("without the filter: %q", control)
	}
}
