package need

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// childVariable names the test that the test binary is the child for.
const childVariable = "EGGRUN_TEST_CHILD"

// Child runs the calling test once more, as root's child process with attr, such
// as namespaces of its own, and passes its verdict on. It is true in that child,
// where the test does its work, and false outside.
func Child(t *testing.T, attr syscall.SysProcAttr) bool {
	t.Helper()
	if os.Getenv(childVariable) == t.Name() {
		return true
	}
	Root(t)
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run=^"+regexp.QuoteMeta(t.Name())+"$")
	// The race detector would have each child sleep for a second.
	cmd.Env = append(os.Environ(), childVariable+"="+t.Name(), "GORACE=atexit_sleep_ms=0")
	attr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr = &attr
	cmd.Dir = "/"
	// Pdeathsig follows the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Fatalf("child of the test: %v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		That(t, "what the child of the test lacks", func() error { return fmt.Errorf("%s", out) })
	case !strings.Contains(string(out), "--- PASS: "+t.Name()+" "):
		t.Fatalf("the child did not run the test:\n%s", out)
	}
	return false
}
