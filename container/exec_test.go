package container

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"eggrun/egress"
	"eggrun/egress/inside"
	"eggrun/internal/linux"
	"eggrun/internal/state"
	"eggrun/internal/syncsocket"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestNewExecBase(t *testing.T) {
	t.Parallel()
	process := &specs.Process{Args: []string{"sh"}}
	for _, tt := range []struct {
		name    string
		seccomp *specs.LinuxSeccomp
		want    *specs.LinuxSeccomp
	}{
		{"no profile", nil, nil},
		{"no agent", &specs.LinuxSeccomp{DefaultAction: specs.ActAllow}, nil},
		{"agent", &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, ListenerPath: "/run/agent", ListenerMetadata: "x"},
			&specs.LinuxSeccomp{ListenerPath: "/run/agent", ListenerMetadata: "x"}},
	} {
		plan := &spec.Plan{Seccomp: tt.seccomp}
		base := newExecBase(process, plan, nil)
		if base.Process != process || base.Plan != plan || !reflect.DeepEqual(base.Agent, tt.want) {
			t.Errorf("%s: %+v, want agent %+v", tt.name, base, tt.want)
		}
	}
}

// executionOf returns an execution in a container whose create has kept base.
func executionOf(t *testing.T, base *execBase, walled bool, process *specs.Process) *execution {
	t.Helper()
	dir, err := state.Create(t.TempDir(), "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	if err := dir.SaveExec(base); err != nil {
		t.Fatal(err)
	}
	return &execution{
		Container: &Container{dir: dir, state: &state.State{ID: "c", Walled: walled, ExecCPUAffinity: &specs.CPUAffinity{Final: "1"}}},
		options:   &ExecOptions{Process: func(*specs.Process) (*specs.Process, error) { return process, nil }},
	}
}

// TestExecDecide: the plan is the container's, but for its process.
func TestExecDecide(t *testing.T) {
	t.Parallel()
	score := -5
	base := func() *execBase {
		return &execBase{Wall: &egress.Kept{ProxyEnv: true}, Plan: &spec.Plan{
			Hostname: "egg",
			Process:  &spec.Process{Args: []string{"init"}, Env: []string{"INIT=1"}, Cwd: "/init", OOMScoreAdj: &score, Terminal: true},
		}}
	}
	process := &specs.Process{Args: []string{"sh"}, Env: []string{"A=1", "HTTPS_PROXY=http://engine.example:1"}, Cwd: "/"}
	for _, walled := range []bool{false, true} {
		x := executionOf(t, base(), walled, process)
		if err := x.decide(); err != nil {
			t.Fatal(err)
		}
		p := x.base.Plan.Process
		if x.base.Plan.Hostname != "egg" || p.Cwd != "/" || p.Terminal || len(p.Args) != 1 || p.Args[0] != "sh" {
			t.Errorf("walled %v: plan %+v, process %+v", walled, x.base.Plan, p)
		}
		if p.OOMScoreAdj == nil || *p.OOMScoreAdj != score || p.ExecCPUAffinity == nil || p.ExecCPUAffinity.Final != "1" {
			t.Errorf("walled %v: what the process leaves open is not the container's: %+v", walled, p)
		}
		env := strings.Join(p.Env, "\n")
		if strings.Contains(env, "INIT") || strings.Contains(env, "engine.example") == walled || strings.Contains(env, "127.0.0.1") != walled {
			t.Errorf("walled %v, proxy at port %d: environment %q", walled, inside.Port, p.Env)
		}
	}
	own := 7
	x := executionOf(t, base(), false, &specs.Process{Args: []string{"sh"}, Cwd: "/", OOMScoreAdj: &own, ExecCPUAffinity: &specs.CPUAffinity{Initial: "0"}})
	if err := x.decide(); err != nil {
		t.Fatal(err)
	}
	if p := x.base.Plan.Process; *p.OOMScoreAdj != own || p.ExecCPUAffinity.Final != "" {
		t.Errorf("what the process says is not taken: %+v", p)
	}
}

func TestExecDecideRefuses(t *testing.T) {
	t.Parallel()
	takes := func(master *os.File) error { return master.Close() }
	good := specs.Process{Args: []string{"sh"}, Cwd: "/"}
	with := func(change func(*specs.Process)) *specs.Process {
		process := good
		change(&process)
		return &process
	}
	for _, tt := range []struct {
		name     string
		process  *specs.Process
		console  func(*os.File) error
		optional bool
		want     string
	}{
		{"nothing", nil, nil, false, "process: must be set"},
		{"no program", with(func(p *specs.Process) { p.Args = nil }), nil, false, "process: args: must not be empty"},
		{"relative directory", with(func(p *specs.Process) { p.Cwd = "x" }), nil, false, `process: cwd "x": must be absolute`},
		{"terminal for nobody", with(func(p *specs.Process) { p.Terminal = true }), nil, false, "process.terminal: nobody takes the terminal; give --console-socket"},
		{"taker without a terminal", &good, takes, false, "option --console-socket: process.terminal is not set"},
		{"control: terminal", with(func(p *specs.Process) { p.Terminal = true }), takes, false, ""},
		{"control: terminal, perhaps", &good, takes, true, ""},
	} {
		x := executionOf(t, &execBase{Plan: &spec.Plan{}}, false, tt.process)
		x.options.Console, x.options.ConsoleOptional = tt.console, tt.optional
		got := ""
		if err := x.decide(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: error %q, want %q", tt.name, got, tt.want)
		}
	}
	// Who asks for the process may refuse it too.
	x := executionOf(t, &execBase{Plan: &spec.Plan{}}, false, nil)
	refusal := errors.New("refused")
	x.options.Process = func(*specs.Process) (*specs.Process, error) { return nil, refusal }
	if err := x.decide(); !errors.Is(err, refusal) {
		t.Errorf("error %v, want %v", err, refusal)
	}
}

// TestExecConverse plays init.
func TestExecConverse(t *testing.T) {
	t.Parallel()
	failure := errors.New("exec \"x\": not there")
	for _, tt := range []struct {
		name string
		init func(s *syncsocket.Socket)
		want string
	}{
		{"executed", func(s *syncsocket.Socket) { _ = s.Send(syncsocket.Ready, nil) }, ""},
		{"ended", func(*syncsocket.Socket) {}, errInitEnded.Error()},
		{"failed", func(s *syncsocket.Socket) { _ = s.SendFailure(failure) }, failure.Error()},
		{"failed after ready", func(s *syncsocket.Socket) { _, _ = s.Send(syncsocket.Ready, nil), s.SendFailure(failure) }, failure.Error()},
		{"message of a create", func(s *syncsocket.Socket) { _ = s.Send(syncsocket.Hooks, nil) }, `sync message "hooks": unexpected`},
		{"terminal that nobody takes", func(s *syncsocket.Socket) { _ = s.Send(syncsocket.Console, nil, os.Stdin) }, `sync message "console": unexpected`},
	} {
		host, init, err := syncsocket.Pair()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			tt.init(init)
			init.Close()
		}()
		x := &execution{Container: &Container{state: &state.State{}}, options: &ExecOptions{}, socket: host}
		got := ""
		if err := x.converse(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		host.Close()
	}
}

// TestExecConverseConsole hands the terminal on, but not a message without one.
func TestExecConverseConsole(t *testing.T) {
	t.Parallel()
	for _, files := range [][]*os.File{nil, {os.Stdin}, {os.Stdin, os.Stderr}} {
		host, init, err := syncsocket.Pair()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = init.Send(syncsocket.Console, nil, files...), init.Send(syncsocket.Ready, nil)
			init.Close()
		}()
		taken := 0
		x := &execution{socket: host, options: &ExecOptions{Console: func(master *os.File) error { taken++; return master.Close() }}}
		err = x.converse()
		if (err == nil) != (len(files) == 1) || taken == 1 != (len(files) == 1) {
			t.Errorf("%d descriptors: %d taken, error %v", len(files), taken, err)
		}
		host.Close()
	}
}

func TestExecStates(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		state state.State
		want  string
	}{
		{state.State{}, "container is creating, want running"},
		{state.State{Init: linux.Process{PID: os.Getpid(), Start: 1}, Ready: true}, "container not running"},
	} {
		c := &Container{state: &tt.state}
		if _, err := c.Exec(&ExecOptions{}); err == nil || err.Error() != tt.want {
			t.Errorf("%+v: error %v, want %s", tt.state, err, tt.want)
		}
	}
}

func TestSubCgroupDirs(t *testing.T) {
	t.Parallel()
	v1 := map[string]string{"pids": "/pids/c", "cpu": "/cpu/c"}
	for _, tt := range []struct {
		paths, sub map[string]string
		want, err  string
	}{
		{v1, map[string]string{"pids": "sub"}, "/cpu/c /pids/c/sub", ""},
		{v1, map[string]string{"pids": "/sub/", "cpu": "sub/deep"}, "/cpu/c/sub/deep /pids/c/sub", ""},
		{v1, map[string]string{"pids": "other/../sub"}, "", `bad sub cgroup path "other/../sub": must stay below the container's`},
		{v1, map[string]string{"": ".."}, "", `bad sub cgroup path "..": must stay below the container's`},
		{v1, map[string]string{"pids": "..sub"}, "/cpu/c /pids/c/..sub", ""},
		{v1, map[string]string{"nosuch": "sub"}, "", `unknown controller "nosuch"`},
		{v1, map[string]string{"": "sub"}, "/cpu/c/sub /pids/c/sub", ""},
		{map[string]string{"": "/c"}, map[string]string{"": "sub"}, "/c/sub", ""},
		{map[string]string{"": "/c"}, map[string]string{"pids": "sub"}, "", `unknown controller "pids"`},
	} {
		dirs, err := subCgroupDirs(tt.paths, tt.sub)
		text := ""
		if err != nil {
			text = err.Error()
		}
		slices.Sort(dirs)
		if strings.Join(dirs, " ") != tt.want || text != tt.err {
			t.Errorf("%v: %q, error %q, want %q, %q", tt.sub, dirs, text, tt.want, tt.err)
		}
	}
}

func TestSetAffinity(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	allowed := func() []byte {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "status"))
		if err != nil {
			t.Fatal(err)
		}
		_, list, _ := bytes.Cut(status, []byte("Cpus_allowed_list:\t"))
		list, _, _ = bytes.Cut(list, []byte("\n"))
		return list
	}
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		t.Fatal(err)
	}
	first := 0
	for !own.IsSet(first) {
		first++
	}
	before := allowed()
	for _, tt := range []struct{ list, want, err string }{
		{"", string(before), ""},
		{strconv.Itoa(first), strconv.Itoa(first), ""},
		{"60000", strconv.Itoa(first), `process.execCPUAffinity.final "60000": none of these CPUs is there and in linux.resources.cpu.cpus`},
	} {
		got := ""
		if err := setAffinity(cmd.Process.Pid, "final", tt.list); err != nil {
			got = err.Error()
		}
		if got != tt.err || string(allowed()) != tt.want {
			t.Errorf("%q: error %q, CPUs %s, want %q and %s", tt.list, got, allowed(), tt.err, tt.want)
		}
	}
}
