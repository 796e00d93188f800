package spec

import (
	"errors"
	"math"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// errorTest changes a valid config.json; want is the message without the name
// of the file, "" where the change is fine (the control of its neighbours).
type errorTest struct {
	name string
	edit func(*specs.Spec)
	want string
}

func runErrorTests(t *testing.T, wantUnsupported bool, tests []errorTest) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			config := minimal()
			test.edit(config)
			plan, err := Translate(config, testBundle, nil)
			if test.want == "" {
				if err != nil || plan == nil {
					t.Fatalf("got plan %v, error %v, want a plan", plan, err)
				}
				return
			}
			if plan != nil {
				t.Error("got a plan with the error")
			}
			if err == nil {
				t.Fatalf("got no error, want %q", test.want)
			}
			if got := err.Error(); got != "config.json: "+test.want {
				t.Errorf("got  %s\nwant config.json: %s", got, test.want)
			}
			var fieldErr *FieldError
			if !errors.As(err, &fieldErr) || fieldErr.Field == "" {
				t.Errorf("got %T, want a FieldError with a field", err)
			}
			if got := errors.Is(err, errors.ErrUnsupported); got != wantUnsupported {
				t.Errorf("is ErrUnsupported: got %v, want %v", got, wantUnsupported)
			}
		})
	}
}

func namespace(kinds ...specs.LinuxNamespaceType) []specs.LinuxNamespace {
	list := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	for _, kind := range kinds {
		list = append(list, specs.LinuxNamespace{Type: kind})
	}
	return list
}

func pointer[T any](value T) *T { return &value }

func TestTranslateRefusesRootAndNames(t *testing.T) {
	t.Parallel()
	long := string(make([]byte, 0, 65))
	for len(long) < 65 {
		long += "x"
	}
	runErrorTests(t, false, []errorTest{
		{"minimal", func(c *specs.Spec) {}, ""},
		{"odd version", func(c *specs.Spec) { c.Version = "🥚" }, ""},
		{"no process", func(c *specs.Spec) { c.Process = nil }, ""},
		{"no root", func(c *specs.Spec) { c.Root = nil }, `root: must be set`},
		{"no root path", func(c *specs.Spec) { c.Root.Path = "" }, `root.path: must not be empty`},
		{"NUL in root", func(c *specs.Spec) { c.Root.Path = "a\x00" }, `root.path "a\x00": must not contain a NUL byte`},
		{"rootfsPropagation", func(c *specs.Spec) { c.Linux.RootfsPropagation = "rprivate" }, ""},
		{
			"rootfsPropagation odd", func(c *specs.Spec) { c.Linux.RootfsPropagation = "rpublic" },
			`linux.rootfsPropagation "rpublic": want shared, slave, private, unbindable, or one of these with r before it`,
		},
		{"hostname", func(c *specs.Spec) { c.Hostname = "a" }, `hostname "a": needs a uts namespace in linux.namespaces`},
		{"domainname", func(c *specs.Spec) { c.Domainname = "a" }, `domainname "a": needs a uts namespace in linux.namespaces`},
		{"hostname of 64", func(c *specs.Spec) {
			c.Linux.Namespaces, c.Hostname = namespace(specs.UTSNamespace), long[:64]
		}, ""},
		{"hostname of 65", func(c *specs.Spec) {
			c.Linux.Namespaces, c.Hostname = namespace(specs.UTSNamespace), long
		}, `hostname "` + long + `": longer than 64 bytes`},
		{"hostname with NUL", func(c *specs.Spec) {
			c.Linux.Namespaces, c.Hostname = namespace(specs.UTSNamespace), "a\x00b"
		}, `hostname "a\x00b": must not contain a NUL byte`},
		{"masked", func(c *specs.Spec) { c.Linux.MaskedPaths = []string{"/proc/kcore", "proc/keys"} }, `linux.maskedPaths[1] "proc/keys": must be absolute`},
		{"masked empty", func(c *specs.Spec) { c.Linux.MaskedPaths = []string{""} }, `linux.maskedPaths[0]: must not be empty`},
		{"readonly", func(c *specs.Spec) { c.Linux.ReadonlyPaths = []string{"proc"} }, `linux.readonlyPaths[0] "proc": must be absolute`},
		{"readonly root", func(c *specs.Spec) { c.Linux.ReadonlyPaths = []string{"/proc/.."} }, `linux.readonlyPaths[0] "/": must not be the root; see root.readonly`},
	})
	for _, bundle := range []string{"", "bundle", "./"} {
		if _, err := Translate(minimal(), bundle, nil); err == nil {
			t.Errorf("bundle %q: got no error", bundle)
		}
	}
	if _, err := Translate(nil, testBundle, nil); err == nil {
		t.Error("no config: got no error")
	}
}

func TestTranslateRefusesNamespaces(t *testing.T) {
	t.Parallel()
	mapping := func(containerID, hostID, size uint32) specs.LinuxIDMapping {
		return specs.LinuxIDMapping{ContainerID: containerID, HostID: hostID, Size: size}
	}
	user := func(uids, gids []specs.LinuxIDMapping) func(*specs.Spec) {
		return func(c *specs.Spec) {
			c.Linux.Namespaces = namespace(specs.UserNamespace)
			c.Linux.UIDMappings, c.Linux.GIDMappings = uids, gids
		}
	}
	one := []specs.LinuxIDMapping{mapping(0, 1000, 1)}
	runErrorTests(t, false, []errorTest{
		{
			"user without mount", func(c *specs.Spec) { c.Linux.Namespaces = namespace(specs.UserNamespace)[1:] },
			`linux.namespaces: must have a mount namespace along with a user namespace`,
		},
		{"unknown", func(c *specs.Spec) { c.Linux.Namespaces = namespace("net") }, `linux.namespaces[1].type "net": no such type`},
		{"empty", func(c *specs.Spec) { c.Linux.Namespaces = namespace("") }, `linux.namespaces[1].type "": no such type`},
		{"all", func(c *specs.Spec) {
			c.Linux.Namespaces = namespace(specs.PIDNamespace, specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.CgroupNamespace)
		}, ""},
		{"twice", func(c *specs.Spec) { c.Linux.Namespaces = namespace(specs.PIDNamespace, specs.PIDNamespace) }, `linux.namespaces[2].type "pid": is there twice`},
		{"path", func(c *specs.Spec) {
			c.Linux.Namespaces = append(namespace(), specs.LinuxNamespace{Type: specs.PIDNamespace, Path: "/proc/1/ns/pid"})
		}, ""},
		{"relative path", func(c *specs.Spec) {
			c.Linux.Namespaces = append(namespace(), specs.LinuxNamespace{Type: specs.PIDNamespace, Path: "proc/1/ns/pid"})
		}, `linux.namespaces[1].path "proc/1/ns/pid": must be absolute`},

		{"mapped", user(one, one), ""},
		{"joined user", func(c *specs.Spec) {
			c.Linux.Namespaces = append(namespace(), specs.LinuxNamespace{Type: specs.UserNamespace, Path: "/proc/1/ns/user"})
			c.Process.User.UID = 70000
		}, ""},
		{"no user namespace", func(c *specs.Spec) { c.Linux.GIDMappings = one }, `linux.gidMappings: needs a user namespace in linux.namespaces`},
		{"no uids", user(nil, one), `linux.uidMappings: must be set for a new user namespace`},
		{"no gids", user(one, nil), `linux.gidMappings: must be set for a new user namespace`},
		{"size 0", user([]specs.LinuxIDMapping{mapping(0, 0, 0)}, one), `linux.uidMappings[0].size: must not be 0`},
		{"all ids", user([]specs.LinuxIDMapping{mapping(0, 0, math.MaxUint32)}, one), ""},
		{"too far", user([]specs.LinuxIDMapping{mapping(0, 1, math.MaxUint32)}, one), `linux.uidMappings[0]: reaches beyond the last id, 4294967294`},
		{"no 0", user(one, []specs.LinuxIDMapping{mapping(1, 0, 10)}), `linux.gidMappings: must map container id 0`},
		{"adjacent", user([]specs.LinuxIDMapping{mapping(0, 0, 10), mapping(10, 10, 10)}, one), ""},
		{"overlap", user([]specs.LinuxIDMapping{mapping(0, 0, 10), mapping(9, 100, 1)}, one), `linux.uidMappings[1]: overlaps with entry 0`},
		{"host overlap", user([]specs.LinuxIDMapping{mapping(0, 0, 10), mapping(10, 9, 1)}, one), `linux.uidMappings[1]: overlaps with entry 0`},
		{"many", user(make([]specs.LinuxIDMapping, 341), one), `linux.uidMappings: has 341 entries, Linux takes 340`},
	})
}

func TestTranslateRefusesProcess(t *testing.T) {
	t.Parallel()
	limit := func(list ...specs.POSIXRlimit) func(*specs.Spec) {
		return func(c *specs.Spec) { c.Process.Rlimits = list }
	}
	mapped := func(edit func(*specs.User)) func(*specs.Spec) {
		return func(c *specs.Spec) {
			c.Linux.Namespaces = namespace(specs.UserNamespace)
			c.Linux.UIDMappings = []specs.LinuxIDMapping{{HostID: 1000, Size: 8}}
			c.Linux.GIDMappings = []specs.LinuxIDMapping{{HostID: 1000, Size: 4}}
			edit(&c.Process.User)
		}
	}
	box := func(terminal bool, height, width uint) func(*specs.Spec) {
		return func(c *specs.Spec) {
			c.Process.Terminal, c.Process.ConsoleSize = terminal, &specs.Box{Height: height, Width: width}
		}
	}
	runErrorTests(t, false, []errorTest{
		{"no args", func(c *specs.Spec) { c.Process.Args = nil }, `process.args: must not be empty`},
		{"empty arg", func(c *specs.Spec) { c.Process.Args = []string{""} }, ""},
		{"NUL in args", func(c *specs.Spec) { c.Process.Args = []string{"a", "b\x00"} }, `process.args[1] "b\x00": must not contain a NUL byte`},
		{"no cwd", func(c *specs.Spec) { c.Process.Cwd = "" }, `process.cwd: must not be empty`},
		{"relative cwd", func(c *specs.Spec) { c.Process.Cwd = "tmp" }, `process.cwd "tmp": must be absolute`},
		{"env", func(c *specs.Spec) { c.Process.Env = []string{"A=1", "B=="} }, ""},
		{"env without =", func(c *specs.Spec) { c.Process.Env = []string{"A=1", "B"} }, `process.env[1] "B": must be NAME=VALUE`},
		{"env without name", func(c *specs.Spec) { c.Process.Env = []string{"=1"} }, `process.env[0] "=1": must have a name before =`},
		{"NUL in env", func(c *specs.Spec) { c.Process.Env = []string{"A=\x00"} }, `process.env[0] "A=\x00": must not contain a NUL byte`},
		{"umask", func(c *specs.Spec) { c.Process.User.Umask = pointer[uint32](0o777) }, ""},
		{"umask too big", func(c *specs.Spec) { c.Process.User.Umask = pointer[uint32](0o1000) }, `process.user.umask 512: must be at most 511, octal 777`},
		{"uid -1", func(c *specs.Spec) { c.Process.User.UID = math.MaxUint32 }, `process.user.uid 4294967295: not an id`},
		{"unmapped uid", mapped(func(u *specs.User) { u.UID = 8 }), `process.user.uid 8: not mapped by linux.uidMappings`},
		{"unmapped gid", mapped(func(u *specs.User) { u.UID, u.GID = 7, 4 }), `process.user.gid 4: not mapped by linux.gidMappings`},
		{"unmapped group", mapped(func(u *specs.User) { u.AdditionalGids = []uint32{3, 5} }), `process.user.additionalGids[1] 5: not mapped by linux.gidMappings`},
		{"mapped", mapped(func(u *specs.User) { u.UID, u.GID, u.AdditionalGids = 7, 3, []uint32{2} }), ""},
		{"oom", func(c *specs.Spec) { c.Process.OOMScoreAdj = pointer(-1000) }, ""},
		{"oom low", func(c *specs.Spec) { c.Process.OOMScoreAdj = pointer(-1001) }, `process.oomScoreAdj -1001: must be from -1000 to 1000`},
		{"oom high", func(c *specs.Spec) { c.Process.OOMScoreAdj = pointer(1001) }, `process.oomScoreAdj 1001: must be from -1000 to 1000`},
		{"console", box(true, 65535, 65535), ""},
		{"console of no terminal", box(false, 65536, 1), ""},
		{"big console", box(true, 1, 65536), `process.consoleSize: must be at most 65535`},
		{"unknown rlimit", limit(specs.POSIXRlimit{Type: "NOFILE"}), `process.rlimits[0].type "NOFILE": no such limit`},
		{
			"rlimit twice", limit(specs.POSIXRlimit{Type: "RLIMIT_CORE"}, specs.POSIXRlimit{Type: "RLIMIT_CORE"}),
			`process.rlimits[1].type "RLIMIT_CORE": is there twice`,
		},
		{
			"rlimit reversed", limit(specs.POSIXRlimit{Type: "RLIMIT_CORE", Soft: 2, Hard: 1}),
			`process.rlimits[0]: RLIMIT_CORE: soft limit 2 is above hard limit 1`,
		},
		{"hook", func(c *specs.Spec) {
			c.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "/bin/true", Timeout: pointer(1)}}}
		}, ""},
		{"relative hook", func(c *specs.Spec) {
			//nolint:staticcheck // deprecated, still to be run
			c.Hooks = &specs.Hooks{Prestart: []specs.Hook{{Path: "/bin/true"}, {Path: "true"}}}
		}, `hooks.prestart[1].path "true": must be absolute`},
		{"hook without path", func(c *specs.Spec) {
			c.Hooks = &specs.Hooks{CreateContainer: []specs.Hook{{}}}
		}, `hooks.createContainer[0].path: must not be empty`},
		{"hook timeout", func(c *specs.Spec) {
			c.Hooks = &specs.Hooks{Poststart: []specs.Hook{{Path: "/bin/true", Timeout: pointer(0)}}}
		}, `hooks.poststart[0].timeout 0: must be from 1 to 9223372036 seconds`},
		{"hook args", func(c *specs.Spec) {
			c.Hooks = &specs.Hooks{StartContainer: []specs.Hook{{Path: "/bin/true", Args: []string{"\x00"}}}}
		}, `hooks.startContainer[0].args[0] "\x00": must not contain a NUL byte`},
		{"hook env", func(c *specs.Spec) {
			c.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/bin/true", Env: []string{"A=\x00"}}}}
		}, `hooks.createRuntime[0].env[0] "A=\x00": must not contain a NUL byte`},
	})
}
