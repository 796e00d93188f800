package linux

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPidfdWait(t *testing.T) {
	child := spawn(t, SpawnRequest{})
	ended, err := PidfdWait(child.Pidfd, 0)
	wantEqual(t, "a living child, error", fmt.Sprint(ended, err), "false <nil>")
	if err := PidfdSignal(child.Pidfd, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended, err = PidfdWait(child.Pidfd, int(patience.Milliseconds()))
	wantEqual(t, "its zombie, error", fmt.Sprint(ended, err), "true <nil>")
	end(t, child)
}

// TestPidfdWaitKeepsFile waits for a process whose file nobody else holds: it
// must not be collected, and closed, meanwhile.
func TestPidfdWaitKeepsFile(t *testing.T) {
	child := spawn(t, SpawnRequest{})
	fd, err := unix.FcntlInt(child.Pidfd.Fd(), unix.F_DUPFD_CLOEXEC, 100)
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		ended bool
		err   error
	}
	results := make(chan result, 1)
	go func() {
		ended, err := PidfdWait(os.NewFile(uintptr(fd), "pidfd"), -1)
		results <- result{ended, err}
	}()
	for range 20 {
		runtime.GC()
		runtime.Gosched()
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			t.Fatalf("the pidfd was closed: %v", err)
		}
	}
	end(t, child)
	wantEqual(t, "result", <-results, result{true, nil})
}

// TestPidfdWaitBad needs a number that is not open to be no ended process.
func TestPidfdWaitBad(t *testing.T) {
	fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 500)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	unix.Close(fd)
	ended, err := PidfdWait(f, -1)
	wantEqual(t, "ended", ended, false)
	wantErrno(t, err, unix.EBADF)
	f.Close()
}

// TestPidfdWaitStranger waits for a process whose parent is another one.
func TestPidfdWaitStranger(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "sleep 60 & echo $!; wait; cat")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(line[:len(line)-1])
	if err != nil {
		t.Fatal(err)
	}
	pidfd, err := PidfdOpen(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer pidfd.Close()
	flags, err := unix.FcntlInt(pidfd.Fd(), unix.F_GETFD, 0)
	wantEqual(t, "flags, error", fmt.Sprint(flags, err), fmt.Sprint(unix.FD_CLOEXEC, nil))
	ended, err := PidfdWait(pidfd, 0)
	wantEqual(t, "alive, error", fmt.Sprint(ended, err), "false <nil>")
	if err := PidfdSignal(pidfd, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended, err = PidfdWait(pidfd, -1)
	wantEqual(t, "ended, error", fmt.Sprint(ended, err), "true <nil>")
	eventually(t, "the stranger is reaped", func() bool {
		return errors.Is(PidfdSignal(pidfd, 0), unix.ESRCH)
	})
	_, err = PidfdOpen(pid)
	wantErrno(t, err, unix.ESRCH)
	in.Close()
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestProcess(t *testing.T) {
	child := spawn(t, SpawnRequest{})
	p, err := FindProcess(child.PID)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "pid", p.PID, child.PID)
	pidfd, err := p.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer pidfd.Close()
	recycled := Process{PID: p.PID, Start: p.Start - 1}
	for _, tt := range []struct {
		name  string
		p     Process
		alive bool
	}{
		{"itself", p, true},
		{"recycled pid", recycled, false},
		{"nobody", Process{}, false},
		{"negative", Process{PID: -p.PID, Start: p.Start}, false},
		{"this process's pid", Process{PID: os.Getpid(), Start: p.Start + 1<<40}, false},
	} {
		wantEqual(t, tt.name+" alive", tt.p.Alive(), tt.alive)
		f, err := tt.p.Open()
		if err == nil {
			f.Close()
		}
		wantEqual(t, tt.name+" opens", err == nil, tt.alive)
		if !tt.alive {
			wantErrno(t, err, unix.ESRCH)
		}
	}
	if err := PidfdSignal(pidfd, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := PidfdWait(pidfd, -1); err != nil {
		t.Fatal(err)
	}
	found, err := FindChild(p.PID)
	wantEqual(t, "ended child, error", fmt.Sprint(found, err), fmt.Sprint(p, nil))
	for range 2 { // the zombie, then nothing
		wantEqual(t, "alive after its end", p.Alive(), false)
		_, err = p.Open()
		wantErrno(t, err, unix.ESRCH)
		_, err = FindProcess(p.PID)
		wantErrno(t, err, unix.ESRCH)
		end(t, child)
	}
	wantErrno(t, PidfdSignal(pidfd, unix.SIGTERM), unix.ESRCH)
}

// TestProcessFirstThread opens a process whose first thread has ended: it is to be
// killed and waited for like any other.
func TestProcessFirstThread(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"=headless")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := FindProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the first thread", func() bool {
		_, err := FindProcess(p.PID)
		return errors.Is(err, unix.ESRCH)
	})
	pidfd, err := p.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer pidfd.Close()
	ended, err := PidfdWait(pidfd, 0)
	wantEqual(t, "ended, error", fmt.Sprint(ended, err), "false <nil>")
	if err := PidfdSignal(pidfd, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended, err = PidfdWait(pidfd, int(patience.Milliseconds()))
	wantEqual(t, "ended after SIGKILL, error", fmt.Sprint(ended, err), "true <nil>")
	_, err = p.Open()
	wantErrno(t, err, unix.ESRCH)
	_ = cmd.Wait()
}

// TestFindProcessName reads past a name that looks like the fields behind it.
func TestFindProcessName(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(t.TempDir(), "a) Z 1 (b")
	if err := os.WriteFile(odd, program, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(odd, "60")
	// A fork of another test may hold the file open for writing for a moment.
	eventually(t, "the start of a copied program", func() bool {
		cmd = exec.Command(odd, "60")
		err := cmd.Start()
		if err != nil && !errors.Is(err, unix.ETXTBSY) {
			t.Fatal(err)
		}
		return err == nil
	})
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	wantEqual(t, "name", procFile(t, cmd.Process.Pid, "comm"), "a) Z 1 (b\n")
	p, err := FindProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	own, err := FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if p.Start < own.Start || !p.Alive() {
		t.Errorf("start time %d, own %d, alive %v", p.Start, own.Start, p.Alive())
	}
}
