// Package integration drives an OCI runtime only through its command line, as
// engines do, and looks at what the kernel then shows.
//
// The plain OCI tests run against the runtime under test and against the
// system's runc: where runc fails without a reason in deviations_test.go, the
// test is wrong. Everything runs in mount, PID and network namespaces that
// TestMain makes, so that nothing here can meet the machine's own containers.
//
//	EGGRUN_BIN           the eggrun to test; default: make build, then bin/eggrun
//	EGGRUN_TEST_BUILT    a directory with eggrun, eggrun-crash, probe, notify and socketcall,
//	                     for where nothing can be built
//	EGGRUN_TEST_RUNTIME  any other runtime to test instead, such as /usr/sbin/runc
//	EGGRUN_TEST_CGROUPS  the cgroup manager: cgroupfs, the default, or systemd; see managers_test.go
//	EGGRUN_TEST_PLACE    where this is, as impossible.txt names it; default: host
//	EGGRUN_MUST_WORK=1   a skip is a failure, unless impossible.txt lists the test
//	EGGRUN_DEVIATIONS=1  run also the tests that a runtime is known to fail
package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// Names of the environment variables by which the outer process tells the
// inner one, in the namespaces, what it prepared.
const (
	envSuiteDir = "EGGRUN_IT_DIR"
	envRuntime  = "EGGRUN_IT_RUNTIME"
)

// suite is what all tests share; it is complete before the first test runs
// and never changes afterwards.
var suite struct {
	dir     string // everything the suite writes, a tmpfs
	cgroups cgroupManager
	runtime runtimeUnderTest
	control runtimeUnderTest // the system's runc, zero when there is none
	reaper  *reaper
}

func init() {
	// No test gets the first thread, which some would leave in another network
	// namespace: that would be what /proc says of the whole suite.
	runtime.LockOSThread()
}

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	if os.Getenv(envSuiteDir) == "" && os.Geteuid() == 0 {
		return outer()
	}
	if os.Geteuid() == 0 {
		if err := isolate(os.Getenv(envSuiteDir)); err != nil {
			fmt.Fprintln(os.Stderr, "integration: isolate:", err)
			return 1
		}
		fillSuite()
	}
	status := m.Run()
	if os.Geteuid() == 0 {
		if left := leftOfSuite(); len(left) > 0 {
			fmt.Fprintf(os.Stderr, "integration: left behind by the whole suite:\n\t%s\n", strings.Join(left, "\n\t"))
			status = max(status, 1)
		}
	}
	return status
}

func fillSuite() {
	outerDir := os.Getenv(envSuiteDir)
	suite.dir = filepath.Join(outerDir, tmpfsDir)
	suite.cgroups = newManager(filepath.Base(outerDir))
	suite.runtime = newRuntime(os.Getenv(envRuntime))
	if path, err := exec.LookPath("runc"); err == nil && suite.runtime.name != "runc" {
		suite.control = newRuntime(path)
	}
	suite.reaper = newReaper()
}

// outer builds the runtime, starts this binary again as PID 1 of namespaces
// of its own, and clears up after it. The PID namespace makes the kernel end
// whatever a failed test left running.
func outer() int {
	dir, err := os.MkdirTemp("", "eggrun-it-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	// Tests with user namespaces must be able to walk through it.
	if err := os.Chmod(dir, 0o711); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	defer newManager(filepath.Base(dir)).remove("")
	runtime, err := findRuntime(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	if err := buildProbe(dir); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), envSuiteDir+"="+dir, envRuntime+"="+runtime)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | ownPIDs() | ownNetwork(),
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Run(); err != nil {
		if cmd.ProcessState == nil {
			fmt.Fprintln(os.Stderr, "integration:", err)
		}
		return 1
	}
	return 0
}

// findRuntime returns the absolute path of the runtime under test and builds
// eggrun when the environment names none.
func findRuntime(dir string) (string, error) {
	if path := os.Getenv("EGGRUN_TEST_RUNTIME"); path != "" {
		return filepath.Abs(path)
	}
	if path := os.Getenv("EGGRUN_BIN"); path != "" {
		return filepath.Abs(path)
	}
	if path := built("eggrun"); path != "" {
		return path, nil
	}
	root, err := filepath.Abs("..")
	if err != nil {
		return "", err
	}
	build := exec.Command("make", "-s", "build")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make build: %w\n%s", err, out)
	}
	return filepath.Join(root, "bin", "eggrun"), nil
}

// built returns where a program is that was built beforehand, "" where all are
// built here.
func built(program string) string {
	dir := os.Getenv("EGGRUN_TEST_BUILT")
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, program)
}

// buildProbe builds testdata/probe statically: it runs in a root file system
// that has no libraries.
func buildProbe(dir string) error {
	if path := built("probe"); path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "probe"), data, 0o755)
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "probe"), "./testdata/probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build testdata/probe: %w\n%s", err, out)
	}
	return nil
}
