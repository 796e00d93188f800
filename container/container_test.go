package container

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"eggrun/internal/linux"
	"eggrun/internal/state"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// startProcess starts a process that stands for an init.
func startProcess(t *testing.T) (linux.Process, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p, err := linux.FindProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return p, cmd
}

// TestStatus goes through the life of a container, as its state dir shows it.
func TestStatus(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, err := state.Create(root, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	init, cmd := startProcess(t)
	want := func(when string, status specs.ContainerState, pid int) {
		t.Helper()
		c, err := Open(root, "a")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		info := c.Info()
		if c.Status() != status || info.Status != status || info.PID != pid || info.ID != "a" {
			t.Errorf("%s: %+v, want %s with pid %d", when, info, status, pid)
		}
		hookState := c.hookState(status)
		if hookState.Status != status || hookState.Pid != pid {
			t.Errorf("%s: hooks get %+v", when, hookState)
		}
	}
	save := func(change func(*state.State)) {
		t.Helper()
		s, err := dir.Load()
		if err == nil {
			change(s)
			err = dir.Save(s)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want("an empty dir", specs.StateCreating, 0)
	save(func(s *state.State) { s.Bundle = "/b" })
	want("a state without a process", specs.StateCreating, 0)
	fifo, err := dir.MakeFIFO()
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	save(func(s *state.State) { s.Init = init })
	want("init makes its mounts", specs.StateCreating, init.PID)
	save(func(s *state.State) { s.Ready = true })
	want("init waits", specs.StateCreated, init.PID)
	if err := dir.ReleaseFIFO(0, false); err != nil {
		t.Fatal(err)
	}
	want("the program runs", specs.StateRunning, init.PID)
	save(func(s *state.State) { s.Init.Start-- })
	want("the pid belongs to another process", specs.StateStopped, 0)
	save(func(s *state.State) { s.Init.Start++ })
	want("the program runs still", specs.StateRunning, init.PID)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	pidfdWait(t, cmd.Process.Pid)
	want("a zombie", specs.StateStopped, 0)
	_ = cmd.Wait()
	want("the program has ended", specs.StateStopped, 0)
	save(func(s *state.State) { s.Ready = false })
	want("init died before it was ready", specs.StateStopped, 0)
}

func pidfdWait(t *testing.T, pid int) {
	t.Helper()
	pidfd, err := linux.PidfdOpen(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer pidfd.Close()
	if _, err := linux.PidfdWait(pidfd, -1); err != nil {
		t.Fatal(err)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	infos, err := List(filepath.Join(root, "none"))
	if err != nil || infos == nil || len(infos) != 0 {
		t.Errorf("no root: %v, %v, want an empty list, which is [] in JSON", infos, err)
	}
	for _, id := range []string{"b", "a"} {
		dir, err := state.Create(root, id)
		if err != nil {
			t.Fatal(err)
		}
		if err := dir.Save(&state.State{ID: id, Bundle: "/" + id, OwnerUID: 7}); err != nil {
			t.Fatal(err)
		}
		dir.Close()
	}
	if err := errors.Join(os.Mkdir(filepath.Join(root, ".cache"), 0o700), os.WriteFile(filepath.Join(root, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	infos, err = List(root)
	if err != nil || len(infos) != 2 || infos[0].ID != "a" || infos[1].Bundle != "/b" || infos[1].OwnerUID != 7 {
		t.Errorf("%v, %v", infos, err)
	}
	if err := os.WriteFile(filepath.Join(root, "b/state.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = List(root); err == nil {
		t.Error("a broken state is not mentioned")
	}
	for _, open := range []func(string, string) (*Container, error){Open, Lock} {
		if _, err := open(root, "c"); !errors.Is(err, state.ErrNotExist) {
			t.Errorf("error %v, want %v", err, state.ErrNotExist)
		}
		if _, err := open(root, "b"); err == nil {
			t.Error("opened a broken state")
		}
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	init, cmd := startProcess(t)
	for name, p := range map[string]linux.Process{
		"nobody":       {},
		"recycled pid": {PID: init.PID, Start: init.Start - 1},
	} {
		if err := signalProcess(p, unix.SIGKILL); !errors.Is(err, state.ErrNotRunning) {
			t.Errorf("%s: %v, want %v", name, err, state.ErrNotRunning)
		}
		if err := killAndWait(p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := signalProcess(init, 0); err != nil || !init.Alive() {
		t.Errorf("init: %v, alive %v", err, init.Alive())
	}
	if err := signalProcess(init, 1000); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no such signal: %v", err)
	}
	// SIGKILL works on a stopped one too, and the wait needs no reaping.
	if err := signalProcess(init, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := killAndWait(init); err != nil || init.Alive() {
		t.Errorf("%v, alive %v", err, init.Alive())
	}
	if err := errors.Join(killAndWait(init), cmd.Wait()); fmt.Sprint(err) != "signal: killed" {
		t.Errorf("%v", err)
	}
}

// TestWrongState refuses verbs before anything is done.
func TestWrongState(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, err := state.Create(root, "a")
	if err != nil {
		t.Fatal(err)
	}
	init, cmd := startProcess(t)
	save := func(s *state.State) *Container {
		t.Helper()
		if err := dir.Save(s); err != nil {
			t.Fatal(err)
		}
		c, err := Open(root, "a")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	wantText := func(err error, want string) {
		t.Helper()
		if fmt.Sprint(err) != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	running := save(&state.State{ID: "a", Ready: true, Init: init, OwnPIDNamespace: true})
	wantText(running.Start(), "container is running, want created")
	_, err = running.Delete(false)
	wantText(err, "container is running, want stopped; kill it first or use --force")
	if !init.Alive() {
		t.Fatal("it was killed")
	}
	wantText(running.Kill(unix.SIGCONT, false), "<nil>")
	if _, err := dir.MakeFIFO(); err != nil {
		t.Fatal(err)
	}
	wantText(running.Start(), "config.json has no process; nothing can be started")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	wantText(running.Start(), "container is stopped, want created")
	wantText(running.Kill(unix.SIGTERM, false), "container not running")
	wantText(running.Kill(unix.SIGTERM, true), "<nil>")
	dir.Close()
	warning, err := running.Delete(false)
	wantText(err, "<nil>")
	wantText(errors.Join(warning...), "<nil>")
	_, err = Open(root, "a")
	wantText(err, "container does not exist")
}
