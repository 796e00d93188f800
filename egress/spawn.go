package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"eggrun/internal/linux"

	"golang.org/x/sys/unix"
)

// SidecarOptions says what a sidecar serves.
type SidecarOptions struct {
	// ID is the container's, for the audit.
	ID string
	// Domains is the allowlist as written.
	Domains []string
	// Listener was opened inside the container's network namespace. The caller
	// closes its copy.
	Listener *os.File
	// Init is a pidfd: the sidecar ends with that process.
	Init *os.File
	// StateDir is the container's; it is shown in the list of processes.
	StateDir string
	// Rootless chooses where the audit is kept.
	Rootless bool
}

// The sidecar's descriptors beside the standard streams.
const (
	listenerFD = 3 + iota
	initFD
	auditFD
	controlFD
)

// sidecarConfig is what the sidecar reads from its control socket.
type sidecarConfig struct {
	ID      string   `json:"id"`
	Domains []string `json:"domains"`
}

// StartSidecar starts the sidecar and returns when it serves. It is a child of
// the calling process, in a session of its own.
func StartSidecar(o *SidecarOptions) (linux.Process, error) {
	audit, err := openAudit(o.ID, o.Rootless)
	if err != nil {
		return linux.Process{}, err
	}
	defer audit.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return linux.Process{}, os.NewSyscallError("socketpair", err)
	}
	control, theirs := os.NewFile(uintptr(fds[0]), "sidecar control"), os.NewFile(uintptr(fds[1]), "sidecar control")
	defer control.Close()
	child, err := spawnBare([]string{"eggrun", "sidecar", o.StateDir}, o.Listener, o.Init, audit, theirs)
	theirs.Close()
	if err != nil {
		return linux.Process{}, err
	}
	process, err := linux.FindProcess(child.Pid)
	if err == nil {
		err = configure(control, &sidecarConfig{ID: o.ID, Domains: o.Domains})
	}
	if err != nil {
		return linux.Process{}, errors.Join(err, endChild(child))
	}
	return process, child.Release()
}

func endChild(child *os.Process) error {
	if err := child.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_, err := child.Wait()
	return err
}

// configure sends the policy and waits for the sidecar's word that it serves.
func configure(control *os.File, config *sidecarConfig) error {
	data, err := json.Marshal(config)
	if err != nil {
		return err
	}
	// A sidecar that hangs must not hang create.
	patience := unix.Timeval{Sec: 10}
	if err := unix.SetsockoptTimeval(int(control.Fd()), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if _, err := control.Write(data); err != nil {
		return err
	}
	if err := unix.Shutdown(int(control.Fd()), unix.SHUT_WR); err != nil {
		return os.NewSyscallError("shutdown", err)
	}
	answer, err := io.ReadAll(io.LimitReader(control, 4096))
	if err != nil {
		return err
	}
	if word := strings.TrimSpace(string(answer)); word != "serving" {
		return fmt.Errorf("sidecar ended: %s", word)
	}
	return nil
}

// spawnBare starts this program as a sidecar, without any capability and
// without a way to get one.
//
// All of that belongs to a thread and can't be taken back: it is done on one
// that starts the child and is thrown away.
func spawnBare(argv []string, listener, init, audit, control *os.File) (*os.Process, error) {
	type result struct {
		child *os.Process
		err   error
	}
	results := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		child, err := startWithoutRights(argv, listener, init, audit, control)
		results <- result{child, err}
	}()
	r := <-results
	return r.child, r.err
}

func startWithoutRights(argv []string, listener, init, audit, control *os.File) (*os.Process, error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("set no_new_privs", err)
	}
	none := linux.NewCapabilitySets(nil)
	// A caller who has no CAP_SETPCAP keeps the bounding set: with no_new_privs
	// an exec gives nothing of it.
	if err := none.DropBounding(); err != nil && !errors.Is(err, unix.EPERM) {
		return nil, err
	}
	if err := none.Apply(false); err != nil {
		return nil, err
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	return os.StartProcess("/proc/self/exe", argv, &os.ProcAttr{
		Dir: "/",
		Env: []string{},
		// Nothing of the container's: an engine reads its streams to the end.
		Files: []*os.File{null, null, null, listener, init, audit, control},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
}

// openAudit opens the audit log of a container. It is kept apart from the state
// dir, for it stays when the container is deleted.
func openAudit(id string, rootless bool) (*os.File, error) {
	dir := "/var/log/eggrun"
	if rootless {
		base := os.Getenv("XDG_STATE_HOME")
		if base == "" {
			base = filepath.Join(os.Getenv("HOME"), ".local/state")
		}
		if !filepath.IsAbs(base) {
			return nil, errors.New("audit log: neither XDG_STATE_HOME nor HOME is set")
		}
		dir = filepath.Join(base, "eggrun")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	path := filepath.Join(dir, id+".jsonl")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return f, nil
}
