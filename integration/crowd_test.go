package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// crowdSize is the number of containers of TestCrowd, EGGRUN_TEST_CROWD.
func crowdSize(t *testing.T) int64 {
	t.Helper()
	text := os.Getenv("EGGRUN_TEST_CROWD")
	if text == "" {
		return 60
	}
	size, err := strconv.ParseInt(text, 10, 32)
	if err != nil || size < 1 {
		t.Fatalf("EGGRUN_TEST_CROWD=%s: want a number of containers", text)
	}
	return size
}

// crowd is a state directory with many containers at once.
type crowd struct {
	next atomic.Int64
	// usual is how long the calls of a container's life last, in nanoseconds.
	usual [3]atomic.Int64
	// killed counts the calls that were killed while they ran.
	killed [3]atomic.Int64
}

// TestCrowd creates, starts and deletes containers, fifty at once, and kills
// every second one's runtime at a random moment. Nothing may be left.
func TestCrowd(t *testing.T) {
	t.Parallel()
	const atOnce = 50
	size := crowdSize(t)
	rt := eggrunOnly(t)
	var c crowd
	var workers sync.WaitGroup
	root := newLab(t, rt).root
	for worker := range min(atOnce, size) {
		l := newLab(t, rt)
		l.root = root
		b := l.bundle(fmt.Sprint("worker", worker), sh("exec sleep 1000"))
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
	b.write(l.t, l.config(id, sh("exec sleep 1000")))
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
