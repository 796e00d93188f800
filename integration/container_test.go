package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// container is a container that a test created.
type container struct {
	*lab
	id      string
	bundle  bundle
	pid     int
	outFile string // stdout of the container
	errFile string
}

// newID returns an id that is unique in the lab, and sees to its deletion.
func (l *lab) newID() string {
	l.containers++
	id := fmt.Sprintf("c%d", l.containers)
	l.ids = append(l.ids, id)
	return id
}

// create creates a container the way conmon does.
func (l *lab) create(edits ...edit) *container {
	l.t.Helper()
	return l.createWith(invocation{}, edits...)
}

// createWith creates a container with more arguments of create in in.args.
func (l *lab) createWith(in invocation, edits ...edit) *container {
	l.t.Helper()
	id := l.newID()
	return l.createIn(l.bundle(id, edits...), id, in)
}

func (l *lab) createIn(b bundle, id string, in invocation) *container {
	l.t.Helper()
	pidFile := filepath.Join(l.dir, "pid-"+id)
	in.args = append([]string{"create", "--bundle", b.dir, "--pid-file", pidFile}, append(in.args, id)...)
	r := l.invoke(in)
	l.wantSilent(r)
	text := readFile(l.t, pidFile)
	pid, err := strconv.Atoi(text)
	if err != nil {
		l.t.Fatalf("pid file: %q: want a decimal number and nothing else", text)
	}
	return &container{lab: l, id: id, bundle: b, pid: pid, outFile: r.outFile, errFile: strings.TrimSuffix(r.outFile, ".out") + ".err"}
}

// runDetached creates and starts.
func (l *lab) runDetached(edits ...edit) *container {
	l.t.Helper()
	c := l.create(edits...)
	c.start()
	return c
}

// run runs a container in the foreground.
func (l *lab) run(edits ...edit) result {
	l.t.Helper()
	return l.runWith(invocation{}, edits...)
}

func (l *lab) runWith(in invocation, edits ...edit) result {
	l.t.Helper()
	id := l.newID()
	b := l.bundle(id, edits...)
	in.args = append([]string{"run", "--bundle", b.dir}, append(in.args, id)...)
	return l.invoke(in)
}

// output runs a shell script in a container and returns what it printed. The
// script must exit 0 and write nothing to standard error.
func (l *lab) output(script string, edits ...edit) string {
	l.t.Helper()
	r := l.run(append([]edit{sh(script)}, edits...)...)
	if r.code != 0 || r.stderr != "" {
		l.t.Fatalf("script %q: exit %d, stdout %q, stderr %q", script, r.code, r.stdout, r.stderr)
	}
	return strings.TrimRight(r.stdout, "\n")
}

func (c *container) start() {
	c.t.Helper()
	c.wantSilent(c.call("start", c.id))
}

// wait returns how init ended: its exit code, or 128 and a signal's number.
func (c *container) wait() int {
	c.t.Helper()
	return suite.reaper.status(c.t, c.pid)
}

func (c *container) kill(signal string) {
	c.t.Helper()
	c.wantSilent(c.call("kill", c.id, signal))
}

func (c *container) delete() {
	c.t.Helper()
	c.wantSilent(c.call("delete", c.id))
}

// finish lets a started container end, deletes it and returns its output.
func (c *container) finishOutput() (code int, stdout, stderr string) {
	c.t.Helper()
	code = c.wait()
	c.delete()
	return code, c.stdout(), readFile(c.t, c.errFile)
}

func (c *container) stdout() string {
	c.t.Helper()
	return readFile(c.t, c.outFile)
}

// state is the JSON that the verb state prints.
type state struct {
	OCIVersion  string            `json:"ociVersion"`
	ID          string            `json:"id"`
	PID         int               `json:"pid"`
	Status      string            `json:"status"`
	Bundle      string            `json:"bundle"`
	Rootfs      string            `json:"rootfs"`
	Created     string            `json:"created"`
	Annotations map[string]string `json:"annotations"`
	Owner       string            `json:"owner"`
}

func (c *container) state() state {
	c.t.Helper()
	r := c.call("state", c.id)
	c.wantOK(r)
	if r.stderr != "" {
		c.t.Errorf("state: stderr %q, want nothing: containerd decodes both streams as one", r.stderr)
	}
	var s state
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
		c.t.Fatalf("state: %v in %q", err, r.stdout)
	}
	return s
}

// wantStatus waits until state reports the status.
func (c *container) wantStatus(status string) {
	c.t.Helper()
	var last string
	eventuallyOr(c.t, func() string { return fmt.Sprintf("state %s of %s, last seen %s", status, c.id, last) }, func() bool {
		last = c.state().Status
		return last == status
	})
}

// wantOutput waits until the running container has printed text.
func (c *container) wantOutput(text string) {
	c.t.Helper()
	eventuallyOr(c.t, func() string { return fmt.Sprintf("output %q, have %q", text, c.stdout()) }, func() bool {
		return strings.Contains(c.stdout(), text)
	})
}

func (l *lab) wantOK(r result) {
	l.t.Helper()
	if r.code != 0 {
		l.t.Fatalf("%v: exit %d, stdout %q, stderr %q", r.args, r.code, r.stdout, r.stderr)
	}
}

// wantSilent is for verbs that print nothing when they succeed.
func (l *lab) wantSilent(r result) {
	l.t.Helper()
	l.wantOK(r)
	if r.stdout != "" || r.stderr != "" {
		l.t.Errorf("%v: stdout %q, stderr %q, want nothing", r.args, r.stdout, r.stderr)
	}
}

// wantFail checks the exit status of a failed verb and that each text, in
// whatever case, is in the message, which for eggrun must be one line.
func (l *lab) wantFail(r result, texts ...string) {
	l.t.Helper()
	if r.code != 1 {
		l.t.Fatalf("%v: exit %d, stdout %q, stderr %q; want exit 1", r.args, r.code, r.stdout, r.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(strings.ToLower(r.stderr), strings.ToLower(text)) {
			l.t.Errorf("%v: stderr %q lacks %q", r.args, r.stderr, text)
		}
	}
	if !l.rt.isEggrun() {
		return
	}
	message, ok := strings.CutPrefix(r.stderr, "eggrun: ")
	if !ok || strings.Count(r.stderr, "\n") != 1 || !strings.HasSuffix(r.stderr, "\n") {
		l.t.Errorf("%v: stderr %q, want one line that begins with \"eggrun: \"", r.args, r.stderr)
	}
	if len(r.records) == 1 && r.records[0].Msg != strings.TrimSuffix(message, "\n") {
		l.t.Errorf("%v: log says %q, stderr %q", r.args, r.records[0].Msg, message)
	}
}

// wantGone checks that nothing of the container is left and that its name is
// unknown.
func (l *lab) wantGone(id string) {
	l.t.Helper()
	l.wantFail(l.call("state", id), "container does not exist")
	if _, err := os.Lstat(filepath.Join(l.root, id)); err == nil {
		l.t.Errorf("state dir %s is still there", filepath.Join(l.root, id))
	}
}

// equal reports a difference.
func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// contains reports a missing text.
func contains(t *testing.T, what, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s: %q lacks %q", what, got, want)
	}
}
