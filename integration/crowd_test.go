package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// crowdSize is the number of containers of a crowd: EGGRUN_TEST_CROWD, or what is
// usual.
func crowdSize(t *testing.T, usual int64) int64 {
	t.Helper()
	text := os.Getenv("EGGRUN_TEST_CROWD")
	if text == "" {
		return usual
	}
	size, err := strconv.ParseInt(text, 10, 32)
	if err != nil || size < 1 {
		t.Fatalf("EGGRUN_TEST_CROWD=%s: want a number of containers", text)
	}
	return size
}

// crowd is a state directory with many containers at once.
type crowd struct {
	edits []edit
	next  atomic.Int64
	// usual is how long the calls of a container's life last, in nanoseconds.
	usual [3]atomic.Int64
	// killed counts the calls that were killed while they ran.
	killed [3]atomic.Int64
}

// TestCrowd creates, starts and deletes containers, fifty at once, and kills
// every second one's runtime at a random moment. Nothing may be left.
func TestCrowd(t *testing.T) {
	t.Parallel()
	(&crowd{edits: []edit{sh("exec sleep 1000")}}).run(t, eggrunOnly(t), crowdSize(t, 60), 50)
}

// TestWalledCrowd is a crowd of containers with a policy, up to two hundred at
// once: with each its namespace, sockets, rules, sidecar and registry entry must
// go, whenever its runtime was killed. It is alone, so that all of these are its.
func TestWalledCrowd(t *testing.T) {
	rt := eggrunOnly(t)
	before := networkNamespaces(t)
	walled := crowd{edits: []edit{sh("exec sleep 1000"), domains(allowedName), annotate("eggrun.on-proxy-exit", "kill")}}
	walled.run(t, rt, crowdSize(t, 60), 200)
	eventuallyOr(t, func() string { return fmt.Sprintf("end of sidecars, have %v", sidecarsOfAll()) }, func() bool { return len(sidecarsOfAll()) == 0 })
	// What nobody refers to any more the kernel takes down in its own time.
	eventuallyOr(t, func() string { return fmt.Sprintf("namespaces as before: %v, want %v", networkNamespaces(t), before) }, func() bool {
		return slices.Equal(networkNamespaces(t), before)
	})
	entries, err := os.ReadDir("/run/eggrun/netns")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		t.Errorf("left in the registry: %s", entry.Name())
	}
}

// sidecarsOfAll are the sidecars and killers of all containers.
func sidecarsOfAll() []string {
	var found []string
	for _, p := range processes() {
		if fields := strings.Fields(p.cmdline); len(fields) > 1 && fields[0] == "eggrun" && fields[1] == "sidecar" {
			found = append(found, fmt.Sprintf("%d %s", p.pid, p.cmdline))
		}
	}
	return found
}

// networkNamespaces are those that a process, or a descriptor of one, refers to.
func networkNamespaces(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"/proc/[0-9]*/ns/net", "/proc/[0-9]*/fd/*"} {
		links, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range links {
			if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, "net:[") && !slices.Contains(found, target) {
				found = append(found, target)
			}
		}
	}
	slices.Sort(found)
	return found
}

// run has so many containers live, some of them at once.
func (c *crowd) run(t *testing.T, rt runtimeUnderTest, size, atOnce int64) {
	t.Helper()
	var workers sync.WaitGroup
	root := newLab(t, rt).root
	for worker := range min(atOnce, size) {
		l := newLab(t, rt)
		l.root = root
		b := l.bundle(fmt.Sprint("worker", worker))
		workers.Go(func() {
			for i := c.next.Add(1); i <= size; i = c.next.Add(1) {
				c.live(l, b, fmt.Sprint("crowd", i), i%2 == 0)
			}
		})
	}
	workers.Wait()
	t.Logf("%d containers; killed in create, start, delete: %d, %d, %d", size, c.killed[0].Load(), c.killed[1].Load(), c.killed[2].Load())
}

// live is the life of one container.
func (c *crowd) live(l *lab, b bundle, id string, isKilled bool) {
	l.ids = append(l.ids, id)
	b.write(l.t, l.config(id, c.edits...))
	calls := [...][]string{{"create", "--bundle", b.dir, id}, {"start", id}, {"delete", "--force", id}}
	victim := -1
	if isKilled {
		victim = rand.IntN(len(calls))
	}
	for i, args := range calls {
		cmd, r, log := l.command(invocation{args: args})
		begin := time.Now()
		if err := suite.reaper.start(cmd); err != nil {
			l.t.Error(err)
			return
		}
		if victim >= 0 && i >= victim {
			// The random moment: calls that last twice as long are as usual.
			time.Sleep(time.Duration(rand.Int64N(1 + c.usual[i].Load()/2)))
			_ = cmd.Process.Kill()
			log = ""
		}
		r = l.finish(cmd, r, log)
		if victim >= 0 && !cmd.ProcessState.Exited() {
			c.killed[i].Add(1)
			break
		}
		if r.code != 0 {
			l.t.Errorf("%v: exit %d: %s", args, r.code, r.stderr)
		}
		c.usual[i].Store(int64(time.Since(begin)))
	}
	if isKilled {
		l.wantSilent(l.call("delete", "--force", id))
	}
}
