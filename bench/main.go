// Command bench compares OCI runtimes: for each in turn it creates, starts,
// waits for and deletes the same container, again and again, and prints medians
// and ratios to the first.
//
//	bench [-n ROUNDS] [-idle COUNT] [-config FILE] [-annotation KEY=VALUE] RUNTIME...
//
// With an annotation the first runtime comes once more, with containers that have
// it: the ratio is what a policy costs. With a COUNT it also has so many containers
// sleep at once and prints what each holds, with all that the runtime left beside it.
//
// It needs root and busybox-static. The container runs true in new namespaces,
// or what FILE, a config.json as an engine wrote it, says; its root file system,
// cgroup and program are replaced. Single figures of a busy machine say little:
// quote the ratios.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	rounds := flag.Int("n", 50, "rounds that are counted")
	idle := flag.Int("idle", 0, "containers that sleep at once")
	config := flag.String("config", "", "config.json of an engine; default is what the first runtime's spec writes")
	annotation := flag.String("annotation", "", "what the first runtime's containers have in its second row")
	flag.Parse()
	if err := run(flag.Args(), *rounds, *idle, *config, *annotation); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// phases are what is timed, in this order.
var phases = []string{"create", "start", "wait", "delete", "total"}

// contender is a row: a runtime and what it runs.
type contender struct {
	name, runtime string
	annotation    string
	dir           string // its bundle, and its state
}

func run(runtimes []string, rounds, idle int, config, annotation string) error {
	if len(runtimes) == 0 {
		return fmt.Errorf("no runtime; name one or more")
	}
	dir, err := os.MkdirTemp("", "eggrun-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var contenders []contender
	for i, runtime := range runtimes {
		contenders = append(contenders, contender{name: runtime, runtime: runtime})
		if i == 0 && annotation != "" {
			contenders = append(contenders, contender{name: annotation, runtime: runtime, annotation: annotation})
		}
	}
	for i := range contenders {
		c := &contenders[i]
		c.dir = filepath.Join(dir, strconv.Itoa(i))
		if err := makeBundle(*c, runtimes[0], config); err != nil {
			return err
		}
	}
	// As engines do: the container's first process becomes our child when
	// create has ended.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("become subreaper", err)
	}
	if err := timeAll(contenders, rounds); err != nil {
		return err
	}
	if idle == 0 {
		return nil
	}
	return weighAll(contenders, idle)
}

// timeAll lets the contenders take turns, in another order each round: how long
// the kernel makes one wait for its cgroup depends on who came before.
func timeAll(contenders []contender, rounds int) error {
	times := make([]map[string][]time.Duration, len(contenders))
	for i := range times {
		times[i] = make(map[string][]time.Duration)
	}
	const warmups = 3
	for round := range rounds + warmups {
		for _, i := range rand.Perm(len(contenders)) {
			took, err := contenders[i].once(fmt.Sprintf("bench-%d-%d-%d", os.Getpid(), i, round))
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
	report(contenders, times)
	return nil
}

// call runs a verb.
func (c contender) call(args ...string) error {
	cmd := exec.Command(c.runtime, append([]string{"--root", filepath.Join(c.dir, "state")}, args...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", c.name, args[0], err)
	}
	return nil
}

// create creates a container and returns its first process.
func (c contender) create(id string) (pid int, err error) {
	pidFile := filepath.Join(c.dir, "pid")
	if err := c.call("create", "--bundle", c.dir, "--pid-file", pidFile, id); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// once is one container's life.
func (c contender) once(id string) (map[string]time.Duration, error) {
	took := make(map[string]time.Duration)
	begin := time.Now()
	last := begin
	lap := func(phase string) {
		now := time.Now()
		took[phase], last = now.Sub(last), now
	}
	pid, err := c.create(id)
	if err != nil {
		return nil, err
	}
	lap("create")
	if err := c.call("start", id); err != nil {
		return nil, err
	}
	lap("start")
	if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
		return nil, os.NewSyscallError("wait", err)
	}
	lap("wait")
	if err := c.call("delete", id); err != nil {
		return nil, err
	}
	lap("delete")
	took["total"] = last.Sub(begin)
	return took, nil
}

func report(contenders []contender, times []map[string][]time.Duration) {
	fmt.Printf("%-28s", "median ms (ratio)")
	for _, phase := range phases {
		fmt.Printf("%16s", phase)
	}
	fmt.Println()
	for i, c := range contenders {
		fmt.Printf("%-28s", c.name)
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
