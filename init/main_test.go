package initproc

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"eggrun/internal/need"
)

// What the test binary is when its first argument is one of these. Nothing of
// what the wrapper does could be undone in the tests' own process.
const (
	asInit  = "init"  // the wrapper or its reaper, as in main
	asAgent = "agent" // the command in the sandbox, see agent_test.go
)

func init() {
	// As main does, and as early.
	if len(os.Args) > 1 && os.Args[1] == asInit {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case asInit:
			DenyInit(os.Args[2:])
		case asAgent:
			os.Exit(agent(os.Args[2:]))
		}
	}
	os.Exit(runTests(m))
}

// workDir holds the programs of the tests, where every user can reach them.
var workDir string

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "eggrun-init-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	workDir = dir
	return m.Run()
}

// copySelf copies this binary to where every user may execute it.
var copySelf = sync.OnceValues(func() (string, error) {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer from.Close()
	path := filepath.Join(workDir, "self")
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return "", err
	}
	if _, err := io.Copy(to, from); err != nil {
		return "", err
	}
	return path, to.Close()
})

// selfPath is the path of this binary for commands in a sandbox.
func selfPath(t *testing.T) string {
	t.Helper()
	path, err := copySelf()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// buildProbe compiles the prober of the seccomp tests.
var buildProbe = sync.OnceValues(func() (string, error) {
	path := filepath.Join(workDir, "probe")
	const source = "../internal/seccomp/testdata/probe.c"
	out, err := exec.Command("gcc", "-O1", "-Wall", "-static", "-pthread", "-o", path, source).CombinedOutput()
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

// eventually polls until ok, and fails the test after a generous while.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen: %s", what)
		}
	}
}
