package main

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v2"
)

func wantError(t *testing.T, what string, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("%s: error %q, want %q", what, got, want)
	}
}

func TestSetUser(t *testing.T) {
	t.Parallel()
	const want = ": want UID or UID:GID, in numbers"
	for _, tt := range []struct {
		user     string
		gids     []string
		uid, gid uint32
		groups   []uint32
		err      string
	}{
		{"", nil, 7, 8, []uint32{9}, ""},
		{"0", nil, 0, 8, []uint32{9}, ""},
		{"1000", nil, 1000, 8, []uint32{9}, ""},
		{"1000:0", nil, 1000, 0, []uint32{9}, ""},
		{"4294967294:4294967294", nil, 1<<32 - 2, 1<<32 - 2, []uint32{9}, ""},
		{"", []string{"5", "0"}, 7, 8, []uint32{9, 5, 0}, ""},
		{"1:2", []string{"3"}, 1, 2, []uint32{9, 3}, ""},
		{"x", nil, 0, 0, nil, `option --user "x"` + want},
		{"1000:", nil, 0, 0, nil, `option --user "1000:"` + want},
		{":1000", nil, 0, 0, nil, `option --user ":1000"` + want},
		{"1000:1000:1000", nil, 0, 0, nil, `option --user "1000:1000:1000"` + want},
		{"-1", nil, 0, 0, nil, `option --user "-1"` + want},
		{"+1", nil, 0, 0, nil, `option --user "+1"` + want},
		{" 1", nil, 0, 0, nil, `option --user " 1"` + want},
		{"1 ", nil, 0, 0, nil, `option --user "1 "` + want},
		{"0x10", nil, 0, 0, nil, `option --user "0x10"` + want},
		{"1_0", nil, 0, 0, nil, `option --user "1_0"` + want},
		{"4294967295", nil, 0, 0, nil, `option --user "4294967295"` + want},
		{"4294967296", nil, 0, 0, nil, `option --user "4294967296"` + want},
		{"", []string{"x"}, 0, 0, nil, `option --additional-gids "x"` + want},
		{"", []string{"4294967295"}, 0, 0, nil, `option --additional-gids "4294967295"` + want},
	} {
		u := specs.User{UID: 7, GID: 8, AdditionalGids: []uint32{9}}
		err := setUser(&u, tt.user, tt.gids)
		wantError(t, tt.user, err, tt.err)
		if err == nil && !reflect.DeepEqual(u, specs.User{UID: tt.uid, GID: tt.gid, AdditionalGids: tt.groups}) {
			t.Errorf("%q, %v: %+v", tt.user, tt.gids, u)
		}
	}
}

func TestSubCgroups(t *testing.T) {
	t.Parallel()
	wrong := func(value string) string {
		return `option --cgroup "` + value + `": want one PATH, or each CONTROLLER:PATH once`
	}
	for _, tt := range []struct {
		values []string
		want   map[string]string
		err    string
	}{
		{nil, map[string]string{}, ""},
		{[]string{"a/b"}, map[string]string{"": "a/b"}, ""},
		{[]string{"/"}, map[string]string{"": "/"}, ""},
		{[]string{"pids:a"}, map[string]string{"pids": "a"}, ""},
		{[]string{"cpu,cpuacct:a", "pids:b:c"}, map[string]string{"cpu": "a", "cpuacct": "a", "pids": "b:c"}, ""},
		{[]string{"a", "b"}, nil, wrong("a")},
		{[]string{"pids:a", "b"}, nil, wrong("b")},
		{[]string{"pids:a", "pids:b"}, nil, wrong("pids:b")},
		{[]string{"cpu,cpu:a"}, nil, wrong("cpu,cpu:a")},
		{[]string{":a"}, nil, wrong(":a")},
		{[]string{"cpu,:a"}, nil, wrong("cpu,:a")},
	} {
		got, err := subCgroups(tt.values)
		wantError(t, strings.Join(tt.values, " "), err, tt.err)
		if err == nil && !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q: %v, want %v", tt.values, got, tt.want)
		}
	}
}

func TestAddCapabilities(t *testing.T) {
	t.Parallel()
	some := func() *specs.LinuxCapabilities {
		return &specs.LinuxCapabilities{Bounding: []string{"A"}, Effective: []string{"B"}, Inheritable: []string{"C"}, Permitted: []string{"D"}, Ambient: []string{"E"}}
	}
	for _, tt := range []struct {
		name   string
		before *specs.LinuxCapabilities
		add    []string
		want   *specs.LinuxCapabilities
	}{
		{"nothing to nothing", nil, nil, nil},
		{"nothing", some(), nil, some()},
		{"to nothing", nil, []string{"X"}, &specs.LinuxCapabilities{Bounding: []string{"X"}, Effective: []string{"X"}, Permitted: []string{"X"}}},
		{"never inheritable", some(), []string{"X", "Y"}, &specs.LinuxCapabilities{
			Bounding: []string{"A", "X", "Y"}, Effective: []string{"B", "X", "Y"}, Inheritable: []string{"C"}, Permitted: []string{"D", "X", "Y"}, Ambient: []string{"E", "X", "Y"},
		}},
		{"not ambient", &specs.LinuxCapabilities{Ambient: []string{"E"}}, []string{"X"}, &specs.LinuxCapabilities{
			Bounding: []string{"X"}, Effective: []string{"X"}, Permitted: []string{"X"}, Ambient: []string{"E"},
		}},
	} {
		p := &specs.Process{Capabilities: tt.before}
		addCapabilities(p, tt.add)
		if !reflect.DeepEqual(p.Capabilities, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, p.Capabilities, tt.want)
		}
	}
}

// parseExec parses a command line of exec and does with it what use says.
func parseExec(use func(*cli.Context) error, args ...string) error {
	app := &cli.App{
		Commands:       []*cli.Command{{Name: "exec", Flags: execCommand.Flags, Action: use}},
		ExitErrHandler: func(*cli.Context, error) {},

		DisableSliceFlagSeparator: true, // as newApp has it
	}
	return app.Run(append([]string{"eggrun", "exec"}, args...))
}

// The flags are one set for the whole program: no t.Parallel.
func TestExecProcess(t *testing.T) {
	base := func() *specs.Process {
		return &specs.Process{
			Terminal: true, Args: []string{"init"}, Env: []string{"A=1"}, Cwd: "/srv", NoNewPrivileges: true,
			User: specs.User{UID: 7, GID: 8}, ApparmorProfile: "old", SelinuxLabel: "old",
		}
	}
	file := filepath.Join(t.TempDir(), "process.json")
	if err := os.WriteFile(file, []byte(`{"args":["file"],"cwd":"/file","user":{"uid":1,"gid":2}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "none")
	for _, tt := range []struct {
		name, args string
		base       *specs.Process
		want       func(*specs.Process)
		err        string
	}{
		{"program", "c sh -c --user", base(), func(p *specs.Process) { p.Args = []string{"sh", "-c", "--user"} }, ""},
		{"terminal", "-t c sh", base(), func(p *specs.Process) { p.Args, p.Terminal = []string{"sh"}, true }, ""},
		{"environment", "--env B=2 --env A=3 c sh", base(), func(p *specs.Process) { p.Args, p.Env = []string{"sh"}, []string{"A=1", "B=2", "A=3"} }, ""},
		{"commas in a variable", "-e B=2,C=3 c sh", base(), func(p *specs.Process) { p.Args, p.Env = []string{"sh"}, []string{"A=1", "B=2,C=3"} }, ""},
		{"directory", "--cwd /x c sh", base(), func(p *specs.Process) { p.Args, p.Cwd = []string{"sh"}, "/x" }, ""},
		{"labels", "--apparmor a --process-label l c sh", base(), func(p *specs.Process) {
			p.Args, p.ApparmorProfile, p.SelinuxLabel = []string{"sh"}, "a", "l"
		}, ""},
		{"privileges", "--no-new-privs=false c sh", base(), func(p *specs.Process) { p.Args, p.NoNewPrivileges = []string{"sh"}, false }, ""},
		{"capability", "--cap CAP_X c sh", base(), func(p *specs.Process) {
			names := []string{"CAP_X"}
			p.Args, p.Capabilities = []string{"sh"}, &specs.LinuxCapabilities{Bounding: names, Effective: names, Permitted: names}
		}, ""},
		{"user", "--user 1:2 --additional-gids 3 c sh", base(), func(p *specs.Process) {
			p.Args, p.User = []string{"sh"}, specs.User{UID: 1, GID: 2, AdditionalGids: []uint32{3}}
		}, ""},
		{"wrong user", "--user x c sh", base(), nil, `option --user "x": want UID or UID:GID, in numbers`},
		{"no program", "c", base(), nil, "no program; name it after the id or use --process"},
		{"no process in config.json", "c sh", nil, nil, "config.json has no process; use --process"},
		{"file", "--process " + file + " c", base(), func(p *specs.Process) {
			*p = specs.Process{Args: []string{"file"}, Cwd: "/file", User: specs.User{UID: 1, GID: 2}}
		}, ""},
		{"file without a process in config.json", "-p " + file + " c", nil, func(p *specs.Process) {
			*p = specs.Process{Args: []string{"file"}, Cwd: "/file", User: specs.User{UID: 1, GID: 2}}
		}, ""},
		{"missing file", "--process " + missing + " c", base(), nil, "open " + missing + ": no such file or directory"},
	} {
		var got *specs.Process
		err := parseExec(func(c *cli.Context) (err error) {
			got, err = execProcess(c, tt.base)
			return err
		}, strings.Fields(tt.args)...)
		wantError(t, tt.name, err, tt.err)
		if tt.err != "" {
			continue
		}
		want := base()
		want.Terminal = false
		tt.want(want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, want)
		}
	}
}

// TestExecFailures: every failure of exec itself can be told from a status of
// the program.
func TestExecFailures(t *testing.T) {
	root := t.TempDir()
	for name, tt := range map[string]struct{ args, want string }{
		"no id":        {"exec", "exec: no container id"},
		"unknown id":   {"exec none true", "exec none: container does not exist"},
		"unknown flag": {"exec --nosuch none true", "flag provided but not defined: -nosuch; see eggrun --help"},
		"wrong cgroup": {"exec --cgroup :a none true", `exec none: option --cgroup ":a": want one PATH, or each CONTROLLER:PATH once`},
		"wrong count":  {"exec --preserve-fds -1 none true", "exec none: option --preserve-fds -1: want 0 to 65536"},
	} {
		err := newApp(&errorLog{}).Run(append([]string{"eggrun", "--root", root}, strings.Fields(tt.args)...))
		// Each newApp prefixes the commands, which are one set, once more.
		if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %s", name, err, tt.want)
		}
		if !errors.As(err, new(execFailure)) {
			t.Errorf("%s: not a failure of exec: %v", name, err)
		}
	}
	err := newApp(&errorLog{}).Run([]string{"eggrun", "--root", root, "state", "none"})
	if err == nil || errors.As(err, new(execFailure)) {
		t.Errorf("state: %v, want an error that is no failure of exec", err)
	}
}

func TestDescriptorsOf(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][]int{
		"/dev/fd/63": {63}, "/proc/self/fd/3": {3}, "/dev/fd/2": nil, "/dev/fd/x": nil, "/dev/fd/": nil, "process.json": nil, "63": nil,
	} {
		if got := descriptorsOf(path); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
