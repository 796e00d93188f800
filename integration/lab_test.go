package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lab is one test's own corner: a runtime, a runtime root, bundles, and a
// cgroup above its containers. When the test ends, nothing may be left in it.
type lab struct {
	t          *testing.T
	rt         runtimeUnderTest
	dir        string // all files of the test
	root       string // --root
	cgroup     string // the absolute cgroup above the test's containers
	ids        []string
	containers int
	calls      int
	as         uint32 // uid and gid of the caller, root unless a test sets them
}

func newLab(t *testing.T, rt runtimeUnderTest) *lab {
	t.Helper()
	dir, err := os.MkdirTemp(suite.dir, rt.name+"-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, rt: rt, dir: dir, root: filepath.Join(dir, "root"), cgroup: suite.cgroups.above(filepath.Base(dir))}
	t.Cleanup(l.close)
	return l
}

// close deletes what the test created, as podman does in the end, and looks
// for what is left.
func (l *lab) close() {
	for _, id := range l.ids {
		if r := l.call("delete", "--force", id); r.code != 0 {
			l.t.Errorf("delete --force %s: exit %d: %s", id, r.code, r.stderr)
		}
	}
	l.checkLeaks()
	suite.cgroups.remove(filepath.Base(l.dir))
	if !l.t.Failed() {
		_ = os.RemoveAll(l.dir)
	}
}

// invocation is one call of the runtime; only args is always needed.
type invocation struct {
	args       []string // verb and its arguments
	globals    []string // instead of --root, --log and --log-format
	stdin      *os.File // default /dev/null
	stdout     *os.File // default a file that becomes result.stdout
	env        []string // added to a small environment
	onlyEnv    bool     // nothing but env
	dir        string
	extraFiles []*os.File // descriptors 3 and up
}

// result is how a call ended.
type result struct {
	args           []string
	code           int
	stdout, stderr string
	outFile        string   // where the container, if it lives on, still writes
	records        []record // of the JSON log, empty when invocation.globals were given
}

// record is one line of the JSON log.
type record struct {
	Level string `json:"level"`
	Msg   string `json:"msg"`
	Time  string `json:"time"`
}

// call runs the runtime with the lab's root and a JSON log of its own.
func (l *lab) call(args ...string) result {
	l.t.Helper()
	return l.invoke(invocation{args: args})
}

func (l *lab) invoke(in invocation) result {
	l.t.Helper()
	cmd, r, logFile := l.command(in)
	if err := suite.reaper.start(cmd); err != nil {
		l.t.Fatal(err)
	}
	return l.finish(cmd, r, logFile)
}

// command prepares a call without starting it.
func (l *lab) command(in invocation) (*exec.Cmd, result, string) {
	l.t.Helper()
	l.calls++
	base := filepath.Join(l.dir, fmt.Sprintf("call%d", l.calls))
	logFile := base + ".log"
	args := in.globals
	if in.globals == nil {
		args = append(l.managerFlags(), "--root", l.root, "--log", logFile, "--log-format", "json")
	} else {
		logFile = ""
		if isCreate := in.args[0] == "create" || in.args[0] == "run"; isCreate && !slices.Contains(args, "--cgroup-manager") {
			args = append(l.managerFlags(), args...)
		}
	}
	cmd := exec.Command(l.rt.path, append(args[:len(args):len(args)], in.args...)...)
	cmd.Dir = in.dir
	if l.as != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: l.as, Gid: l.as}}
	}
	// podman gives root an empty XDG_RUNTIME_DIR, which must not matter.
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/root", "XDG_RUNTIME_DIR=", "EGGRUN_IT_LAB=" + l.dir}, in.env...)
	if in.onlyEnv {
		cmd.Env = in.env
	}
	cmd.ExtraFiles = in.extraFiles
	if in.stdin != nil {
		cmd.Stdin = in.stdin
	}
	if in.stdout == nil {
		in.stdout = l.createFile(base + ".out")
	}
	cmd.Stdout, cmd.Stderr = in.stdout, l.createFile(base+".err")
	return cmd, result{args: in.args, outFile: base + ".out"}, logFile
}

// inShell has a shell call the command, which is "$@" to script.
func inShell(cmd *exec.Cmd, script string) {
	cmd.Args = append([]string{"sh", "-c", script, "sh", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
}

func (l *lab) createFile(path string) *os.File {
	l.t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = file.Close() })
	return file
}

// finish waits for the command and reads what it wrote.
func (l *lab) finish(cmd *exec.Cmd, r result, logFile string) result {
	l.t.Helper()
	tooLong := time.AfterFunc(2*patience, func() { _ = cmd.Process.Signal(unix.SIGKILL) })
	err := suite.reaper.wait(cmd)
	if !tooLong.Stop() {
		l.t.Errorf("%v: did not end within %v", cmd.Args, 2*patience)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		l.t.Fatalf("%v: %v", cmd.Args, err)
	}
	r.code = exitCode(unix.WaitStatus(cmd.ProcessState.Sys().(syscall.WaitStatus)))
	r.stdout = readIfThere(l.t, r.outFile)
	r.stderr = readIfThere(l.t, strings.TrimSuffix(r.outFile, ".out")+".err")
	if logFile != "" {
		r.records = l.readRecords(readIfThere(l.t, logFile))
		l.checkRecords(r)
	}
	return r
}

func (l *lab) readRecords(text string) []record {
	l.t.Helper()
	var records []record
	for line := range strings.Lines(text) {
		var one record
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			l.t.Errorf("log line %q: %v", line, err)
			continue
		}
		records = append(records, one)
	}
	return records
}

// checkRecords holds every call of eggrun to the contract with podman, which
// reads the whole log as one JSON object.
func (l *lab) checkRecords(r result) {
	l.t.Helper()
	if !l.rt.isEggrun() || r.args[0] == "run" || r.args[0] == "exec" {
		return
	}
	want := 0
	if r.code != 0 {
		want = 1
	}
	if len(r.records) != want {
		l.t.Errorf("%v: exit %d: %d log records, want %d: %+v", r.args, r.code, len(r.records), want, r.records)
	}
}

func readIfThere(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}
