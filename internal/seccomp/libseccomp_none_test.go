//go:build !cgo

package seccomp

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestWithoutLibseccomp expects a refusal, not a container without a filter.
func TestWithoutLibseccomp(t *testing.T) {
	t.Parallel()
	const want = "linux.seccomp: this binary was built without libseccomp; rebuild with CGO_ENABLED=1"
	if f, err := Compile(&specs.LinuxSeccomp{DefaultAction: specs.ActAllow}, ""); f != nil || err == nil || err.Error() != want {
		t.Errorf("Compile = %v, %v, want %q", f, err, want)
	}
	if f, err := Guard(""); f != nil || err == nil || err.Error() != want {
		t.Errorf("Guard = %v, %v, want %q", f, err, want)
	}
	if features := Features(); *features.Enabled || features.Actions != nil {
		t.Errorf("features %+v, want none", features)
	}
}
