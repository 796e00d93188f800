// Package need is how tests say what they cannot do without.
package need

import (
	"os"
	"testing"
)

// That skips the test with the reason when probe says that the machine lacks
// what. With EGGRUN_MUST_WORK=1, which CI sets, that is a failure: a suite that
// skips in silence is green whatever is broken.
func That(t testing.TB, what string, probe func() error) {
	t.Helper()
	err := probe()
	if err == nil {
		return
	}
	if os.Getenv("EGGRUN_MUST_WORK") == "1" {
		t.Fatalf("needs %s: %v", what, err)
	}
	t.Skipf("needs %s: %v", what, err)
}

// Root is for what only root may do.
func Root(t testing.TB) {
	t.Helper()
	That(t, "root", func() error {
		if os.Geteuid() != 0 {
			return os.ErrPermission
		}
		return nil
	})
}
