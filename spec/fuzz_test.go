package spec

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"eggrun/policy"

	"golang.org/x/sys/unix"
)

const mountATime = unix.MOUNT_ATTR__ATIME

func addConfigs(f *testing.F) {
	f.Helper()
	inputs, err := filepath.Glob("testdata/*.config.json")
	if err != nil || len(inputs) == 0 {
		f.Fatalf("no inputs: %v", err)
	}
	for _, input := range inputs {
		data, err := os.ReadFile(input)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, text := range []string{"", "null", "{}", "[", `{"linux":{"namespaces":[{"type":"mount"}]},"root":{"path":"."}}`} {
		f.Add([]byte(text))
	}
}

func FuzzDecode(f *testing.F) {
	addConfigs(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := Decode(data)
		if (config == nil) == (err == nil) {
			t.Fatalf("got %v and %v", config, err)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("an error of several lines: %q", err)
		}
	})
}

func FuzzTranslate(f *testing.F) {
	addConfigs(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := Decode(data)
		if err != nil {
			return
		}
		before, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := Translate(config, testBundle, &policy.Policy{})
		if after, _ := json.Marshal(config); string(after) != string(before) {
			t.Error("config.json was changed")
		}
		if err != nil {
			var fieldErr *FieldError
			if plan != nil || !errors.As(err, &fieldErr) {
				t.Errorf("got %v and %v", plan, err)
			}
			return
		}
		checkPaths(t, plan)
		text, err := json.Marshal(plan)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, new(Plan)); err != nil {
			t.Error(err)
		}
		if err := plan.Config.Validate(); err != nil {
			t.Error(err)
		}
	})
}

// checkPaths checks what init and container rely on.
func checkPaths(t *testing.T, plan *Plan) {
	t.Helper()
	absolute := func(what, path string) {
		if !filepath.IsAbs(path) || strings.Contains(path, "\x00") {
			t.Errorf("%s %q is not absolute", what, path)
		}
	}
	inside := func(what, path string) {
		absolute(what, path)
		if path != filepath.Clean(path) || path == "/" {
			t.Errorf("%s %q is not clean", what, path)
		}
	}
	absolute("rootfs", plan.Rootfs)
	for _, mount := range plan.Mounts {
		inside("target", mount.Target)
		if mount.IsBind() {
			absolute("source", mount.Source)
			if len(mount.Data) > 0 {
				t.Errorf("%s: bind mount with data", mount.Target)
			}
		}
		if mount.Set&mount.Clear&^mountATime != 0 || mount.RecSet&mount.RecClear&^mountATime != 0 {
			t.Errorf("%s: a flag is set and cleared", mount.Target)
		}
	}
	for _, device := range plan.Devices {
		inside("device", device.Path)
	}
	for _, path := range append(plan.Config.Deny, plan.Config.DenyWrite...) {
		inside("path", path)
	}
	for _, ns := range plan.Namespaces {
		if ns.Path != "" {
			absolute("namespace", ns.Path)
		}
	}
	for name := range plan.Sysctl {
		if !filepath.IsLocal(name) || name != filepath.Clean(name) {
			t.Errorf("sysctl %q is not below /proc/sys", name)
		}
	}
	if plan.Process != nil {
		absolute("cwd", plan.Process.Cwd)
		if len(plan.Process.Args) == 0 {
			t.Error("no args")
		}
	}
	for _, hook := range append(plan.CreateContainerHooks, plan.StartContainerHooks...) {
		absolute("hook", hook.Path)
	}
}

func FuzzOptions(f *testing.F) {
	for _, option := range mountOptions {
		f.Add(option.name, "r"+option.name, "size=1m,mode=755")
	}
	f.Fuzz(func(t *testing.T, first, second, third string) {
		set, err := parseOptions("options", []string{first, second, third})
		if err != nil {
			return
		}
		for _, attrs := range []attrs{set.attrs, set.recAttrs} {
			if attrs.set&attrs.clear&^mountATime != 0 {
				t.Errorf("%+v: a flag is set and cleared", attrs)
			}
			if attrs.set&mountATime != 0 && attrs.clear&mountATime != mountATime {
				t.Errorf("%+v: the kernel refuses that access time mode", attrs)
			}
		}
		for _, data := range set.data {
			if data == "" {
				t.Error("empty data")
			}
		}
	})
}
