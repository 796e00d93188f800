// Command bench compares OCI runtimes: for each in turn it creates, starts,
// waits for and deletes the same container, again and again, and prints medians
// and ratios to the first.
//
//	bench [-n ROUNDS] [-config FILE] RUNTIME...
//
// It needs root and busybox-static. The container runs true in new namespaces,
// or what FILE, a config.json as an engine wrote it, says; its root file system,
// cgroup and program are replaced. Single figures of a busy machine say little:
// quote the ratios.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func main() {
	rounds := flag.Int("n", 50, "rounds that are counted")
	config := flag.String("config", "", "config.json of an engine; default is what the first runtime's spec writes")
	flag.Parse()
	if err := run(flag.Args(), *rounds, *config); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// phases are what is timed, in this order.
var phases = []string{"create", "start", "wait", "delete", "total"}

func run(runtimes []string, rounds int, config string) error {
	if len(runtimes) == 0 {
		return fmt.Errorf("no runtime; name one or more")
	}
	dir, err := os.MkdirTemp("", "eggrun-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := makeBundle(dir, runtimes[0], config); err != nil {
		return err
	}
	// As engines do: the container's first process becomes our child when
	// create has ended.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("become subreaper", err)
	}
	times := make([]map[string][]time.Duration, len(runtimes))
	for i := range times {
		times[i] = make(map[string][]time.Duration)
	}
	const warmups = 3
	for round := range rounds + warmups {
		for i, runtime := range runtimes {
			took, err := once(dir, runtime, fmt.Sprintf("bench-%d-%d", os.Getpid(), round))
			if err != nil {
				return err
			}
			if round < warmups {
				continue
			}
			for phase, d := range took {
				times[i][phase] = append(times[i][phase], d)
			}
		}
	}
	report(runtimes, times)
	return nil
}

// once is one container's life.
func once(dir, runtime, id string) (map[string]time.Duration, error) {
	root, pidFile := filepath.Join(dir, "state-"+filepath.Base(runtime)), filepath.Join(dir, "pid")
	call := func(args ...string) error {
		cmd := exec.Command(runtime, append([]string{"--root", root}, args...)...)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s %s: %w", runtime, args[0], err)
		}
		return nil
	}
	took := make(map[string]time.Duration)
	begin := time.Now()
	last := begin
	lap := func(phase string) {
		now := time.Now()
		took[phase], last = now.Sub(last), now
	}
	if err := call("create", "--bundle", dir, "--pid-file", pidFile, id); err != nil {
		return nil, err
	}
	lap("create")
	if err := call("start", id); err != nil {
		return nil, err
	}
	lap("start")
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, err
	}
	if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
		return nil, os.NewSyscallError("wait", err)
	}
	lap("wait")
	if err := call("delete", id); err != nil {
		return nil, err
	}
	lap("delete")
	took["total"] = last.Sub(begin)
	return took, nil
}

func report(runtimes []string, times []map[string][]time.Duration) {
	fmt.Printf("%-28s", "median ms (ratio)")
	for _, phase := range phases {
		fmt.Printf("%16s", phase)
	}
	fmt.Println()
	for i, runtime := range runtimes {
		fmt.Printf("%-28s", runtime)
		for _, phase := range phases {
			own, first := median(times[i][phase]), median(times[0][phase])
			fmt.Printf("%9.2f (%.2f)", own.Seconds()*1000, float64(own)/float64(first))
		}
		fmt.Println()
	}
}

func median(d []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[len(sorted)/2]
}

func makeBundle(dir, runtime, config string) error {
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
	if err := os.WriteFile(filepath.Join(rootfs, "bin/true"), busybox, 0o755); err != nil {
		return err
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
	spec.Process.Rlimits = nil
	spec.Linux.CgroupsPath = "/" + filepath.Base(dir)
	if data, err = json.Marshal(&spec); err != nil {
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
