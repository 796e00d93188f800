package linux

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSendFile sends to a socket whose path no address can hold.
func TestSendFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "socket")
	opened, err := os.OpenFile(dir, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/socket", opened.Fd())})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	defer listener.Close()
	file, err := os.CreateTemp(t.TempDir(), "sent")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, payload := range []string{"x", "/dev/pts/7", strings.Repeat("p", 4095)} {
		if err := SendFile(path, payload, file); err != nil {
			t.Fatal(err)
		}
		conn, err := listener.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		got, control := make([]byte, 8192), make([]byte, unix.CmsgSpace(4*10))
		n, controlLength, _, _, err := conn.ReadMsgUnix(got, control)
		if err != nil {
			t.Fatal(err)
		}
		wantEqual(t, "payload", string(got[:n]), payload)
		messages, err := unix.ParseSocketControlMessage(control[:controlLength])
		if err != nil || len(messages) != 1 {
			t.Fatalf("%d control messages, error %v", len(messages), err)
		}
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil || len(fds) != 1 {
			t.Fatalf("descriptors %v, error %v", fds, err)
		}
		received := os.NewFile(uintptr(fds[0]), "received")
		same, err := SameFile(received, file)
		wantEqual(t, "the same file, error", fmt.Sprint(same, " ", err), "true <nil>")
		received.Close()
		// One message, then nothing.
		n, err = conn.Read(got)
		wantEqual(t, "rest, error", fmt.Sprint(n, " ", err), "0 EOF")
		conn.Close()
	}
	listener.Close()
	wantPathError(t, SendFile(path, "x", file), "connect", path, unix.ECONNREFUSED)
	missing := filepath.Join(dir, "missing")
	wantPathError(t, SendFile(missing, "x", file), "connect", missing, unix.ENOENT)
	wantPathError(t, SendFile("/none/such", "x", file), "open", "/none", unix.ENOENT)
}
