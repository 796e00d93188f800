package linux

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// childExec executes its arguments, the first of which says how.
func childExec() {
	how, argv := os.Args[1], os.Args[2:]
	if strings.Contains(how, "restore") {
		RestoreNOFILE()
	}
	if strings.Contains(how, "spawn") {
		exe, err := os.OpenFile(argv[0], unix.O_PATH, 0)
		if err != nil {
			panic(err)
		}
		child, err := SpawnIn(SpawnRequest{Exe: exe, Argv: argv})
		if err != nil {
			panic(err)
		}
		reap(child.PID)
		return
	}
	program, err := PrepareExec(argv[0], argv[1:], []string{"A=1", "A=2", "B"})
	if err != nil {
		panic(err)
	}
	fmt.Println("errno", program.Run())
}

func TestExecRun(t *testing.T) {
	t.Parallel()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("/proc/self/exe", append([]string{"run"}, args...)...)
		cmd.Env = append(os.Environ(), childEnv+"=exec")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	wantEqual(t, "arguments", run("/bin/sh", "name", "-c", `printf '%s,' "$0" "$@"`, "zero", "one", ""), "zero,one,,")
	wantEqual(t, "environment", run("/bin/cat", "cat", "/proc/self/environ"), "A=1\x00A=2\x00B\x00")
	wantEqual(t, "missing program", run("/none/such", "x"), fmt.Sprintln("errno", unix.ENOENT))
	wantEqual(t, "directory", run("/", "x"), fmt.Sprintln("errno", unix.EACCES))
}

func TestPrepareExecNUL(t *testing.T) {
	t.Parallel()
	for _, in := range []struct {
		path      string
		argv, env []string
	}{
		{"a\x00", []string{"a"}, nil},
		{"a", []string{"a", "\x00"}, nil},
		{"a", []string{"a"}, []string{"A=\x00"}},
	} {
		_, err := PrepareExec(in.path, in.argv, in.env)
		wantErrno(t, err, unix.EINVAL)
	}
}

// TestRestoreNOFILE needs the soft limit of open files to be what this process
// was started with, for both ways to start another; and without RestoreNOFILE it
// is the one that Go raised, or the test shows nothing.
func TestRestoreNOFILE(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]string{
		"run":           "899", // Go leaves one, to tell its own limit
		"spawn":         "899",
		"run restore":   "300",
		"spawn restore": "300",
	} {
		cmd := exec.Command("/bin/sh", "-c", `ulimit -Sn 300; ulimit -Hn 900; exec /proc/"$1"/exe "$2" /bin/sh sh -c 'ulimit -Sn'`,
			"sh", fmt.Sprint(os.Getpid()), how)
		if strings.HasPrefix(how, "spawn") {
			// argv[0] is the program there.
			cmd.Args[2] = strings.Replace(cmd.Args[2], "/bin/sh sh -c", "/bin/sh -c", 1)
		}
		cmd.Env = append(os.Environ(), childEnv+"=exec")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", how, err, out)
		}
		wantEqual(t, how, strings.TrimSpace(string(out)), want)
	}
}
