package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// runtimeUnderTest is a runtime with runc's command line.
type runtimeUnderTest struct {
	name string // base name of the binary
	path string // absolute
	spec func() (*specs.Spec, error)
}

func newRuntime(path string) runtimeUnderTest {
	return runtimeUnderTest{
		name: filepath.Base(path),
		path: path,
		spec: sync.OnceValues(func() (*specs.Spec, error) { return defaultSpec(path) }),
	}
}

func (rt runtimeUnderTest) isEggrun() bool { return rt.name == "eggrun" }

// pick returns the first text for eggrun and the second for runc: the two
// word some errors differently.
func (rt runtimeUnderTest) pick(eggrun, runc string) string {
	if rt.isEggrun() {
		return eggrun
	}
	return runc
}

// defaultSpec returns what the verb spec writes.
func defaultSpec(path string) (*specs.Spec, error) {
	dir, err := os.MkdirTemp(suite.dir, "spec-")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "spec", "--bundle", dir)
	if out, err := suite.reaper.output(cmd); err != nil {
		return nil, fmt.Errorf("%s spec: %w: %s", path, err, out)
	}
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, err
	}
	spec := new(specs.Spec)
	return spec, json.Unmarshal(data, spec)
}

// each runs a plain OCI test on the runtime under test and on runc.
func each(t *testing.T, test func(t *testing.T, l *lab)) {
	t.Helper()
	needRoot(t)
	for _, rt := range []runtimeUnderTest{suite.runtime, suite.control} {
		if rt.path == "" {
			continue
		}
		reason, known := deviations[rt.name][t.Name()]
		t.Run(rt.name, func(t *testing.T) {
			t.Parallel()
			skipKnown(t, rt, reason, known)
			test(t, newLab(t, rt))
		})
	}
}

// skipKnown skips what is in [deviations].
func skipKnown(t *testing.T, rt runtimeUnderTest, reason string, known bool) {
	t.Helper()
	if known && os.Getenv("EGGRUN_DEVIATIONS") != "1" {
		t.Skipf("known of %s: %s", rt.name, reason)
	}
}
