package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// weight is what processes hold.
type weight struct {
	processes, descriptors int
	privateKB, pssKB       int // as of smaps_rollup in proc(5)
}

// weighAll prints what one of count idle containers of each contender holds.
func weighAll(contenders []contender, count int) error {
	fmt.Printf("\n%-28s%16s%16s%16s%16s\n", fmt.Sprintf("each of %d that sleep", count), "processes", "descriptors", "private kB", "PSS kB")
	for _, c := range contenders {
		w, err := c.weigh(count)
		if err != nil {
			return err
		}
		n := float64(count)
		fmt.Printf("%-28s%16.1f%16.1f%16.0f%16.0f\n", c.name, float64(w.processes)/n, float64(w.descriptors)/n, float64(w.privateKB)/n, float64(w.pssKB)/n)
	}
	return nil
}

// weigh starts the containers, looks at all processes that have come to us with
// them, and deletes the containers.
func (c contender) weigh(count int) (weight, error) {
	before, err := children()
	if err != nil {
		return weight{}, err
	}
	ids := make([]string, count)
	for i := range ids {
		ids[i] = fmt.Sprintf("idle-%d-%s-%d", os.Getpid(), filepath.Base(c.dir), i)
		if err := c.sleepInstead(ids[i]); err != nil {
			return weight{}, err
		}
		if _, err := c.create(ids[i]); err != nil {
			return weight{}, err
		}
		defer func() { _ = c.call("delete", "--force", ids[i]) }()
		if err := c.call("start", ids[i]); err != nil {
			return weight{}, err
		}
	}
	after, err := children()
	if err != nil {
		return weight{}, err
	}
	var all weight
	for _, pid := range after {
		if slices.Contains(before, pid) {
			continue
		}
		if err := all.add(pid); err != nil {
			return weight{}, err
		}
	}
	return all, nil
}

// sleepInstead makes the bundle's program one that stays, in a cgroup of its own.
func (c contender) sleepInstead(id string) error {
	path := filepath.Join(c.dir, "config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return err
	}
	spec.Process.Args = []string{"/bin/sleep", "1000000"}
	spec.Linux.CgroupsPath = "/eggrun-bench-" + id
	return writeSpec(path, &spec)
}

// children are our live children: containers, and what stays beside them.
func children() ([]int, error) {
	for { // those that have ended
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 || err != nil {
			break
		}
	}
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for _, word := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func (w *weight) add(pid int) error {
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return err
	}
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return err
	}
	w.processes++
	w.descriptors += len(fds)
	for line := range strings.Lines(string(rollup)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		kB, err := strconv.Atoi(fields[1])
		if err != nil {
			return err
		}
		switch fields[0] {
		case "Private_Clean:", "Private_Dirty:":
			w.privateKB += kB
		case "Pss:":
			w.pssKB += kB
		}
	}
	return nil
}
