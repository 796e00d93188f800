package container

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"eggrun/internal/syncsocket"
	"eggrun/spec"

	"golang.org/x/sys/unix"
)

// criuProgram speaks with criu for us; see package criu.
const criuProgram = "eggrun-criu"

// findCriuProgram returns the path of eggrun-criu, which is installed beside this
// program or, as nobody calls it himself, in libexec.
func findCriuProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(self)
	for _, path := range []string{filepath.Join(dir, criuProgram), filepath.Join(dir, "..", "libexec", "eggrun", criuProgram)} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: neither in %s nor in ../libexec/eggrun; install it with eggrun", criuProgram, dir)
}

// HasCriuProgram tells whether checkpoint and restore are installed.
func HasCriuProgram() bool {
	_, err := findCriuProgram()
	return err == nil
}

// CheckCriu tells why containers cannot be checkpointed here, nil if they can.
func CheckCriu() error {
	job, err := startCriu(false)
	if err != nil {
		return err
	}
	_, err = job.run(&syncsocket.Criu{Task: syncsocket.CriuCheck}, nil, nil)
	return err
}

// criuJob is a running eggrun-criu.
type criuJob struct {
	process *os.Process
	socket  *syncsocket.Socket
}

// startCriu starts eggrun-criu, which waits for its request, in a mount namespace
// of its own where it is to restore. Whatever it prepares there is gone with it.
func startCriu(ownMounts bool) (*criuJob, error) {
	path, err := findCriuProgram()
	if err != nil {
		return nil, err
	}
	host, inner, err := syncsocket.Pair()
	if err != nil {
		return nil, err
	}
	defer inner.Close()
	attr := &os.ProcAttr{
		Env: []string{"PATH=" + searchPath()},
		// The streams of what it restores are its own.
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, inner.File()},
		Sys:   &syscall.SysProcAttr{},
	}
	if ownMounts {
		attr.Sys.Cloneflags = unix.CLONE_NEWNS
	}
	process, err := os.StartProcess(path, []string{criuProgram}, attr)
	if err != nil {
		host.Close()
		return nil, fmt.Errorf("%s: %w", criuProgram, err)
	}
	return &criuJob{process: process, socket: host}, nil
}

// searchPath is where criu, and what criu calls, is looked for: engines call
// some verbs without a PATH.
func searchPath() string {
	if path := os.Getenv("PATH"); path != "" {
		return path
	}
	return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

// run sends the request, lets answer take what comes before the end, and returns
// when eggrun-criu has ended, with the pid of what was restored.
func (j *criuJob) run(request *syncsocket.Criu, files []*os.File, answer func(*syncsocket.Message) error) (int, error) {
	pid, err := j.converse(request, files, answer)
	if endErr := j.end(); err == nil {
		err = endErr
	}
	return pid, err
}

// end ends eggrun-criu at the next word that it has for us, if it has not ended.
func (j *criuJob) end() error {
	j.socket.Close()
	ended, err := j.process.Wait()
	if err == nil && !ended.Success() {
		err = errors.New(ended.String())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", criuProgram, err)
	}
	return nil
}

func (j *criuJob) converse(request *syncsocket.Criu, files []*os.File, answer func(*syncsocket.Message) error) (int, error) {
	if err := j.socket.Send(syncsocket.Request, request, files...); err != nil {
		return 0, err
	}
	for {
		message, err := j.socket.Receive()
		if errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("%s: ended without a word", criuProgram)
		}
		if err != nil {
			return 0, err
		}
		switch message.Kind {
		case syncsocket.Failed:
			return 0, message.Failure()
		case syncsocket.Ready:
			var status syncsocket.CriuStatus
			err := message.Decode(syncsocket.Ready, &status)
			return status.PID, err
		}
		if answer == nil {
			return 0, unexpected(message)
		}
		if err := answer(message); err != nil {
			return 0, err
		}
		if err := j.socket.Send(syncsocket.Proceed, nil); err != nil {
			return 0, err
		}
	}
}

// setDirs gives a request its directories and makes those that are missing.
func setDirs(request *syncsocket.Criu, options *CriuOptions) (err error) {
	if options.ParentPath != "" {
		if err := checkParent(options.ImagePath, options.ParentPath); err != nil {
			return err
		}
	}
	if request.Images, err = makeDir(options.ImagePath); err != nil {
		return fmt.Errorf("option --image-path: %w", err)
	}
	if options.WorkPath == "" {
		return nil
	}
	if request.Work, err = makeDir(options.WorkPath); err != nil {
		return fmt.Errorf("option --work-path: %w", err)
	}
	return nil
}

func makeDir(path string) (string, error) {
	// A process restored in a user namespace looks there for files that may be
	// missing; those that are there are for root alone.
	if err := os.MkdirAll(path, 0o711); err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// checkParent refuses what criu would find out only when it has written much.
func checkParent(images, parent string) error {
	if filepath.IsAbs(parent) {
		return fmt.Errorf("option --parent-path %q: want a path relative to the images", parent)
	}
	path := filepath.Join(images, parent)
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = &os.PathError{Op: "stat", Path: path, Err: unix.ENOTDIR}
	}
	if err != nil {
		return fmt.Errorf("option --parent-path %q: %w", parent, err)
	}
	return nil
}

// criuConfig returns the configuration file that criu is to read. The annotation
// is that of runc and crun, and so is the file that is read without it, for what
// an administrator wrote there is about containers, not about the runtime. One
// that is not there is none.
func criuConfig(annotations map[string]string) string {
	if path, ok := annotations[spec.KeyCriuConfig]; ok {
		return path
	}
	return "/etc/criu/runc.conf"
}
