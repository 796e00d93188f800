package linux

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestIsUnnamedPair(t *testing.T) {
	t.Parallel()
	must := func(fd int, err error) int {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pair := func(kind int) (int, int) {
		fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
		return must(fds[0], err), must(fds[1], err)
	}
	stream, other := pair(unix.SOCK_STREAM)
	packets, _ := pair(unix.SOCK_SEQPACKET)
	datagrams, _ := pair(unix.SOCK_DGRAM)
	bound, _ := pair(unix.SOCK_STREAM)
	check(unix.Bind(bound, &unix.SockaddrUnix{Name: ""})) // a name of the kernel's choice
	alone := must(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	listening := must(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	service := &unix.SockaddrUnix{Name: filepath.Join(t.TempDir(), "s")}
	check(unix.Bind(listening, service))
	check(unix.Listen(listening, 1))
	client := must(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	check(unix.Connect(client, service))
	served, _, err := unix.Accept4(listening, unix.SOCK_CLOEXEC)
	must(served, err)
	for _, tt := range []struct {
		name string
		fd   int
		want bool
	}{
		{"streams", stream, true},
		{"the other end", other, true},
		{"packets", packets, true},
		{"datagrams", datagrams, false},
		{"with a name that begins with zero", bound, false},
		{"not connected", alone, false},
		{"listening", listening, false},
		{"client", client, false},
		{"accepted", served, false},
	} {
		if got, err := IsUnnamedPair(tt.fd); err != nil || got != tt.want {
			t.Errorf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
	// What its peer was does not matter any more.
	check(unix.Shutdown(other, unix.SHUT_RDWR))
	if got, err := IsUnnamedPair(stream); err != nil || !got {
		t.Errorf("shut down: %v, %v", got, err)
	}
	if _, err := IsUnnamedPair(-1); err == nil {
		t.Error("no descriptor: no error")
	}
}
