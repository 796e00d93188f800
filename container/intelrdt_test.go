package container

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// fakeResctrl returns a directory that looks like a resctrl file system with one
// class, "gold".
func fakeResctrl(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range map[string]string{
		"info/last_cmd_status":  "ok\n",
		"schemata":              "    L3:0=7ff;1=7ff\n    MB:0=100;1=100\n",
		"tasks":                 "",
		"mon_groups/.keep":      "",
		"gold/schemata":         "    L3:0=00f;1=7f0\n    MB:0= 50;1=100\n",
		"gold/tasks":            "",
		"gold/mon_groups/.keep": "",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestRdtClass(t *testing.T) {
	t.Parallel()
	const id, pid = "c1", 4711
	for _, test := range []struct {
		name    string
		config  specs.LinuxIntelRdt
		wantErr string
		want    map[string]string // files afterwards
		leaves  []string
	}{
		{
			name: "own class", config: specs.LinuxIntelRdt{L3CacheSchema: "L3:0=f;1=f", MemBwSchema: "MB:0=20;1=70", Schemata: []string{"L2:0=3", "L2:1=c"}},
			want:   map[string]string{"c1/schemata": "L3:0=f;1=f\nMB:0=20;1=70\nL2:0=3\nL2:1=c\n", "c1/tasks": "4711"},
			leaves: []string{"c1"},
		},
		{
			name: "own class without a schema", config: specs.LinuxIntelRdt{},
			want:   map[string]string{"c1/schemata": "", "c1/tasks": "4711"},
			leaves: []string{"c1"},
		},
		{
			name: "class to be made", config: specs.LinuxIntelRdt{ClosID: "silver", Schemata: []string{"L3:0=f"}},
			want: map[string]string{"silver/schemata": "L3:0=f\n", "silver/tasks": "4711"},
		},
		{
			name: "existing class", config: specs.LinuxIntelRdt{ClosID: "gold"},
			want: map[string]string{"gold/schemata": "    L3:0=00f;1=7f0\n    MB:0= 50;1=100\n", "gold/tasks": "4711"},
		},
		{
			name: "existing class, same schema", config: specs.LinuxIntelRdt{ClosID: "gold", L3CacheSchema: "L3:1=7F0", MemBwSchema: "MB:0=50"},
			want: map[string]string{"gold/tasks": "4711"},
		},
		{
			name: "existing class, monitored", config: specs.LinuxIntelRdt{ClosID: "gold", EnableMonitoring: true},
			want:   map[string]string{"gold/tasks": "4711", "gold/mon_groups/c1/tasks": "4711"},
			leaves: []string{"gold/mon_groups/c1"},
		},
		{
			name: "default class, monitored", config: specs.LinuxIntelRdt{ClosID: "/", EnableMonitoring: true},
			want:   map[string]string{"tasks": "4711", "mon_groups/c1/tasks": "4711"},
			leaves: []string{"mon_groups/c1"},
		},
		{
			name: "missing class", config: specs.LinuxIntelRdt{ClosID: "lead"},
			wantErr: `linux.intelRdt.closID "lead": no such class; make it or give a schema`,
		},
		{
			name: "existing class, other cache", config: specs.LinuxIntelRdt{ClosID: "gold", L3CacheSchema: "L3:0=f;1=ff"},
			wantErr: `linux.intelRdt.closID "gold": the class exists with another schema than "L3:0=f;1=ff"`,
		},
		{
			name: "existing class, other bandwidth", config: specs.LinuxIntelRdt{ClosID: "gold", MemBwSchema: "MB:0=500"},
			wantErr: `linux.intelRdt.closID "gold": the class exists with another schema than "MB:0=500"`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := fakeResctrl(t)
			class, err := newRdtClass(root, id, &test.config)
			if test.wantErr != "" {
				if err == nil || err.Error() != test.wantErr {
					t.Fatalf("got %v, want %s", err, test.wantErr)
				}
				return
			}
			if err == nil {
				err = class.join(pid)
			}
			if err != nil {
				t.Fatal(err)
			}
			for path, want := range test.want {
				got, _ := os.ReadFile(filepath.Join(root, path))
				if string(got) != want {
					t.Errorf("%s: got %q, want %q", path, got, want)
				}
			}
			var leaves []string
			for _, dir := range class.leaves() {
				name, err := filepath.Rel(root, dir)
				if err != nil {
					t.Fatal(err)
				}
				leaves = append(leaves, name)
			}
			if !reflect.DeepEqual(leaves, test.leaves) {
				t.Errorf("to be removed: %q, want %q", leaves, test.leaves)
			}
		})
	}
}

// A class that appears between the decision and the act belongs to somebody
// else, and delete must not remove it.
func TestRdtClassTaken(t *testing.T) {
	t.Parallel()
	root := fakeResctrl(t)
	class, err := newRdtClass(root, "c1", &specs.LinuxIntelRdt{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "c1"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := `linux.intelRdt: mkdir ` + filepath.Join(root, "c1") + `: file exists (ok)`
	if err := class.join(1); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestRemoveRdt(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "c1")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // delete may be called again
		if err := removeRdt([]string{filepath.Join(dir, "mon_groups/c1"), dir}); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("still there")
	}
	if err := removeRdt([]string{"/proc/self/fd"}); err == nil {
		t.Error("no error for what can't be removed")
	}
}
