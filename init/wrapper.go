package initproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"eggrun/internal/linux"

	"golang.org/x/sys/unix"
)

// Exit statuses of the wrapper's own failures, those of env(1) and chroot(1).
const (
	exitSetup    = 125
	exitNotExec  = 126
	exitNotFound = 127
)

// forwarded are the signals that a supervisor or a terminal sends.
var forwarded = []os.Signal{
	unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT,
	unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGCONT, unix.SIGWINCH,
}

// wrapperMain is the stand-alone wrapper; it returns the exit status.
func wrapperMain(args []string) int {
	w, err := parseArgs(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "eggrun: init: %v\n", err)
		return exitSetup
	}
	// Opened before anything is hidden.
	log := io.Writer(os.Stderr)
	if w.log != "" {
		f, err := os.OpenFile(w.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
		if err != nil {
			fmt.Fprintf(os.Stderr, "eggrun: init: %v\n", err)
			return exitSetup
		}
		defer f.Close()
		log = f
	}
	status, err := w.supervise()
	if err != nil {
		fmt.Fprintf(log, "eggrun: init: %v\n", err)
	}
	return status
}

// supervise sets the sandbox up, starts the command in it and waits.
func (w *wrapperArgs) supervise() (int, error) {
	if err := linux.CloseOnExecFrom(3); err != nil {
		return exitSetup, err
	}
	linux.RestoreNOFILE()
	cwd, err := os.Getwd()
	if err != nil {
		return exitSetup, err
	}
	// Whatever mount namespace the caller made or did not make: what is
	// mounted here is for the command alone. Only this thread moves.
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return exitSetup, os.NewSyscallError("unshare mount namespace", err)
	}
	s := &setup{plan: w.plan(cwd, os.Environ()), home: w.home}
	if err := s.run(); err != nil {
		if strings.HasPrefix(err.Error(), "exec ") {
			return commandStatus(err), err
		}
		return exitSetup, err
	}
	// From before the start on, so that none is lost.
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, forwarded...)
	child, err := s.spawnNested()
	if err != nil {
		return exitSetup, err
	}
	go forward(signals, func(sig unix.Signal) { _ = linux.PidfdSignal(child.Pidfd, sig) })
	return waitChild(child.PID)
}

func commandStatus(err error) int {
	if errors.Is(err, errNotInPath) || errors.Is(err, unix.ENOENT) {
		return exitNotFound
	}
	return exitNotExec
}

// spawnNested starts the reaper, as pid 1 of a pid namespace, in a user
// namespace in which the command is UID and GID and has no capability over
// anything that was mounted outside.
func (s *setup) spawnNested() (*linux.Child, error) {
	exe, err := os.OpenFile("/proc/self/exe", unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer exe.Close()
	// Its end of this pipe tells the reaper when the wrapper is gone.
	alive, held, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer alive.Close()
	s.held = held
	fd := strconv.Itoa(int(alive.Fd()))
	argv := append([]string{"eggrun", "init", "--reap", fd, "--", s.command}, s.plan.Process.Args...)
	return linux.SpawnIn(linux.SpawnRequest{
		Exe:    exe,
		Argv:   argv,
		Env:    s.plan.Process.Env,
		New:    unix.CLONE_NEWUSER | unix.CLONE_NEWPID,
		MapIDs: s.mapNested,
		UID:    s.plan.Process.User.UID,
		GID:    s.plan.Process.User.GID,
		Keep:   []*os.File{alive},
	})
}

// mapNested maps the command's ids to the same ids out here where they exist,
// and to root of this user namespace where that is the only id there is.
func (s *setup) mapNested(pid int) error {
	user := s.plan.Process.User
	proc := "/proc/" + strconv.Itoa(pid) + "/"
	if err := os.WriteFile(proc+"setgroups", []byte("deny"), 0); err != nil {
		return err
	}
	for _, id := range []struct {
		file string
		id   uint32
	}{{"gid_map", user.GID}, {"uid_map", user.UID}} {
		outer := uint32(0)
		if mapped, err := isMapped(id.file, id.id); err != nil {
			return err
		} else if mapped {
			outer = id.id
		}
		line := fmt.Sprintf("%d %d 1\n", id.id, outer)
		if err := os.WriteFile(proc+id.file, []byte(line), 0); err != nil {
			return err
		}
	}
	return nil
}

// isMapped tells whether id exists in this user namespace; see
// user_namespaces(7) for the format.
func isMapped(file string, id uint32) (bool, error) {
	data, err := os.ReadFile("/proc/self/" + file)
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(data)) {
		var inside, outside, count uint64
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
			return false, fmt.Errorf("parse /proc/self/%s: %w", file, err)
		}
		if uint64(id) >= inside && uint64(id)-inside < count {
			return true, nil
		}
	}
	return false, nil
}

// forward passes signals on. Those that a terminal sends to its foreground
// process group have reached the command already: twice would be once too
// often.
func forward(signals <-chan os.Signal, send func(unix.Signal)) {
	for sig := range signals {
		fromTerminal := sig == unix.SIGINT || sig == unix.SIGQUIT || sig == unix.SIGWINCH
		if fromTerminal && inForeground() {
			continue
		}
		send(sig.(unix.Signal))
	}
}

func inForeground() bool {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// waitChild waits for one child and returns its status as a shell does.
func waitChild(pid int) (int, error) {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(pid, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return exitSetup, os.NewSyscallError("wait", err)
		}
		return shellStatus(status), nil
	}
}

func shellStatus(status unix.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
