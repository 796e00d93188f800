package initproc

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"eggrun/internal/linux"
	"eggrun/internal/need"
	"eggrun/internal/seccomp"

	"golang.org/x/sys/unix"
)

// caller is who calls the wrapper.
type caller struct {
	name string
	// kuid is the caller's uid and gid on the host.
	kuid int
	// maps are those of the namespaces in which the wrapper runs; none: those
	// of the host.
	maps []syscall.SysProcIDMap
	// uid is what --uid and --gid say, fileUID the owner of the command's files
	// on the host.
	uid, fileUID int
}

// someUID is an unprivileged user of the host.
func someUID() int {
	if uid := os.Getuid(); uid != 0 {
		return uid
	}
	return 12345
}

func mapRoot(to int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: to, Size: 1}} }

func realRoot() caller { return caller{"real root", 0, nil, 12345, 12345} }
func nsRoot() caller   { return caller{"root of a namespace", 0, mapRoot(0), 1000, 0} }
func nsUser() caller   { return caller{"user", someUID(), mapRoot(someUID()), 1000, someUID()} }

// forEachCaller runs a test for each way in which the wrapper is used.
func forEachCaller(t *testing.T, test func(t *testing.T, c caller)) {
	t.Parallel()
	for _, c := range []caller{realRoot(), nsRoot(), nsUser()} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.need(t)
			test(t, c)
		})
	}
}

func (c caller) need(t *testing.T) {
	t.Helper()
	if c.kuid != os.Getuid() || c.maps == nil {
		need.Root(t)
	}
	if c.maps != nil {
		need.That(t, "user namespaces", probeUserNS)
	}
}

var probeUserNS = sync.OnceValue(func() error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS}
	return cmd.Run()
})

// tree is a scratch directory whose files belong to the command.
type tree struct {
	t    *testing.T
	dir  string
	uid  int
	home string
}

// newTree makes one with an empty directory home in it.
func newTree(t *testing.T, c caller) *tree {
	t.Helper()
	dir, err := os.MkdirTemp(workDir, "tree-")
	if err != nil {
		t.Fatal(err)
	}
	tr := &tree{t: t, dir: dir, uid: c.fileUID, home: filepath.Join(dir, "home")}
	tr.check(os.Chmod(dir, 0o755))
	tr.own(dir)
	tr.mkdir("home")
	return tr
}

func (tr *tree) check(err error) {
	tr.t.Helper()
	if err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *tree) own(path string) {
	tr.t.Helper()
	if os.Getuid() == 0 {
		tr.check(os.Lchown(path, tr.uid, tr.uid))
	}
}

func (tr *tree) path(name string) string { return filepath.Join(tr.dir, name) }

func (tr *tree) mkdir(name string) string {
	tr.t.Helper()
	path := tr.dir
	for part := range strings.SplitSeq(name, "/") {
		path = filepath.Join(path, part)
		if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			tr.t.Fatal(err)
		}
		tr.own(path)
	}
	return path
}

func (tr *tree) write(name, content string) string {
	tr.t.Helper()
	tr.mkdir(filepath.Dir(name))
	path := tr.path(name)
	tr.check(os.WriteFile(path, []byte(content), 0o644))
	tr.own(path)
	return path
}

func (tr *tree) link(target, name string) string {
	tr.t.Helper()
	path := tr.path(name)
	tr.check(os.Symlink(target, path))
	tr.own(path)
	return path
}

// read returns the content that the host sees.
func (tr *tree) read(name string) string {
	tr.t.Helper()
	content, err := os.ReadFile(tr.path(name))
	tr.check(err)
	return string(content)
}

func (tr *tree) exists(name string) bool {
	_, err := os.Lstat(tr.path(name))
	return err == nil
}

// launch is one call of the wrapper.
type launch struct {
	caller caller
	// prepare makes mounts in a mount namespace of the host that only the
	// wrapper sees.
	prepare func() error
	// options are those before "--"; --uid and --gid are added.
	options []string
	command []string
	// bare runs the command without the wrapper, in the same namespaces.
	bare bool
	// shell is done first, by a shell that then becomes the wrapper.
	shell string
	// fault makes system calls fail for the wrapper.
	fault *seccomp.Filter

	dir    string
	env    []string // nil: the tests' own
	groups []uint32
	stdin  io.Reader // nil: /dev/null
	stdout *os.File  // nil: collected
	files  []*os.File
	attr   syscall.SysProcAttr
}

// sh returns a launch of a shell script.
func sh(c caller, script string, options ...string) launch {
	return launch{caller: c, options: options, command: []string{"/bin/sh", "-c", script}}
}

// with returns a copy with these options.
func (l launch) with(options ...string) launch {
	l.options = options
	return l
}

func (l *launch) argv(t *testing.T) []string {
	if l.bare {
		return l.command
	}
	id := strconv.Itoa(l.caller.uid)
	argv := slices.Concat([]string{selfPath(t), asInit, "--uid", id, "--gid", id}, l.options, []string{"--"}, l.command)
	if l.shell != "" {
		argv = append([]string{"/bin/sh", "-c", l.shell + `; exec "$0" "$@"`}, argv...)
	}
	return argv
}

// running is a wrapper that was started.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout lockedBuffer
	stderr lockedBuffer
	done   chan struct{}
}

// starting serialises the starts: the thread of one changes whether the process
// is dumpable, on which another relies.
var starting sync.Mutex

// start starts it from a thread of its own, which has the caller's ids and mount
// namespace and is not used again.
func (l launch) start(t *testing.T) *running {
	t.Helper()
	argv := l.argv(t)
	r := &running{t: t, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = l.stdin, &r.stdout, &r.stderr
	if l.stdout != nil {
		r.cmd.Stdout = l.stdout
	}
	r.cmd.Dir, r.cmd.Env, r.cmd.ExtraFiles = cmp.Or(l.dir, "/"), l.env, l.files
	attr := l.attr
	if l.caller.maps != nil {
		attr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS
		attr.UidMappings, attr.GidMappings = l.caller.maps, l.caller.maps
		attr.Credential = &syscall.Credential{NoSetGroups: true}
	}
	r.cmd.SysProcAttr = &attr
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		starting.Lock()
		defer starting.Unlock()
		result <- l.startHere(r.cmd)
	}()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait()
		close(r.done)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.done
	})
	return r
}

func (l *launch) startHere(cmd *exec.Cmd) error {
	if l.prepare != nil {
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""))
		if err == nil {
			err = l.prepare()
		}
		if err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	if os.Getuid() == 0 {
		id := uint32(l.caller.kuid)
		if err := errors.Join(linux.SetGroups(l.groups), linux.SetGID(id), linux.SetUID(id)); err != nil {
			return err
		}
		// Lost with a change of ids; else the maps of the child would belong to
		// root.
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	if l.fault != nil {
		if err := errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), seccomp.Load(l.fault, false)); err != nil {
			return err
		}
	}
	return cmd.Start()
}

func (r *running) pid() int { return r.cmd.Process.Pid }

// wait waits for the end and returns the exit status as a shell does.
func (r *running) wait() int {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(time.Minute):
		r.t.Fatalf("still running; stdout %q, stderr %q", r.stdout.String(), r.stderr.String())
	}
	return shellStatus(unix.WaitStatus(r.cmd.ProcessState.Sys().(syscall.WaitStatus)))
}

// awaitLine waits until a line was printed.
func (r *running) awaitLine(line string) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("printing %q", line), func() bool {
		select {
		case <-r.done:
			if !slices.Contains(r.lines(), line) {
				r.t.Fatalf("ended without %q; stdout %q, stderr %q", line, r.stdout.String(), r.stderr.String())
			}
		default:
		}
		return slices.Contains(r.lines(), line)
	})
}

func (r *running) lines() []string {
	return strings.Split(strings.ReplaceAll(r.stdout.String(), "\r", ""), "\n")
}

// served is an agent that does what it is asked.
type served struct {
	*running
	asked io.Writer
	count int
}

// serve starts one as the command, see agent.
func (l launch) serve(t *testing.T) *served {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	t.Cleanup(func() { write.Close() })
	l.stdin, l.command = read, []string{selfPath(t), asAgent, "serve"}
	a := &served{running: l.start(t), asked: write}
	a.awaitLine("ready")
	return a
}

// ask has it do one operation and returns the result.
func (a *served) ask(op string) string {
	a.t.Helper()
	if _, err := fmt.Fprintln(a.asked, op); err != nil {
		a.t.Fatal(err)
	}
	a.count++
	eventually(a.t, "answer to "+op, func() bool { return len(a.lines()) > a.count+1 })
	return strings.TrimPrefix(a.lines()[a.count], op+": ")
}

// outcome is how a wrapper ended.
type outcome struct {
	status         int
	stdout, stderr string
}

func (l launch) run(t *testing.T) outcome {
	t.Helper()
	r := l.start(t)
	status := r.wait()
	return outcome{status, r.stdout.String(), r.stderr.String()}
}

// mustPrint runs it and wants that output and nothing on standard error.
func (l launch) mustPrint(t *testing.T, want string) {
	t.Helper()
	if got := l.run(t); got.stdout != want || got.status != 0 || got.stderr != "" {
		t.Errorf("options %q: %+v, want stdout %q", l.options, got, want)
	}
}

// mustRefuse runs it and wants a wrapper that says why it does not start the
// command.
func (l launch) mustRefuse(t *testing.T, want string) {
	t.Helper()
	got := l.run(t)
	if got.status != exitSetup || got.stdout != "" || got.stderr != "eggrun: init: "+want+"\n" {
		t.Errorf("options %q: %+v, want status %d and %q", l.options, got, exitSetup, want)
	}
}

// lockedBuffer is written by one goroutine and read by another.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// bind mounts what is at from also at to.
func bind(from, to string) error {
	return unix.Mount(from, to, "", unix.MS_BIND, "")
}

// childrenOf returns the pids of the processes whose parent is pid, zombies
// too.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var children []int
	for _, path := range stats {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
		if fields[1] == strconv.Itoa(pid) {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			children = append(children, child)
		}
	}
	return children
}

// onlyChild waits until there is exactly one and returns it.
func onlyChild(t *testing.T, pid int) (child int) {
	t.Helper()
	eventually(t, fmt.Sprintf("process %d with one child", pid), func() bool {
		children := childrenOf(t, pid)
		if len(children) != 1 {
			return false
		}
		child = children[0]
		return true
	})
	return child
}
