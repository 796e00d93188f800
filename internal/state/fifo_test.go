package state

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFIFO goes from created to running.
func TestFIFO(t *testing.T) {
	t.Parallel()
	d := create(t, t.TempDir(), "a")
	wantEqual(t, "fifo before", d.HasFIFO(), false)
	if err := d.ReleaseFIFO(0, false); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no fifo: %v", err)
	}
	fifo, err := d.MakeFIFO()
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	wantEqual(t, "fifo", d.HasFIFO(), true)
	info, err := os.Stat(filepath.Join(d.Path(), "exec.fifo"))
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "mode", info.Mode(), os.ModeNamedPipe|0o600)
	if _, err := d.MakeFIFO(); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second fifo: %v", err)
	}
	// Init's read waits for the byte, also while there is no writer.
	got := make(chan []byte, 1)
	go func() {
		words := make([]byte, 10)
		n, _ := unix.Read(int(fifo.Fd()), words)
		got <- words[:max(n, 0)]
	}()
	select {
	case <-got:
		t.Fatal("read before the release")
	default:
	}
	if err := d.ReleaseFIFO(7, false); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "words", string(<-got), "\a")
	wantEqual(t, "fifo after", d.HasFIFO(), false)
}

// TestFIFOUntilExec needs the release to wait until init's end is closed, as
// execve does.
func TestFIFOUntilExec(t *testing.T) {
	t.Parallel()
	d := create(t, t.TempDir(), "a")
	fifo, err := d.MakeFIFO()
	if err != nil {
		t.Fatal(err)
	}
	released := make(chan error, 1)
	go func() { released <- d.ReleaseFIFO(0, true) }()
	if n, err := unix.Read(int(fifo.Fd()), make([]byte, 10)); n != 1 || err != nil {
		t.Errorf("read %d bytes: %v", n, err)
	}
	select {
	case err := <-released:
		t.Errorf("released with init before execve: %v", err)
	default:
	}
	fifo.Close()
	select {
	case err := <-released:
		wantError(t, err, nil)
	case <-time.After(20 * time.Second):
		t.Error("waits for init after execve")
	}
}

// TestFIFOWithoutInit needs the fifo to stay when nobody holds it: the container
// is stopped, not running.
func TestFIFOWithoutInit(t *testing.T) {
	t.Parallel()
	d := create(t, t.TempDir(), "a")
	fifo, err := d.MakeFIFO()
	if err != nil {
		t.Fatal(err)
	}
	fifo.Close()
	for range 2 {
		wantError(t, d.ReleaseFIFO(0, false), ErrNotRunning)
		wantEqual(t, "fifo", d.HasFIFO(), true)
	}
	wantEqual(t, "text", ErrNotRunning, "container not running")
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "fifo after the removal", d.HasFIFO(), false)
}
