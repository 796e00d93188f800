package integration

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a test waits for something that must happen.
const patience = 30 * time.Second

// reaper is what conmon is for podman: the parent that a container's init
// gets when the runtime process has gone, and the only one that may see how
// it ended.
type reaper struct {
	mu    sync.Mutex
	owned map[int]bool // children that an exec.Cmd waits for
	ended map[int]unix.WaitStatus
	news  *sync.Cond
}

func newReaper() *reaper {
	r := &reaper{owned: map[int]bool{}, ended: map[int]unix.WaitStatus{}}
	r.news = sync.NewCond(&r.mu)
	// PID 1 gets the orphans anyway; this says so where it is not.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	go func() {
		for range signals {
			r.collect()
		}
	}()
	return r
}

// start starts cmd so that the reaper leaves it alone. All processes of the
// suite must be started by it.
func (r *reaper) start(cmd *exec.Cmd) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	r.owned[cmd.Process.Pid] = true
	return nil
}

// wait waits for a command that start started.
func (r *reaper) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	r.mu.Lock()
	delete(r.owned, cmd.Process.Pid)
	r.mu.Unlock()
	r.collect()
	return err
}

// output runs a command to its end and returns what it printed, as
// CombinedOutput does; that one would lose the child to the reaper.
func (r *reaper) output(cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := r.start(cmd); err != nil {
		return "", err
	}
	err := r.wait(cmd)
	return out.String(), err
}

// collect reaps every orphan that has ended. waitid cannot leave out the
// children of exec.Cmd, so the zombies are found in /proc.
func (r *reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range processStates() {
		if p.ppid != os.Getpid() || p.state != 'Z' || r.owned[p.pid] {
			continue
		}
		var status unix.WaitStatus
		if pid, err := unix.Wait4(p.pid, &status, unix.WNOHANG, nil); err == nil && pid == p.pid {
			r.ended[pid] = status
			r.news.Broadcast()
		}
	}
}

// status waits until the orphan pid has ended and tells how: its exit code,
// or 128 and the number of the signal.
func (r *reaper) status(t *testing.T, pid int) int {
	t.Helper()
	timeout := time.AfterFunc(patience, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.news.Broadcast()
	})
	defer timeout.Stop()
	deadline := time.Now().Add(patience)
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if status, ok := r.ended[pid]; ok {
			return exitCode(status)
		}
		if !time.Now().Before(deadline) {
			t.Fatalf("process %d did not end within %v", pid, patience)
		}
		r.news.Wait()
	}
}

func exitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// eventually polls until ok, and fails the test after patience.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	eventuallyOr(t, func() string { return what }, ok)
}

// eventuallyOr is eventually with a text that is made when it failed.
func eventuallyOr(t *testing.T, what func() string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %v", what(), patience)
		}
	}
}
