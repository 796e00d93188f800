//go:build cgo

package seccomp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"eggrun/internal/need"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// childEnv names what the test binary does instead of testing: filters cannot be
// taken off again, so they are loaded in children.
const childEnv = "EGGRUN_SECCOMP_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		os.Exit(runTests(m))
	case "exec":
		os.Exit(childExec())
	case "threads":
		os.Exit(childThreads())
	case "spawn":
		os.Exit(childSpawn())
	case "agent":
		os.Exit(childAgent())
	case "hello":
		fmt.Println("hello")
	}
}

// workDir is where programs for the tests are compiled.
var workDir string

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "eggrun-seccomp-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	workDir = dir
	return m.Run()
}

// plan is what a child is told, in JSON like a container's plan.
type plan struct {
	Filters      []*Filter
	TSYNC        bool
	NewPrivs     bool // leave no_new_privs off
	NoCaps       bool
	OtherFilters []*Filter // for another thread
	Argv         []string
}

// command returns a child of the given kind with p on its descriptor 3.
func command(t *testing.T, kind string, p plan) *exec.Cmd {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "plan")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"="+kind)
	cmd.ExtraFiles = []*os.File{file}
	return cmd
}

func readPlan() (plan, error) {
	var p plan
	file := os.NewFile(3, "plan")
	defer file.Close()
	return p, json.NewDecoder(file).Decode(&p)
}

// childExec loads the filters on one thread and becomes another program.
func childExec() int {
	p, err := readPlan()
	if err == nil {
		err = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	}
	if err == nil {
		runtime.LockOSThread()
		err = prepareThread(p)
	}
	if err == nil {
		err = loadAll(p.Filters, p.TSYNC)
	}
	if err == nil {
		err = unix.Exec(p.Argv[0], p.Argv, []string{"PATH=/usr/bin:/bin", childEnv + "=hello"})
	}
	fmt.Fprintln(os.Stderr, err)
	return 120
}

func prepareThread(p plan) error {
	if p.NoCaps {
		var none [2]unix.CapUserData
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capset(&hdr, &none[0]); err != nil {
			return err
		}
	}
	if p.NewPrivs {
		return nil
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

func loadAll(filters []*Filter, tsync bool) error {
	for _, f := range filters {
		if err := Load(f, tsync); err != nil {
			return err
		}
	}
	return nil
}

// needI386 is for tests that call through int $0x80.
func needI386(t *testing.T) {
	t.Helper()
	probe := probePath(t)
	need.That(t, "i386 system calls", func() error {
		out, err := exec.Command(probe, "i:20").Output()
		if err == nil && strings.HasPrefix(string(out), "-") {
			err = fmt.Errorf("getpid answers %s", bytes.TrimSpace(out))
		}
		return err
	})
}

// buildProbe compiles testdata/probe.c once.
var buildProbe = sync.OnceValues(func() (string, error) {
	path := filepath.Join(workDir, "probe")
	out, err := exec.Command("gcc", "-O1", "-Wall", "-static", "-pthread", "-o", path, "testdata/probe.c").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return path, err
})

func probePath(t *testing.T) string {
	t.Helper()
	path, err := buildProbe()
	need.That(t, "static C compiler", func() error { return err })
	return path
}

// outcome is what a program did under filters.
type outcome struct {
	lines  []string
	stderr string
	status syscall.WaitStatus
}

// run runs argv under filters.
func run(t *testing.T, filters []*Filter, argv ...string) outcome {
	t.Helper()
	return runPlan(t, plan{Filters: filters, Argv: argv})
}

func runPlan(t *testing.T, p plan) outcome {
	t.Helper()
	cmd := command(t, "exec", p)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{
		lines:  strings.Split(strings.TrimSuffix(stdout.String(), "\n"), "\n"),
		stderr: stderr.String(),
		status: cmd.ProcessState.Sys().(syscall.WaitStatus),
	}
}

// runProbe runs the operations of testdata/probe.c under filters and returns what
// they print.
func runProbe(t *testing.T, filters []*Filter, ops ...string) []string {
	t.Helper()
	out := run(t, filters, append([]string{probePath(t)}, ops...)...)
	if out.status != 0 || out.stderr != "" {
		t.Fatalf("probe %q: status %#x, printed %q, stderr %q", ops, out.status, out.lines, out.stderr)
	}
	return out.lines
}

// mustCompile compiles without a cache.
func mustCompile(t *testing.T, profile *specs.LinuxSeccomp) *Filter {
	t.Helper()
	f, err := Compile(profile, "")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// errnoLine is how the probe prints errno.
func errnoLine(errno unix.Errno) string { return fmt.Sprint(-int(errno)) }

func call(kind string, nr int, args ...any) string {
	op := fmt.Sprintf("%s:%d", kind, nr)
	for _, arg := range args {
		op += fmt.Sprintf(":%v", arg)
	}
	return op
}

func ptr[T any](v T) *T { return &v }

// needAMD64 is for tests with numbers of x86-64 in them.
func needAMD64(t *testing.T) {
	t.Helper()
	need.That(t, "x86-64", func() error {
		if runtime.GOARCH != "amd64" {
			return errors.New(runtime.GOARCH)
		}
		return nil
	})
}
