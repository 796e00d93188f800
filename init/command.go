package initproc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"eggrun/internal/linux"

	"golang.org/x/sys/unix"
)

// makeCwd makes the working directory where the image lacks it, as long as the
// root can be written to.
func (s *setup) makeCwd() error {
	if s.container == nil || s.plan.Process == nil {
		return nil
	}
	dir, err := s.mountPoint(s.plan.Process.Cwd, true)
	if err != nil {
		return fmt.Errorf("working directory %q: %w", s.plan.Process.Cwd, err)
	}
	return dir.Close()
}

// enterCwdAsRoot is [setup.enterCwd] for a program that runs as root, before
// capabilities are given up: without them root may not enter the directory of
// another user, which engines have it start in all the same. That all of root's
// rights do not suffice, as on a FUSE mount, is no failure yet.
func (s *setup) enterCwdAsRoot() error {
	if s.plan.Process == nil || s.plan.Process.User.UID != 0 {
		return nil
	}
	if err := s.enterCwd(); !errors.Is(err, unix.EACCES) {
		return err
	}
	return nil
}

// enterCwd changes to the working directory, unless it is there. One that is
// reached through a descriptor somewhere in /proc is refused: it could be a
// directory of the host, or of this process's own (CVE-2024-21626).
func (s *setup) enterCwd() error {
	if s.plan.Process == nil || s.inCwd {
		return nil
	}
	cwd := s.plan.Process.Cwd
	dir, err := linux.OpenInRoot(s.rootfs, cwd, unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("working directory %q: not inside the container, or a loop of links", cwd)
	}
	if err != nil {
		return &os.PathError{Op: "chdir", Path: cwd, Err: errors.Unwrap(err)}
	}
	defer dir.Close()
	if err := unix.Fchdir(int(dir.Fd())); err != nil {
		return &os.PathError{Op: "chdir", Path: cwd, Err: err}
	}
	var buf [unix.PathMax]byte
	if n, err := unix.Getcwd(buf[:]); err != nil || n < 1 || buf[0] != '/' {
		return fmt.Errorf("working directory %q: not inside the container", cwd)
	}
	s.inCwd = true
	return nil
}

// findCommand looks the program up as the user, so that a missing one fails
// create and not start. The wording is what engines search for.
func (s *setup) findCommand() error {
	if s.plan.Process == nil {
		return nil
	}
	name := s.plan.Process.Args[0]
	path, err := lookPath(name, s.plan.Process.Env)
	if err != nil {
		return fmt.Errorf("exec %q: %w", name, err)
	}
	s.command = path
	return nil
}

var errNotInPath = errors.New("executable file not found in $PATH")

// lookPath finds an executable the way a shell does, in the PATH of env.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, checkExecutable(name)
	}
	for _, variable := range env {
		search, isPath := strings.CutPrefix(variable, "PATH=")
		if !isPath || name == "" {
			continue
		}
		for _, dir := range filepath.SplitList(search) {
			if dir == "" {
				dir = "."
			}
			if path := dir + "/" + name; checkExecutable(path) == nil {
				return path, nil
			}
		}
		break
	}
	return "", errNotInPath
}

func checkExecutable(path string) error {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("not a regular file: %w", syscall.EACCES)
	}
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}
