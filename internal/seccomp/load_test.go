//go:build cgo

package seccomp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"eggrun/internal/need"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// onGetppid returns a filter that does action for getppid and nothing else.
func onGetppid(t *testing.T, action specs.LinuxSeccompAction, errnoRet *uint) *Filter {
	t.Helper()
	return mustCompile(t, denying(specs.LinuxSyscall{Names: []string{"getppid"}, Action: action, ErrnoRet: errnoRet}))
}

func TestActions(t *testing.T) {
	t.Parallel()
	getppid, thread := call("n", unix.SYS_GETPPID), call("t", unix.SYS_GETPPID)
	const after = "w:0:0" // prints 0 if the process is still there
	tests := []struct {
		action   specs.LinuxSeccompAction
		errnoRet *uint
		op       string
		want     []string // "+" is any pid
		killed   bool
	}{
		{specs.ActAllow, nil, getppid, []string{"+", "0"}, false},
		{specs.ActLog, nil, getppid, []string{"+", "0"}, false},
		{specs.ActErrno, nil, getppid, []string{errnoLine(unix.EPERM), "0"}, false},
		{specs.ActErrno, ptr(uint(testErrno)), getppid, []string{errnoLine(testErrno), "0"}, false},
		{specs.ActErrno, ptr(uint(0)), getppid, []string{"0", "0"}, false},
		{specs.ActTrap, nil, getppid, []string{fmt.Sprintf("trap %d 0", unix.SYS_GETPPID), "0"}, false},
		{specs.ActTrace, ptr(uint(7)), getppid, []string{errnoLine(unix.ENOSYS), "0"}, false}, // nobody traces
		{specs.ActKill, nil, getppid, nil, true},
		{specs.ActKillThread, nil, getppid, nil, true},
		{specs.ActKillThread, nil, thread, []string{"killed", "0"}, false},
		{specs.ActKillProcess, nil, getppid, nil, true},
		{specs.ActKillProcess, nil, thread, nil, true},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %s", tt.action, tt.op), func(t *testing.T) {
			t.Parallel()
			out := run(t, []*Filter{onGetppid(t, tt.action, tt.errnoRet)}, probePath(t), "h", tt.op, after)
			if killed := out.status.Signaled() && out.status.Signal() == syscall.SIGSYS; killed != tt.killed {
				t.Fatalf("killed by SIGSYS: %v, want %v (%+v)", killed, tt.killed, out)
			}
			got := out.lines[1:]
			for i, want := range tt.want {
				if i >= len(got) || want != got[i] && (want != "+" || strings.HasPrefix(got[i], "-")) {
					t.Fatalf("printed %q, want %q", got, tt.want)
				}
			}
		})
	}
}

// TestTraceAction follows a process and expects the rule's errno as the message.
func TestTraceAction(t *testing.T) {
	t.Parallel()
	const message = 0x1234
	cmd := command(t, "exec", plan{
		Filters: []*Filter{onGetppid(t, specs.ActTrace, ptr(uint(message)))},
		Argv:    []string{probePath(t), "r", call("n", unix.SYS_GETPPID)},
	})
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer stdin.Close()
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("printed %q", lines.Text())
	}

	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	pid := cmd.Process.Pid
	need.That(t, "ptrace", func() error { return unix.PtraceSeize(pid) })
	var status unix.WaitStatus
	if err := errors.Join(unix.PtraceInterrupt(pid), wait(pid, &status),
		unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESECCOMP|unix.PTRACE_O_EXITKILL), unix.PtraceCont(pid, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(stdin, "x"); err != nil {
		t.Fatal(err)
	}
	if err := wait(pid, &status); err != nil {
		t.Fatal(err)
	}
	if status.TrapCause() != unix.PTRACE_EVENT_SECCOMP {
		t.Fatalf("stopped with %#x, want PTRACE_EVENT_SECCOMP", status)
	}
	if got, err := unix.PtraceGetEventMsg(pid); err != nil || got != message {
		t.Errorf("message %#x, %v, want %#x", got, err, message)
	}
	if err := unix.PtraceDetach(pid); err != nil {
		t.Fatal(err)
	}
}

func wait(pid int, status *unix.WaitStatus) error {
	_, err := unix.Wait4(pid, status, unix.WALL, nil)
	return err
}

func TestLoadPrivilege(t *testing.T) {
	t.Parallel()
	f := []*Filter{onGetppid(t, specs.ActErrno, nil)}
	out := runPlan(t, plan{Filters: f, NewPrivs: true, NoCaps: true, Argv: []string{"/bin/true"}})
	if want := "load seccomp filter: neither no_new_privs nor CAP_SYS_ADMIN (EACCES)\n"; out.stderr != want {
		t.Errorf("without both: %q, want %q", out.stderr, want)
	}
	if out := runPlan(t, plan{Filters: f, NoCaps: true, Argv: []string{"/bin/true"}}); out.status != 0 {
		t.Errorf("with no_new_privs: %+v", out)
	}
	need.Root(t)
	if out := runPlan(t, plan{Filters: f, NewPrivs: true, Argv: []string{"/bin/true"}}); out.status != 0 {
		t.Errorf("with CAP_SYS_ADMIN: %+v", out)
	}
}

func TestLoadUnderDenyingFilter(t *testing.T) {
	t.Parallel()
	denied := mustCompile(t, denying(specs.LinuxSyscall{Names: []string{"seccomp"}, Action: specs.ActErrno}))
	out := run(t, []*Filter{denied, denied}, "/bin/true")
	if want := "load seccomp filter: seccomp(2) answers EPERM; an outer filter may forbid it\n"; out.stderr != want {
		t.Errorf("got %q, want %q", out.stderr, want)
	}
}

func TestProgErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		filter  Filter
		wantErr string
	}{
		{"empty", Filter{}, "seccomp program: 0 bytes are no whole number of instructions"},
		{"cut off", Filter{Program: make([]byte, 12)}, "seccomp program: 12 bytes are no whole number of instructions"},
		{"too long", Filter{Program: make([]byte, 4097*8)},
			"seccomp program: 4097 instructions, the kernel takes 4096; shorten the profile or list fewer architectures"},
		{"who loads decides", Filter{Program: make([]byte, 8), Flags: unix.SECCOMP_FILTER_FLAG_TSYNC}, "seccomp program: unknown flags 0x1"},
		{"killable wait for nobody", Filter{Program: make([]byte, 8), Flags: unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV},
			"seccomp program: WAIT_KILLABLE_RECV needs a listener"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if p, err := tt.filter.Prog(); err == nil || err.Error() != tt.wantErr {
				t.Errorf("Prog: %v, %v, want %q", p, err, tt.wantErr)
			}
			if err := Load(&tt.filter, false); err == nil || err.Error() != tt.wantErr {
				t.Errorf("Load: %v, want %q", err, tt.wantErr)
			}
		})
	}
	t.Run("kernel refuses", func(t *testing.T) {
		t.Parallel()
		out := run(t, []*Filter{{Program: make([]byte, 8)}}, "/bin/true")
		if want := "load seccomp filter: invalid argument (EINVAL)\n"; out.stderr != want {
			t.Errorf("got %q, want %q", out.stderr, want)
		}
	})
}

func TestProgLoadDoesNotAllocate(t *testing.T) {
	// Not parallel: AllocsPerRun counts the whole process.
	p, err := (&Filter{Program: make([]byte, 8)}).Prog()
	if err != nil {
		t.Fatal(err)
	}
	var errno unix.Errno
	if n := testing.AllocsPerRun(10, func() { errno = p.Load(false) }); n != 0 || errno == 0 {
		t.Errorf("%v allocations, errno %v, want none and a refusal", n, errno)
	}
}

// threadsReport is what the "threads" child prints.
type threadsReport struct {
	Err     string
	IsESRCH bool
	Loader  unix.Errno   // what getppid answered on the thread that loaded
	Others  []unix.Errno // on the others
}

// childThreads loads the filters on one of many threads and asks all of them.
func childThreads() int {
	p, err := readPlan()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	const n = 8
	report := threadsReport{Others: make([]unix.Errno, n)}
	loaded := make(chan struct{})
	var ready, done sync.WaitGroup
	for i := range n {
		ready.Add(1)
		done.Go(func() {
			runtime.LockOSThread()
			if i == 0 && p.OtherFilters != nil {
				if err := errors.Join(prepareThread(plan{}), loadAll(p.OtherFilters, false)); err != nil {
					panic(err)
				}
			}
			ready.Done()
			<-loaded
			report.Others[i] = getppid()
		})
	}
	ready.Wait()
	done.Go(func() {
		runtime.LockOSThread()
		err := errors.Join(prepareThread(p), loadAll(p.Filters, p.TSYNC))
		if err != nil {
			report.Err, report.IsESRCH = err.Error(), errors.Is(err, unix.ESRCH)
		}
		report.Loader = getppid()
		close(loaded)
	})
	done.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		return 1
	}
	return 0
}

func getppid() unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
	return errno
}

func threads(t *testing.T, p plan) threadsReport {
	t.Helper()
	out, err := command(t, "threads", p).Output()
	if err != nil {
		t.Fatal(err)
	}
	var report threadsReport
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	return report
}

func TestTSYNC(t *testing.T) {
	t.Parallel()
	filter := []*Filter{onGetppid(t, specs.ActErrno, ptr(uint(testErrno)))}
	filtered := func(e unix.Errno) bool { return e == testErrno }

	t.Run("all threads", func(t *testing.T) {
		t.Parallel()
		got := threads(t, plan{Filters: filter, TSYNC: true})
		if got.Err != "" || !filtered(got.Loader) || slices.Contains(got.Others, 0) {
			t.Errorf("got %+v, want every thread filtered", got)
		}
	})
	t.Run("control: one thread without it", func(t *testing.T) {
		t.Parallel()
		got := threads(t, plan{Filters: filter})
		if got.Err != "" || !filtered(got.Loader) || slices.ContainsFunc(got.Others, filtered) {
			t.Errorf("got %+v, want only the loader filtered", got)
		}
	})
	t.Run("a thread with a filter of its own", func(t *testing.T) {
		t.Parallel()
		got := threads(t, plan{Filters: filter, TSYNC: true, OtherFilters: []*Filter{onGetppid(t, specs.ActLog, nil)}})
		if !got.IsESRCH || !strings.HasSuffix(got.Err, "has a filter that the others lack") {
			t.Errorf("error %q, want the thread's id", got.Err)
		}
		if filtered(got.Loader) || slices.ContainsFunc(got.Others, filtered) {
			t.Errorf("got %+v, want no thread changed", got)
		}
	})
}

// childSpawn loads the filters and then starts processes as any Go program does,
// from whichever thread it happens to be on. It prints their state.
func childSpawn() int {
	p, err := readPlan()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	loaded := make(chan error)
	go func() {
		runtime.LockOSThread()
		loaded <- errors.Join(prepareThread(p), loadAll(p.Filters, p.TSYNC))
		<-loaded // keeps the thread
	}()
	if err := <-loaded; err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for range 20 {
		out, err := exec.Command("/bin/grep", "^Seccomp:", "/proc/self/status").Output()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		os.Stdout.Write(out)
	}
	return 0
}

// TestChildrenAreFiltered is about processes that were forked from another thread
// than the one that had loaded the filter, and ran without.
func TestChildrenAreFiltered(t *testing.T) {
	t.Parallel()
	for _, tsync := range []bool{true, false} {
		t.Run(fmt.Sprintf("tsync %v", tsync), func(t *testing.T) {
			t.Parallel()
			out, err := command(t, "spawn", plan{Filters: []*Filter{onGetppid(t, specs.ActLog, nil)}, TSYNC: tsync}).Output()
			if err != nil {
				t.Fatal(err)
			}
			states := strings.Split(strings.TrimSpace(string(out)), "\n")
			unfiltered := slices.Contains(states, "Seccomp:\t0")
			if len(states) != 20 || unfiltered == tsync {
				t.Errorf("%d children, one without a filter: %v, want %v", len(states), unfiltered, !tsync)
			}
		})
	}
}
