package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// consoleSocket is the receiving end of --console-socket, as strict as
// conmon's.
type consoleSocket struct {
	path     string
	received chan *os.File
}

// listenConsole accepts one connection at a path in the folder, which may be
// longer than sun_path.
func (l *lab) listenConsole(folder string) *consoleSocket {
	l.t.Helper()
	dir := makeDir(l.t, filepath.Join(l.dir, folder))
	handle, err := os.Open(dir)
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = handle.Close() }()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/s", handle.Fd())})
	if err != nil {
		l.t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	l.t.Cleanup(func() { _ = listener.Close() })
	s := &consoleSocket{path: filepath.Join(dir, "s"), received: make(chan *os.File, 1)}
	go func() {
		defer close(s.received)
		conn, err := listener.AcceptUnix()
		if err != nil {
			return // the test is over
		}
		defer func() { _ = conn.Close() }()
		master, err := receiveConsole(conn)
		if err != nil {
			l.t.Errorf("console socket: %v", err)
			return
		}
		s.received <- master
	}()
	return s
}

// receiveConsole wants one message of 1 to 4095 bytes with one descriptor,
// and then the end.
func receiveConsole(conn *net.UnixConn) (*os.File, error) {
	payload, control := make([]byte, 8192), make([]byte, 1024)
	n, controlLen, _, _, err := conn.ReadMsgUnix(payload, control)
	if err != nil {
		return nil, err
	}
	if n < 1 || n > 4095 {
		return nil, fmt.Errorf("%d bytes, want 1 to 4095", n)
	}
	messages, err := unix.ParseSocketControlMessage(control[:controlLen])
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 || controlLen != unix.CmsgSpace(4) { // conmon checks the length
		return nil, fmt.Errorf("%d control messages of %d bytes, want one of %d", len(messages), controlLen, unix.CmsgSpace(4))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	if len(fds) != 1 {
		return nil, fmt.Errorf("descriptors %v, want one", fds)
	}
	if n, err := conn.Read(payload); n != 0 || !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%d more bytes (%w), want the end", n, err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil { // for deadlines
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "pty"), nil
}

// setWinsize does without Fd, which would end the deadlines.
func setWinsize(t *testing.T, master *os.File, rows, columns uint16) {
	t.Helper()
	raw, err := master.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			if err := unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
				t.Error(err)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (l *lab) master(s *consoleSocket) *os.File {
	l.t.Helper()
	select {
	case master := <-s.received:
		if master == nil {
			l.t.Fatal("no terminal came over the console socket")
		}
		l.t.Cleanup(func() { _ = master.Close() })
		return master
	case <-time.After(patience):
		l.t.Fatalf("nothing on the console socket within %v", patience)
		return nil
	}
}

// readUntil reads the terminal until text has come; a terminal whose other
// end has closed gives EIO.
func readUntil(t *testing.T, master *os.File, text string) string {
	t.Helper()
	var got strings.Builder
	buffer := make([]byte, 4096)
	for !strings.Contains(got.String(), text) {
		if err := master.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		n, err := master.Read(buffer)
		got.Write(buffer[:n])
		if err != nil {
			t.Fatalf("terminal: %v; %q came, want %q", err, got.String(), text)
		}
	}
	return got.String()
}

func terminal(spec *specs.Spec) {
	spec.Process.Terminal = true
	spec.Process.ConsoleSize = &specs.Box{Height: 33, Width: 77}
}

func TestConsoleSocket(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		s := l.listenConsole("console")
		script := `tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo three; stat -c '%F' /dev/console; ls -l /proc/self/fd/0 | sed 's/.*-> //'
echo "session $(cut -d' ' -f6 /proc/1/stat) tty $(cut -d' ' -f7 /proc/1/stat)"; echo typed >/dev/tty; read line; echo "read $line"; exit 7`
		c := l.createWith(invocation{args: []string{"--console-socket", s.path}}, sh(script), terminal)
		master := l.master(s)
		c.start()
		if _, err := master.WriteString("hello\n"); err != nil {
			t.Fatal(err)
		}
		got := readUntil(t, master, "read hello")
		for _, want := range []string{"/dev/pts/0", "33 77", "three", "character special file", "session 1", "typed"} {
			contains(t, "terminal", got, want)
		}
		if strings.Contains(got, "tty 0\r") {
			t.Error("init has no controlling terminal")
		}
		equal(t, "exit status", c.wait(), 7)
		equal(t, "stdout", c.stdout(), "")
		c.delete()
	})
}

// TestConsoleIsTheUsers: the terminal belongs to the process's user, and
// window changes arrive.
func TestConsoleIsTheUsers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		s := l.listenConsole("console")
		c := l.createWith(invocation{args: []string{"--console-socket=" + s.path}}, terminal, asUser(1000, 1000),
			sh("stat -c 'owner %u' $(tty); trap 'stty size' WINCH; echo ready; while :; do sleep 1000 & wait $!; done"))
		master := l.master(s)
		c.start()
		contains(t, "terminal", readUntil(t, master, "ready"), "owner 1000")
		setWinsize(t, master, 11, 22)
		readUntil(t, master, "11 22")
		l.wantSilent(l.call("delete", "--force", c.id))
	})
}

// TestConsoleLongPath has a socket where buildah makes them: below a temporary
// directory, longer than the 108 bytes of sun_path.
func TestConsoleLongPath(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		s := l.listenConsole(strings.Repeat("x", 110))
		c := l.createWith(invocation{args: []string{"--console-socket", s.path}}, terminal, sh("echo ready; exec sleep 1000"))
		master := l.master(s)
		c.start()
		readUntil(t, master, "ready")
		l.wantSilent(l.call("delete", "--force", c.id))
	})
}

// TestConsoleMistakes: a socket without a terminal, a socket that is missing.
func TestConsoleMistakes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		id := l.newID()
		b := l.bundle(id, sh("exit 0"))
		s := l.listenConsole("console")
		l.wantFail(l.call("create", "--bundle", b.dir, "--console-socket", s.path, id))
		l.wantGone(id)
		b.write(t, l.config(id, sh("exit 0"), terminal))
		l.wantFail(l.call("create", "--bundle", b.dir, "--console-socket", filepath.Join(l.dir, "nosuchsocket"), id))
		l.wantGone(id)
	})
}
