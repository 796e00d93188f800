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
	s, err := w.setup()
	if err != nil {
		return exitSetup, err
	}
	if err := s.run(); err != nil {
		if strings.HasPrefix(err.Error(), "exec ") {
			return commandStatus(err), err
		}
		return exitSetup, err
	}
	return s.runNested()
}

// setup moves this thread, and no other, to a mount namespace of its own, and
// returns what the steps work on.
func (w *wrapperArgs) setup() (*setup, error) {
	if err := refuseDirectories(); err != nil {
		return nil, err
	}
	// Not os.Getwd: PWD may be "/proc/self/cwd", by which the working directory
	// would stay what it is, also where a denied path hides it.
	cwd, err := getcwd()
	if err != nil {
		return nil, err
	}
	if w.home.owner, err = w.outerIDs(); err != nil {
		return nil, err
	}
	if err := dropGroups(); err != nil {
		return nil, err
	}
	// Whatever mount namespace the caller made or did not make: what is
	// mounted here is for the command alone.
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return nil, os.NewSyscallError("unshare mount namespace", err)
	}
	// Also in the other direction: another name of a denied path, mounted
	// outside later, would not be covered here.
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return nil, &os.PathError{Op: "make private", Path: "/", Err: err}
	}
	return &setup{plan: w.plan(cwd, os.Environ()), home: w.home}, nil
}

// refuseDirectories refuses a directory as a standard stream: everything below
// it could be opened through it, as it was before something covered it.
func refuseDirectories() error {
	for fd := range 3 {
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil {
			return os.NewSyscallError("stat standard stream", err)
		}
		if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
			return fmt.Errorf("standard stream %d is a directory, which leads around the denied paths; redirect it", fd)
		}
	}
	return nil
}

func getcwd() (string, error) {
	var buf [unix.PathMax]byte
	n, err := unix.Getcwd(buf[:])
	if err != nil {
		return "", os.NewSyscallError("getcwd", err)
	}
	if n < 2 || buf[0] != '/' {
		return "", errors.New("the working directory cannot be reached from \"/\"; change to another one")
	}
	return string(buf[:n-1]), nil
}

// outerIDs returns the ids out here that are mapped to the command's: the same
// where they exist, and root of this user namespace, which is the caller, where
// that is the only id there is.
func (w *wrapperArgs) outerIDs() (o owner, err error) {
	for _, id := range []struct {
		file  string
		inner uint32
		outer *uint32
	}{{"uid_map", w.uid, &o.uid}, {"gid_map", w.gid, &o.gid}} {
		mapped, err := isMapped(id.file, id.inner)
		if err != nil {
			return owner{}, err
		}
		if mapped {
			*id.outer = id.inner
		}
	}
	return o, nil
}

// dropGroups drops the caller's supplementary groups, which are not the
// command's. Where setgroups is denied the caller had no right to drop them,
// and the command keeps them; see user_namespaces(7).
func dropGroups() error {
	err := linux.SetGroups(nil)
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	if policy, readErr := os.ReadFile("/proc/self/setgroups"); readErr != nil || string(policy) != "deny\n" {
		return err
	}
	return nil
}

func commandStatus(err error) int {
	if errors.Is(err, errNotInPath) || errors.Is(err, unix.ENOENT) {
		return exitNotFound
	}
	return exitNotExec
}

// runNested starts the command, forwards signals to it, and returns its status.
func (s *setup) runNested() (int, error) {
	// From before the start on, so that none is lost. What the caller ignores,
	// as nohup(1) does, stays ignored in the command too.
	signals := make(chan os.Signal, 64)
	notify(signals)
	terminal := hasTerminal()
	child, err := s.spawnNested(terminal)
	if err != nil {
		return exitSetup, err
	}
	// Before it says so, pid 1 would drop what it is sent.
	message := make([]byte, len(reaperReady))
	n, _ := s.held.Read(message)
	isReady := string(message[:n]) == reaperReady
	if isReady {
		n = 0
		go forward(signals, terminal, func(sig unix.Signal) { _ = linux.PidfdSignal(child.Pidfd, sig) })
	}
	status, err := waitChild(child.PID)
	if err != nil {
		return exitSetup, err
	}
	const maxMessage = 64 << 10
	rest, _ := io.ReadAll(io.LimitReader(s.held, maxMessage))
	if message := append(message[:n], rest...); len(message) > 0 {
		return status, errors.New(string(message))
	}
	if !isReady {
		return exitSetup, fmt.Errorf("pid 1 of the sandbox ended with status %d before it started the command", status)
	}
	return status, nil
}

// spawnNested starts the reaper, as pid 1 of a pid namespace, in a user
// namespace in which the command is UID and GID and has no capability over
// anything that was mounted outside.
func (s *setup) spawnNested(terminal bool) (*linux.Child, error) {
	exe, err := os.OpenFile("/proc/self/exe", unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer exe.Close()
	// By its end of this pair the reaper knows when the wrapper is gone, and
	// tells what went wrong.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	s.held = os.NewFile(uintptr(pair[0]), "reaper")
	theirs := os.NewFile(uintptr(pair[1]), "wrapper")
	defer theirs.Close()
	name := reapOwnGroup
	if terminal {
		name = reapSameGroup
	}
	argv := append([]string{"eggrun", "init", name, strconv.Itoa(pair[1]), "--", s.command}, s.plan.Process.Args...)
	return linux.SpawnIn(linux.SpawnRequest{
		Exe:    exe,
		Argv:   argv,
		Env:    s.plan.Process.Env,
		New:    unix.CLONE_NEWUSER | unix.CLONE_NEWPID,
		MapIDs: s.mapNested,
		UID:    s.plan.Process.User.UID,
		GID:    s.plan.Process.User.GID,
		Keep:   []*os.File{theirs},
	})
}

// mapNested maps the command's ids.
func (s *setup) mapNested(pid int) error {
	user, outer := s.plan.Process.User, s.home.owner
	proc := "/proc/" + strconv.Itoa(pid) + "/"
	for _, file := range []struct{ name, content string }{
		{"setgroups", "deny"},
		{"gid_map", fmt.Sprintf("%d %d 1\n", user.GID, outer.gid)},
		{"uid_map", fmt.Sprintf("%d %d 1\n", user.UID, outer.uid)},
	} {
		if err := os.WriteFile(proc+file.name, []byte(file.content), 0); err != nil {
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

// notify asks for the signals that are forwarded.
func notify(signals chan<- os.Signal) {
	for _, sig := range forwarded {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
}

// forward passes signals on. With a terminal, what that sends to its foreground
// process group has reached the command already: twice would be once too often.
func forward(signals <-chan os.Signal, terminal bool, send func(unix.Signal)) {
	for sig := range signals {
		fromTerminal := sig == unix.SIGINT || sig == unix.SIGQUIT || sig == unix.SIGWINCH
		if terminal && fromTerminal && inForeground() {
			continue
		}
		send(sig.(unix.Signal))
	}
}

// hasTerminal tells whether standard input is the controlling terminal, so that
// the command must be in the process group that has the terminal, or gets it.
// Otherwise it gets a group of its own: with kill(0, SIGKILL) it reaches every
// process in its group, also those outside of its pid namespace.
func hasTerminal() bool {
	_, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	return err == nil
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
