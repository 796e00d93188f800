package spec

import (
	"reflect"
	"slices"
	"testing"

	"eggrun/sandbox"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestMountOptions(t *testing.T) {
	t.Parallel()
	const (
		ro, nosuid, nodev, noexec = unix.MOUNT_ATTR_RDONLY, unix.MOUNT_ATTR_NOSUID, unix.MOUNT_ATTR_NODEV, unix.MOUNT_ATTR_NOEXEC
		atime, noatime, strict    = unix.MOUNT_ATTR__ATIME, unix.MOUNT_ATTR_NOATIME, unix.MOUNT_ATTR_STRICTATIME
	)
	for _, test := range []struct {
		options []string
		want    optionSet
	}{
		{nil, optionSet{}},
		{[]string{"defaults", "silent", "loud", ""}, optionSet{}},
		{[]string{"ro", "nosuid", "nodev", "noexec"}, optionSet{attrs: attrs{set: ro | nosuid | nodev | noexec}}},
		{[]string{"rw", "suid", "dev", "exec"}, optionSet{attrs: attrs{clear: ro | nosuid | nodev | noexec}}},
		{[]string{"ro", "rw"}, optionSet{attrs: attrs{clear: ro}}},
		{[]string{"rw", "ro"}, optionSet{attrs: attrs{set: ro}}},
		{[]string{"nodiratime", "nosymfollow"}, optionSet{attrs: attrs{set: unix.MOUNT_ATTR_NODIRATIME | unix.MOUNT_ATTR_NOSYMFOLLOW}}},
		{[]string{"diratime", "symfollow"}, optionSet{attrs: attrs{clear: unix.MOUNT_ATTR_NODIRATIME | unix.MOUNT_ATTR_NOSYMFOLLOW}}},

		{[]string{"noatime"}, optionSet{attrs: attrs{set: noatime, clear: atime}}},
		{[]string{"strictatime"}, optionSet{attrs: attrs{set: strict, clear: atime}}},
		{[]string{"relatime"}, optionSet{attrs: attrs{clear: atime}}},
		{[]string{"noatime", "strictatime"}, optionSet{attrs: attrs{set: strict, clear: atime}}},
		{[]string{"noatime", "relatime"}, optionSet{attrs: attrs{clear: atime}}},
		{[]string{"noatime", "atime"}, optionSet{attrs: attrs{clear: atime}}},
		{[]string{"strictatime", "atime"}, optionSet{attrs: attrs{set: strict, clear: atime}}},
		{[]string{"strictatime", "nostrictatime"}, optionSet{attrs: attrs{clear: atime}}},
		{[]string{"noatime", "norelatime"}, optionSet{attrs: attrs{set: noatime, clear: atime}}},
		{[]string{"noatime", "nodiratime"}, optionSet{attrs: attrs{set: noatime | unix.MOUNT_ATTR_NODIRATIME, clear: atime}}},

		{[]string{"rro", "rnosuid", "rdev"}, optionSet{recAttrs: attrs{set: ro | nosuid, clear: nodev}}},
		{[]string{"rrw", "rnoexec", "rexec"}, optionSet{recAttrs: attrs{clear: ro | noexec}}},
		{[]string{"rnoatime"}, optionSet{recAttrs: attrs{set: noatime, clear: atime}}},
		{[]string{"rnoatime", "rrelatime"}, optionSet{recAttrs: attrs{clear: atime}}},
		{[]string{"rstrictatime", "rnostrictatime", "rnodiratime"}, optionSet{recAttrs: attrs{set: unix.MOUNT_ATTR_NODIRATIME, clear: atime}}},
		{[]string{"rsymfollow", "rnorelatime", "ratime"}, optionSet{recAttrs: attrs{clear: atime | unix.MOUNT_ATTR_NOSYMFOLLOW}}},

		{[]string{"bind"}, optionSet{bind: true}},
		{[]string{"idmap"}, optionSet{idmap: &IDMap{}}},
		{[]string{"idmap", "ridmap"}, optionSet{idmap: &IDMap{Recursive: true}}},
		{[]string{"rbind", "bind"}, optionSet{bind: true, recursive: true}},
		{[]string{"private", "rprivate", "private"}, optionSet{propagation: unix.MS_PRIVATE | unix.MS_REC}},
		{[]string{"rshared"}, optionSet{propagation: unix.MS_SHARED | unix.MS_REC}},
		{[]string{"slave"}, optionSet{propagation: unix.MS_SLAVE}},
		{[]string{"runbindable"}, optionSet{propagation: unix.MS_UNBINDABLE | unix.MS_REC}},

		{[]string{"sync", "sync", "dirsync", "lazytime", "mand", "iversion"}, optionSet{params: []string{"sync", "dirsync", "lazytime", "mand", "iversion"}}},
		{[]string{"sync", "mand", "async", "nolazytime", "noiversion"}, optionSet{params: []string{"mand"}}},
		// Options of file systems, among them some that only look like ours.
		{[]string{"mode=755", "rsync", "rbind2", "RO", "rdefaults", "rasync"}, optionSet{data: []string{"mode=755", "rsync", "rbind2", "RO", "rdefaults", "rasync"}}},
		{[]string{"mode=755,size=1m,,"}, optionSet{data: []string{"mode=755", "size=1m"}}},
		{[]string{`context="a:b:c1,c2",uid=0`}, optionSet{data: []string{`context="a:b:c1,c2"`, "uid=0"}}},
		{[]string{`lowerdir=/a\,b:/c,upperdir=/d\`}, optionSet{data: []string{`lowerdir=/a\,b:/c`, `upperdir=/d\`}}},
	} {
		got, err := parseOptions("options", test.options)
		if err != nil {
			t.Errorf("%q: %v", test.options, err)
			continue
		}
		if len(got.params) == 0 {
			got.params = nil
		}
		if !reflect.DeepEqual(*got, test.want) {
			t.Errorf("%q: got %+v, want %+v", test.options, *got, test.want)
		}
	}
}

// All that the specification calls MUST or SHOULD and that isn't refused by
// name must be an option, not a file system's parameter.
func TestMountOptionsAreKnown(t *testing.T) {
	t.Parallel()
	names := MountOptions()
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("not sorted or not unique: %q", names)
	}
	wanted := []string{
		"async", "atime", "bind", "defaults", "dev", "diratime", "dirsync", "exec", "idmap", "iversion", "lazytime",
		"loud", "mand", "noatime", "nodev", "nodiratime", "noexec", "noiversion", "nolazytime", "nomand",
		"norelatime", "nostrictatime", "nosuid", "nosymfollow", "private", "ratime", "rbind", "rdev",
		"rdiratime", "relatime", "rexec", "ridmap", "rnoatime", "rnodev", "rnodiratime", "rnoexec", "rnorelatime",
		"rnostrictatime", "rnosuid", "rnosymfollow", "ro", "rprivate", "rrelatime", "rro", "rrw", "rshared",
		"rslave", "rstrictatime", "rsuid", "rsymfollow", "runbindable", "rw", "shared", "silent", "slave",
		"strictatime", "suid", "symfollow", "sync", "tmpcopyup", "unbindable",
	}
	if !slices.Equal(names, wanted) {
		t.Errorf("got %q, want %q", names, wanted)
	}
	for _, name := range names {
		got, err := parseOptions("options", []string{name})
		if err != nil || len(got.data) > 0 {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestMountOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		from specs.Mount
		want Mount
	}{
		{
			"bind by option", specs.Mount{Destination: "/a//b/../c/", Type: "none", Source: "/s", Options: []string{"bind"}},
			Mount{Mount: sandbox.Mount{Source: "/s", Target: "/a/c"}},
		},
		{
			"bind by type", specs.Mount{Destination: "/a", Type: "bind", Source: "/s"},
			Mount{Mount: sandbox.Mount{Source: "/s", Target: "/a"}},
		},
		{
			"any type is a dummy with bind", specs.Mount{Destination: "/a", Type: "proc", Source: "/s", Options: []string{"rbind"}},
			Mount{Mount: sandbox.Mount{Source: "/s", Target: "/a"}, Recursive: true},
		},
		{
			"relative source", specs.Mount{Destination: "/a", Source: "x/../../y", Options: []string{"bind"}},
			Mount{Mount: sandbox.Mount{Source: "/run/y", Target: "/a"}},
		},
		{
			"source behind a symlink", specs.Mount{Destination: "/a", Source: "/link/../y", Options: []string{"bind"}},
			Mount{Mount: sandbox.Mount{Source: "/link/../y", Target: "/a"}},
		},
		{
			"superblock flags of a bind mount", specs.Mount{Destination: "/a", Source: "/s", Options: []string{"bind", "sync", "mand"}},
			Mount{Mount: sandbox.Mount{Source: "/s", Target: "/a"}},
		},
		{
			"a file system's options of a bind mount", specs.Mount{Destination: "/a", Source: "/s", Options: []string{"bind", "mode=755", "size=1k"}},
			Mount{Mount: sandbox.Mount{Source: "/s", Target: "/a"}},
		},
		{
			"destination above the root", specs.Mount{Destination: "/../../etc", Type: "tmpfs"},
			Mount{Mount: sandbox.Mount{Target: "/etc"}, Type: "tmpfs"},
		},
		{
			"read-only by the tree", specs.Mount{Destination: "/a", Source: "/s", Options: []string{"rbind", "rw", "rro"}},
			Mount{
				Mount:     sandbox.Mount{Source: "/s", Target: "/a", ReadOnly: true},
				Recursive: true, Clear: bindAttrs, RecSet: unix.MOUNT_ATTR_RDONLY,
			},
		},
		{
			"writable by the tree", specs.Mount{Destination: "/a", Source: "/s", Options: []string{"rbind", "ro", "rrw"}},
			Mount{
				Mount:     sandbox.Mount{Source: "/s", Target: "/a"},
				Recursive: true, Set: unix.MOUNT_ATTR_RDONLY, RecClear: unix.MOUNT_ATTR_RDONLY,
				Clear: bindAttrs &^ unix.MOUNT_ATTR_RDONLY,
			},
		},
		{
			"access time", specs.Mount{Destination: "/a", Source: "/s", Options: []string{"bind", "noatime"}},
			Mount{
				Mount: sandbox.Mount{Source: "/s", Target: "/a"},
				Set:   unix.MOUNT_ATTR_NOATIME, Clear: bindAttrs | unix.MOUNT_ATTR__ATIME,
			},
		},
		{
			"remounted", specs.Mount{Destination: "/a", Source: "/s", Options: []string{"bind", "remount", "nodev"}},
			Mount{Mount: sandbox.Mount{Source: "/s", Target: "/a"}, Set: unix.MOUNT_ATTR_NODEV},
		},
		{
			"only of the tree", specs.Mount{Destination: "/a", Source: "/s", Options: []string{"rbind", "rnodev"}},
			Mount{Mount: sandbox.Mount{Source: "/s", Target: "/a"}, Recursive: true, RecSet: unix.MOUNT_ATTR_NODEV},
		},
		{
			"read-only tmpfs", specs.Mount{Destination: "/a", Type: "tmpfs", Source: "tmpfs", Options: []string{"ro", "size=1m"}},
			Mount{
				Mount: sandbox.Mount{Source: "tmpfs", Target: "/a", ReadOnly: true},
				Type:  "tmpfs", Set: unix.MOUNT_ATTR_RDONLY, Data: []string{"size=1m"},
			},
		},
		{
			"labels without their quotes", specs.Mount{Destination: "/a", Type: "tmpfs", Options: []string{`context="a:b:c1,c2",x="y"`, `rootcontext=a:b:c`}},
			Mount{
				Mount: sandbox.Mount{Target: "/a"},
				Type:  "tmpfs", Data: []string{"context=a:b:c1,c2", `x="y"`, "rootcontext=a:b:c"},
			},
		},
		{
			"read-only disk", specs.Mount{Destination: "/a", Type: "xfs", Source: "/dev/sda", Options: []string{"size=1m", "ro"}},
			Mount{
				Mount: sandbox.Mount{Source: "/dev/sda", Target: "/a", ReadOnly: true},
				Type:  "xfs", Set: unix.MOUNT_ATTR_RDONLY, Data: []string{"ro", "size=1m"},
			},
		},
	} {
		got, err := mountOf("mounts[0]", &test.from, testBundle)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		} else if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestPopulateDev(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		mounts []specs.Mount
		want   bool
	}{
		{"no mount", nil, true},
		{"tmpfs", []specs.Mount{{Destination: "/dev", Type: "tmpfs"}}, true},
		{"below", []specs.Mount{{Destination: "/dev/shm", Type: "bind", Source: "/shm"}}, true},
		{"bind", []specs.Mount{{Destination: "/dev/", Type: "bind", Source: "/dev"}}, false},
		{"bind under a tmpfs", []specs.Mount{{Destination: "/x/../dev", Source: "/dev", Options: []string{"rbind"}}, {Destination: "/dev", Type: "tmpfs"}}, false},
	} {
		config := minimal()
		config.Mounts = test.mounts
		plan, err := Translate(config, testBundle, nil)
		if err != nil {
			t.Fatal(err)
		}
		if plan.PopulateDev != test.want {
			t.Errorf("%s: got %v, want %v", test.name, plan.PopulateDev, test.want)
		}
	}
}

func TestTranslateRefusesMounts(t *testing.T) {
	t.Parallel()
	mount := func(mount specs.Mount) func(*specs.Spec) {
		return func(c *specs.Spec) { c.Mounts = []specs.Mount{mount} }
	}
	bind := []string{"bind"}
	runErrorTests(t, false, []errorTest{
		{"no destination", mount(specs.Mount{Type: "tmpfs"}), `mounts[0].destination: must not be empty`},
		{"root", mount(specs.Mount{Destination: "/a/..", Type: "tmpfs"}), `mounts[0].destination "/a/..": must not be the root`},
		{"NUL in destination", mount(specs.Mount{Destination: "/a\x00", Type: "tmpfs"}), `mounts[0].destination "/a\x00": must not contain a NUL byte`},
		{"NUL in type", mount(specs.Mount{Destination: "/a", Type: "t\x00"}), `mounts[0].type "t\x00": must not contain a NUL byte`},
		{"NUL in name", mount(specs.Mount{Destination: "/a", Type: "tmpfs", Source: "\x00"}), `mounts[0].source "\x00": must not contain a NUL byte`},
		{"NUL in source", mount(specs.Mount{Destination: "/a", Source: "a\x00", Options: bind}), `mounts[0].source "a\x00": must not contain a NUL byte`},
		{"NUL in option", mount(specs.Mount{Destination: "/a", Type: "tmpfs", Options: []string{"\x00"}}), `mounts[0].options[0] "\x00": must not contain a NUL byte`},
		{"no type", mount(specs.Mount{Destination: "/a", Source: "/a"}), `mounts[0].type: must be set, or options must have bind or rbind`},
		{"type none", mount(specs.Mount{Destination: "/a", Source: "/a", Type: "none"}), `mounts[0].type "none": options must have bind or rbind`},
		{"bind of nothing", mount(specs.Mount{Destination: "/a", Options: bind}), `mounts[0].source: must not be empty for a bind mount`},
		{
			"bind with an unknown word", mount(specs.Mount{Destination: "/a", Source: "/a", Options: []string{"bind", "mode=755", "readonly"}}),
			`mounts[0].options "readonly": not an option of a bind mount`,
		},
	})
}
