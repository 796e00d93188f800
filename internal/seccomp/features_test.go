//go:build cgo

package seccomp

import (
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestFeatures checks that what is announced is what Compile takes.
func TestFeatures(t *testing.T) {
	t.Parallel()
	f := Features()
	if f.Enabled == nil || !*f.Enabled {
		t.Fatal("not enabled")
	}
	if !slices.Contains(f.Actions, string(specs.ActNotify)) {
		t.Error("SCMP_ACT_NOTIFY is not announced")
	}
	for _, list := range [][]string{f.Actions, f.Operators, f.Archs} {
		if len(list) == 0 || !slices.IsSorted(list) {
			t.Errorf("%q: empty or not sorted", list)
		}
	}
	for _, action := range f.Actions {
		mustCompile(t, &specs.LinuxSeccomp{DefaultAction: specs.LinuxSeccompAction(action)})
	}
	for _, op := range f.Operators {
		mustCompile(t, denying(specs.LinuxSyscall{Names: []string{"read"}, Action: specs.ActErrno,
			Args: []specs.LinuxSeccompArg{{Op: specs.LinuxSeccompOperator(op)}}}))
	}
	for _, flag := range f.SupportedFlags {
		if !slices.Contains(f.KnownFlags, flag) {
			t.Errorf("flag %s is supported but not known", flag)
		}
		mustCompile(t, &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Flags: []specs.LinuxSeccompFlag{specs.LinuxSeccompFlag(flag)}})
	}
	if LibseccompVersion() == "" {
		t.Error("no version of libseccomp")
	}
}
