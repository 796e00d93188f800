package integration

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// isFullLoad tells whether the load is as much as a container can make, which
// takes minutes: EGGRUN_TEST_LOAD=full.
func isFullLoad() bool { return os.Getenv("EGGRUN_TEST_LOAD") == "full" }

// loadSize returns one of two sizes.
func loadSize(ci, full int) int {
	if isFullLoad() {
		return full
	}
	return ci
}

// footprint is what a process holds that nobody else does. Its program is shared
// with all others.
type footprint struct {
	descriptors int
	memoryKB    int
}

func footprintOf(t *testing.T, pid int) footprint {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	memory := 0
	for line := range strings.Lines(readFile(t, fmt.Sprintf("/proc/%d/smaps_rollup", pid))) {
		if fields := strings.Fields(line); fields[0] == "Anonymous:" {
			kB, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			memory = kB
		}
	}
	return footprint{len(fds), memory}
}

// loaded is a container under load, and the process that serves it.
type loaded struct {
	*container
	sidecar int
}

// begin starts the probe's load. What it says is in the result's outFile.
func (c loaded) begin(stdin *os.File, kind, proxy, target string, numbers ...int) (*exec.Cmd, string) {
	c.t.Helper()
	words := []string{"exec", c.id, "/probe", "load", kind, proxy, target}
	for _, number := range numbers {
		words = append(words, itoa(number))
	}
	cmd, r, _ := c.command(invocation{args: words, stdin: stdin})
	if err := suite.reaper.start(cmd); err != nil {
		c.t.Fatal(err)
	}
	return cmd, r.outFile
}

// load waits for the probe's load and returns what it says.
func (c loaded) load(kind, proxy, target string, numbers ...int) string {
	c.t.Helper()
	cmd, outFile := c.begin(nil, kind, proxy, target, numbers...)
	if err := suite.reaper.wait(cmd); err != nil {
		c.t.Errorf("load %s: %v", kind, err)
	}
	c.t.Logf("%s by %s: sidecar %+v", kind, proxy, footprintOf(c.t, c.sidecar))
	return readFile(c.t, outFile)
}

// TestLoad gives one sidecar all that one container can: nothing may get lost,
// and in the end it may not hold more than before.
func TestLoad(t *testing.T) {
	l, canary := newLab(t, eggrunOnly(t)), newCanary(t)
	target := allowedName + ":" + canary.port
	manyFiles := func(spec *specs.Spec) {
		spec.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 20000, Hard: 20000}}
	}
	c := loaded{container: l.runDetached(withProbe, manyFiles, sh("echo up; exec sleep 10000"),
		domains(target+"!tcp 127.0.0.1:"+canary.port+"!tcp *.wild.test"))}
	c.wantOutput("up\n")
	c.sidecar = l.oneSidecar(c.container).pid
	ways := []string{"127.0.0.1:3128", "-"}
	for _, way := range ways { // for what is made once
		c.load("bursts", way, target, 20, 20)
	}
	before := footprintOf(t, c.sidecar)
	// Go keeps something of goroutines and descriptors for the next ones: 15 to
	// 21 MB were seen after a full load, names included, of 85 MB before.
	kept := loadSize(8, 32) << 10
	back := func(t *testing.T) {
		eventuallyOr(t, func() string {
			return fmt.Sprintf("sidecar as before: %+v, want %+v", footprintOf(t, c.sidecar), before)
		}, func() bool {
			now := footprintOf(t, c.sidecar)
			return now.descriptors <= before.descriptors && now.memoryKB <= before.memoryKB+kept
		})
	}
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			atOnce := loadSize(200, 2000)
			equal(t, "bursts", c.load("bursts", way, target, 5*atOnce, atOnce), strings.Repeat(fmt.Sprintf("burst: %d of %d, <nil>\n", atOnce, atOnce), 5))
			equal(t, "bytes", c.load("bytes", way, target, 8, loadSize(32, 640)), "bytes: 8 of 8, <nil>\n")
			back(t)
			c.idle(t, way, target)
			back(t)
		})
	}
	slow := loadSize(100, 2000)
	equal(t, "slow heads", c.load("heads", ways[0], target, slow),
		fmt.Sprintf("slow: %d of %d, <nil>\nburst: 100 of 100, <nil>\nended: %d of %d, <nil>\n", slow, slow, slow, slow))
	const atMost = 16384 // of names below wildcards
	asked := loadSize(300, 20000)
	answered := min(asked, atMost)
	equal(t, "names", c.load("names", "-", "wild.test", asked), fmt.Sprintf("names: %d of %d, %d addresses\n", answered, asked, answered))
	equal(t, "in the end", c.load("bursts", "-", target, 20, 20), "burst: 20 of 20, <nil>\n")
	back(t)
	t.Logf("quiet: %+v, before: %+v", footprintOf(t, c.sidecar), before)
	l.wantSilent(l.call("delete", "--force", c.id))
}

// idle has tunnels open that do nothing, as many as there may be.
func (c loaded) idle(t *testing.T, way, target string) {
	t.Helper()
	const limit = 4096
	count := loadSize(500, limit)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = write.Close() }()
	cmd, outFile := c.begin(read, "idle", way, target, count)
	_ = read.Close()
	eventuallyOr(t, func() string { return "open tunnels, have " + readFile(t, outFile) }, func() bool { return strings.Contains(readFile(t, outFile), "one more") })
	open := footprintOf(t, c.sidecar)
	t.Logf("%d idle tunnels: %+v", count, open)
	_ = write.Close()
	if err := suite.reaper.wait(cmd); err != nil {
		t.Error(err)
	}
	lines := strings.Split(readFile(t, outFile), "\n")
	if len(lines) != 4 {
		t.Fatalf("idle tunnels: %q", lines)
	}
	equal(t, "idle tunnels", lines[0], fmt.Sprintf("opened: %d of %d, <nil>", count, count))
	oneMore := map[bool]string{true: "reset by peer", false: "503 eggrun: 4096 connections are open; close some"}[way == "-"]
	if count < limit {
		oneMore = "<nil>"
	}
	contains(t, "one more", lines[1], oneMore)
	equal(t, "idle tunnels", lines[2], fmt.Sprintf("still open: %d of %d, <nil>", count, count))
}
