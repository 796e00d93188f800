// As in main: otherwise the sidecar keeps files of its cgroup open.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

package egress

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"eggrun/egress/inside"
	"eggrun/internal/linux"
	"eggrun/policy"

	"golang.org/x/sys/unix"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// childEnv names the test that the test binary is the unprivileged child for.
const childEnv = "EGGRUN_EGRESS_TEST_CHILD"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "sidecar" && os.Args[2] == attackLabel {
		attack()
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "sidecar" {
		if err := Sidecar(os.Args[2:]); err != nil {
			os.Exit(1)
		}
		return
	}
	if !isStatic() {
		os.Exit(runStatic())
	}
	// A test that throws its thread away must not have the main one, whose
	// namespaces others see in /proc/PID.
	runtime.LockOSThread()
	// What this process was started with is nobody's here.
	if err := linux.CloseOnExecFrom(3); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// isStatic tells whether this program needs no loader: a sidecar has no file
// system to find one in.
func isStatic() bool {
	self, err := elf.Open("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	defer self.Close()
	return !slices.ContainsFunc(self.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// runStatic builds this test once more as eggrun is built, runs it with the same
// arguments, and returns its exit status.
func runStatic() int {
	dir, err := os.MkdirTemp("", "eggrun-egress-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "egress.test")
	build := exec.Command("go", "test", "-c", "-tags", "netgo,osusergo", "-ldflags", "-linkmode external -extldflags -static", "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v: %s", err, out))
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(binary, 0o755)); err != nil {
		panic(err)
	}
	cmd := exec.Command(binary, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func wantEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// world is a sidecar and what it is between.
type world struct {
	proxy   string // address of the listener
	sidecar linux.Process
	init    *exec.Cmd
	audit   string // path
	origin  string // address of an echo server
	done    bool
}

// id is that of the container.
func (w *world) id() string {
	id, _, _ := strings.Cut(filepath.Base(w.audit), "@")
	return id
}

// newWorld starts a sidecar that allows the origin and nothing else.
func newWorld(t *testing.T, rootless bool) *world {
	t.Helper()
	w := &world{origin: echoServer(t), init: exec.Command("sleep", "60")}
	if err := w.init.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.init.Process.Kill()
		_ = w.init.Wait()
	})
	pidfd, err := linux.PidfdOpen(w.init.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer pidfd.Close()
	listener, file := listen(t)
	w.proxy = listener.Addr().String()
	defer file.Close()
	id := fmt.Sprintf("eggrun-test-%d-%s", os.Getpid(), filepath.Base(t.TempDir()))
	w.audit = testAudit(t, id, rootless)
	launched, err := Launch(filepath.Join(testRoot, id))
	if err != nil {
		t.Fatal(err)
	}
	w.sidecar, err = serve(t, launched, id, rootless, []string{w.origin, "good.example"}, file, pidfd)
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	t.Cleanup(func() {
		if !w.done {
			w.kill(t)
		}
	})
	return w
}

// serve tells a sidecar to serve one proxy.
func serve(t *testing.T, l *Launched, id string, rootless bool, domains []string, listener, init *os.File) (linux.Process, error) {
	t.Helper()
	path, err := AuditPath(id, Where{RuntimeRoot: testRoot, Rootless: rootless})
	if err != nil {
		return linux.Process{}, errors.Join(err, l.End())
	}
	audit, err := openAudit(path)
	if err != nil {
		return linux.Process{}, errors.Join(err, l.End())
	}
	defer audit.Close()
	e, err := lockEntry(filepath.Join(t.TempDir(), "entry"))
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	control, err := e.listen()
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	ledger, err := e.openLedger()
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	filter, err := sidecarFilter("")
	if err != nil {
		t.Fatal(err)
	}
	p, err := policyOf(domains...)
	if err != nil {
		t.Fatal(err)
	}
	return l.serve(&serveRequest{Container: id, Policy: p, Filter: filter}, &handed{audit, control, init, ledger}, []inside.Socket{{Name: inside.Proxy4, File: listener}})
}

func policyOf(domains ...string) (*policy.Policy, error) {
	return policy.Resolve(policy.Request{Annotations: map[string]string{policy.KeyDomains: strings.Join(domains, " ")}})
}

// testRoot is where the containers' state would be.
const testRoot = "/run/state"

// testAudit returns where the audit of id will be, and removes it, and what
// directories this test brings about, afterwards.
func testAudit(t *testing.T, id string, rootless bool) string {
	t.Helper()
	path, err := AuditPath(id, Where{RuntimeRoot: testRoot, Rootless: rootless})
	if err != nil {
		t.Fatal(err)
	}
	if rootless {
		return path
	}
	dir := filepath.Dir(path)
	_, err = os.Stat(dir)
	isNew := errors.Is(err, os.ErrNotExist)
	t.Cleanup(func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
		if isNew {
			_ = os.Remove(dir) // somebody else's log may be there by now
		}
	})
	return path
}

func listen(t *testing.T) (*net.TCPListener, *os.File) {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	return l, f
}

// echoServer returns the address of a server that sends back what it gets.
func echoServer(t *testing.T) string {
	t.Helper()
	l, f := listen(t)
	f.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}

// connect asks the sidecar for a tunnel and returns its answer's status line.
func (w *world) connect(t *testing.T, target string) (conn net.Conn, in *bufio.Reader, status string) {
	t.Helper()
	conn, err := net.Dial("tcp4", w.proxy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target); err != nil {
		t.Fatal(err)
	}
	in = bufio.NewReader(conn)
	response, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatal(err)
	}
	return conn, in, response.Proto + " " + response.Status
}

// tunnel returns a tunnel to the origin that is known to work.
func (w *world) tunnel(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, in, status := w.connect(t, w.origin)
	wantEqual(t, "status", status, "HTTP/1.1 200 Connection established")
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	line, err := in.ReadString('\n')
	wantEqual(t, "echo, error", fmt.Sprint(line, err), "hello\n<nil>")
	return conn, in
}

// wantRefused needs connections to the proxy to fail at once, by the kernel.
func (w *world) wantRefused(t *testing.T) {
	t.Helper()
	conn, err := net.Dial("tcp4", w.proxy)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("connect: %v, want refused", err)
	}
}

// reap waits for the sidecar's end and returns its status.
func (w *world) reap(t *testing.T) unix.WaitStatus {
	t.Helper()
	var status unix.WaitStatus
	eventually(t, "the sidecar's end", func() bool {
		pid, err := unix.Wait4(w.sidecar.PID, &status, unix.WNOHANG, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
		return pid == w.sidecar.PID
	})
	w.done = true
	return status
}

func (w *world) kill(t *testing.T) {
	t.Helper()
	if err := unix.Kill(w.sidecar.PID, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	w.reap(t)
}

// procFile returns the text of a file in /proc/PID.
func procFile(t *testing.T, pid any, name string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%v/%s", pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func statusField(t *testing.T, pid int, name string) string {
	t.Helper()
	for line := range strings.Lines(procFile(t, pid, "status")) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("no %s in the status", name)
	return ""
}
