// As in main: otherwise the sidecar keeps files of its cgroup open.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"eggrun/internal/linux"

	"golang.org/x/sys/unix"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// childEnv names the test that the test binary is the unprivileged child for.
const childEnv = "EGGRUN_EGRESS_TEST_CHILD"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "sidecar" {
		if err := Sidecar(); err != nil {
			os.Exit(1)
		}
		return
	}
	// What this process was started with is nobody's here.
	if err := linux.CloseOnExecFrom(3); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
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
	w.audit = auditPath(t, id, rootless)
	w.sidecar, err = StartSidecar(&SidecarOptions{
		ID: id, Domains: []string{w.origin, "good.example"}, Listener: file, Init: pidfd,
		StateDir: "/run/state/" + id, Rootless: rootless,
	})
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

// auditPath returns where the audit of id will be, and removes it, and what
// directories this test brings about, afterwards.
func auditPath(t *testing.T, id string, rootless bool) string {
	t.Helper()
	if rootless {
		return filepath.Join(os.Getenv("XDG_STATE_HOME"), "eggrun", id+".jsonl")
	}
	const dir = "/var/log/eggrun"
	_, err := os.Stat(dir)
	isNew := errors.Is(err, os.ErrNotExist)
	path := filepath.Join(dir, id+".jsonl")
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
