//go:build !cgo

package seccomp

import (
	"errors"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// enabled says whether filters can be compiled.
const enabled = false

// LibseccompVersion returns the version of the libseccomp that this binary was
// built with, like "2.5.4", or "" for none.
func LibseccompVersion() string { return "" }

func build(*ruleset) (*Filter, error) {
	return nil, errors.New("linux.seccomp: this binary was built without libseccomp; rebuild with CGO_ENABLED=1")
}

func flagSupported(specs.LinuxSeccompFlag) bool { return false }
