package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// makeBundle writes the contender's bundle. What config, a file, says is taken, or
// what the verb spec of the runtime writes.
func makeBundle(c contender, runtime, config string) error {
	dir := c.dir
	rootfs := filepath.Join(dir, "rootfs")
	for _, sub := range []string{"bin", "dev", "etc", "proc", "run", "sys", "tmp"} {
		if err := os.MkdirAll(filepath.Join(rootfs, sub), 0o755); err != nil {
			return err
		}
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return fmt.Errorf("%w; install busybox-static", err)
	}
	for _, name := range []string{"true", "sleep"} {
		if err := os.WriteFile(filepath.Join(rootfs, "bin", name), busybox, 0o755); err != nil {
			return err
		}
	}
	path := filepath.Join(dir, "config.json")
	if config == "" {
		cmd := exec.Command(runtime, "spec")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s spec: %w: %s", runtime, err, out)
		}
		config = path
	}
	data, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return err
	}
	if err := standIn(&spec, dir); err != nil {
		return err
	}
	spec.Version = "1.0.2" // older runtimes refuse what they don't know
	spec.Root = &specs.Root{Path: rootfs}
	spec.Process.Terminal = false
	spec.Process.Args = []string{"/bin/true"}
	if key, value, ok := strings.Cut(c.annotation, "="); ok {
		spec.Annotations = map[string]string{key: value}
	}
	spec.Process.Rlimits = nil
	spec.Linux.CgroupsPath = fmt.Sprintf("/eggrun-bench-%d-%s", os.Getpid(), filepath.Base(dir))
	return writeSpec(path, &spec)
}

func writeSpec(path string, spec *specs.Spec) error {
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// standIn replaces what an engine had on its machine: sources of bind mounts by
// a directory of our own, joined namespaces by new ones.
func standIn(spec *specs.Spec, dir string) error {
	source := filepath.Join(dir, "volume")
	if err := os.MkdirAll(source, 0o755); err != nil {
		return err
	}
	for i := range spec.Mounts {
		if m := &spec.Mounts[i]; m.Type == "bind" || slices.Contains(m.Options, "rbind") || slices.Contains(m.Options, "bind") {
			m.Source, m.Destination = source, fmt.Sprintf("/run/volume%d", i)
		}
	}
	for i := range spec.Linux.Namespaces {
		spec.Linux.Namespaces[i].Path = ""
	}
	return nil
}
