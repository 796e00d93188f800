package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// sh returns a hook that runs a shell script with args.
func sh(script string, args ...string) specs.Hook {
	return specs.Hook{Path: "/bin/sh", Args: append([]string{"sh", "-c", script, "sh"}, args...), Env: []string{"PATH=/usr/bin:/bin"}}
}

func wantText(t *testing.T, err error, want string) {
	t.Helper()
	if fmt.Sprint(err) != want {
		t.Errorf("error %q, want %q", fmt.Sprint(err), want)
	}
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil || string(text) != want {
		t.Errorf("%s: %q (%v), want %q", filepath.Base(path), text, err, want)
	}
}

// readPID returns the pid in a file, and ends that process after the test.
func readPID(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return pid
}

func TestState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state := &specs.State{
		Version: specs.Version, ID: "a", Status: specs.StateCreated, Pid: 7, Bundle: "/b",
		Annotations: map[string]string{"k": "<v>"},
	}
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	if err := Run("prestart", []specs.Hook{sh(`cat > "$1"`, one), sh(`cat > "$1"`, two)}, state); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{one, two} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got specs.State
		if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(&got, state) {
			t.Errorf("state %s (%v)", text, err)
		}
	}
	if err := Run("poststop", nil, nil); err != nil {
		t.Error(err)
	}
}

// TestEnvironment needs a hook to get what config.json says and nothing of the
// caller's.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	if len(os.Environ()) == 0 {
		t.Fatal("nothing to inherit in this test")
	}
	for _, env := range [][]string{nil, {}, {"B=2", "A=with space = and\nline", "EMPTY="}} {
		dir := t.TempDir()
		h := sh(`/bin/cat /proc/$$/environ > "$1"; /bin/cat /proc/$$/cmdline > "$2"; pwd > "$3"`,
			filepath.Join(dir, "environ"), filepath.Join(dir, "cmdline"), filepath.Join(dir, "pwd"))
		h.Env, h.Args[0] = env, "its name"
		if err := Run("prestart", []specs.Hook{h}, &specs.State{}); err != nil {
			t.Fatal(err)
		}
		want := ""
		for _, variable := range env {
			want += variable + "\x00"
		}
		wantFile(t, filepath.Join(dir, "environ"), want)
		wantFile(t, filepath.Join(dir, "cmdline"), strings.Join(h.Args, "\x00")+"\x00")
		cwd, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		wantFile(t, filepath.Join(dir, "pwd"), cwd+"\n")
	}
	dir := t.TempDir()
	if err := RunIn(dir, "prestart", []specs.Hook{sh("pwd > here")}, &specs.State{}); err != nil {
		t.Fatal(err)
	}
	wantFile(t, filepath.Join(dir, "here"), dir+"\n")
	// Without args the path is the name.
	if err := Run("prestart", []specs.Hook{{Path: "/bin/true"}}, &specs.State{}); err != nil {
		t.Error(err)
	}
}

// TestFailure needs the hooks to run in order, none after one that failed.
func TestFailure(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	for _, tt := range []struct {
		name, script, want string
	}{
		{"silent", "exit 3", `prestart hook #1 "/bin/sh": exit status 3`},
		{"last line", `echo first >&2; echo out; printf ' last \n\n' >&2; exit 3`, `prestart hook #1 "/bin/sh": exit status 3: last`},
		{"signal", "kill -TERM $$", `prestart hook #1 "/bin/sh": signal: terminated`},
		{"talks and succeeds", "echo warning >&2", "<nil>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(t.TempDir(), "log")
			hooks := []specs.Hook{sh(`echo 0 >> "$1"`, log), sh(`echo 1 >> "$1"; `+tt.script, log), sh(`echo 2 >> "$1"`, log)}
			wantText(t, Run("prestart", hooks, &specs.State{}), tt.want)
			want := "0\n1\n2\n"
			if tt.want != "<nil>" {
				want = "0\n1\n"
			}
			wantFile(t, log, want)
		})
	}
	err := Run("createRuntime", []specs.Hook{{Path: missing}}, &specs.State{})
	wantText(t, err, fmt.Sprintf(`createRuntime hook #0 %q: fork/exec %s: no such file or directory`, missing, missing))
	if !errors.Is(err, syscall.ENOENT) {
		t.Errorf("error %v", err)
	}
}

// TestLongStderr keeps only the end of what a hook says.
func TestLongStderr(t *testing.T) {
	t.Parallel()
	err := Run("prestart", []specs.Hook{sh("head -c 3000000 /dev/zero | tr '\\0' x >&2; echo y >&2; exit 3")}, &specs.State{})
	wantText(t, err, `prestart hook #0 "/bin/sh": exit status 3: `+strings.Repeat("x", 4094)+"y")
	kept := tail{most: 4}
	for _, text := range []string{"ab", "cde", "", "fghijk"} {
		if n, err := kept.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("%q: %d, error %v", text, n, err)
		}
	}
	if string(kept.kept) != "hijk" {
		t.Errorf("kept %q", kept.kept)
	}
}

// TestRunAll needs a failed hook to keep no other from running.
func TestRunAll(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	hooks := []specs.Hook{sh(`echo 0 >> "$1"; exit 3`, log), sh(`echo 1 >> "$1"`, log), sh(`echo 2 >> "$1"; exit 4`, log)}
	errs := RunAll("poststop", hooks, &specs.State{})
	wantText(t, errors.Join(errs...), "poststop hook #0 \"/bin/sh\": exit status 3\npoststop hook #2 \"/bin/sh\": exit status 4")
	wantFile(t, log, "0\n1\n2\n")
	if errs := RunAll("poststop", hooks[1:2], &specs.State{}); errs != nil {
		t.Error(errs)
	}
}

// TestUnreadState has a hook that does not read its input, which is more than a
// pipe holds.
func TestUnreadState(t *testing.T) {
	t.Parallel()
	state := &specs.State{Annotations: map[string]string{"big": strings.Repeat("x", 1<<20)}}
	wantText(t, Run("prestart", []specs.Hook{sh("exec <&-"), sh("true"), sh("head -c 10 > /dev/null")}, state), "<nil>")
	wantText(t, Run("prestart", []specs.Hook{sh("echo why >&2; exit 1")}, state), `prestart hook #0 "/bin/sh": exit status 1: why`)
}

// TestTimeout needs a hook that takes too long to be gone.
func TestTimeout(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pid")
	second := 1
	h := sh(`echo $$ > "$1"; exec sleep 60`, path)
	h.Timeout = &second
	wantText(t, Run("prestart", []specs.Hook{h}, &specs.State{}), `prestart hook #0 "/bin/sh": no end after 1 s`)
	if err := syscall.Kill(readPID(t, path), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the hook lives: %v", err)
	}
	// One that is in time is not disturbed.
	h = sh("exit 0")
	minute := 60
	h.Timeout = &minute
	wantText(t, Run("prestart", []specs.Hook{h}, &specs.State{}), "<nil>")
	h = sh("exit 1")
	h.Timeout = &minute
	wantText(t, Run("prestart", []specs.Hook{h}, &specs.State{}), `prestart hook #0 "/bin/sh": exit status 1`)
}

// TestLeftBehind has hooks that leave a process with their stderr and input.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		`sleep 60 & echo $! > "$1"; exit 0`:                "<nil>",
		`sleep 60 & echo $! > "$1"; echo why >&2; exit 2`:  `prestart hook #0 "/bin/sh": exit status 2: why`,
		`sleep 60 <&0 & echo $! > "$1"; echo ok >&2; exit`: "<nil>",
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "pid")
			state := &specs.State{Annotations: map[string]string{"big": strings.Repeat("x", 1<<20)}}
			done := make(chan error, 1)
			go func() { done <- Run("prestart", []specs.Hook{sh(script, path)}, state) }()
			select {
			case err := <-done:
				wantText(t, err, want)
			case <-time.After(20 * time.Second):
				t.Error("held up")
			}
			if err := syscall.Kill(readPID(t, path), 0); err != nil {
				t.Errorf("what was left behind is gone: %v", err)
			}
		})
	}
}
