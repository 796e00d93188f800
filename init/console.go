package initproc

import (
	"errors"
	"fmt"
	"os"

	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"

	"golang.org/x/sys/unix"
)

// makeConsole makes a pseudoterminal, where one is wanted, in the container's own
// devpts, binds it on /dev/console, makes it the controlling terminal and standard
// streams, and sends the master to create.
//
// Master, slave and target are held by descriptor and verified: each of their
// names is in the hands of the image (CVE-2025-52565, CVE-2026-88264).
func (s *setup) makeConsole() error {
	if s.container == nil || s.plan.Process == nil {
		return nil
	}
	if !s.plan.Process.Terminal {
		return s.takeNulls()
	}
	master, err := s.openMaster()
	if err != nil {
		return fmt.Errorf("terminal: %w; mount devpts on /dev/pts", err)
	}
	defer master.Close()
	slave, err := linux.OpenPeer(master)
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	defer slave.Close()
	if size := s.plan.Process.Console; size != nil {
		window := unix.Winsize{Row: uint16(size.Height), Col: uint16(size.Width)}
		if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &window); err != nil {
			return os.NewSyscallError("set terminal size", err)
		}
	}
	if !s.isExec() { // /dev/console is the first process's
		if err := s.bindConsole(slave); err != nil {
			return fmt.Errorf("terminal: %w", err)
		}
	}
	if err := s.container.socket.Send(syncsocket.Console, nil, master); err != nil {
		return err
	}
	if err := unix.IoctlSetInt(int(slave.Fd()), unix.TIOCSCTTY, 0); err != nil {
		return os.NewSyscallError("set controlling terminal", err)
	}
	for fd := range 3 {
		if err := unix.Dup3(int(slave.Fd()), fd, 0); err != nil {
			return os.NewSyscallError("dup terminal", err)
		}
	}
	return nil
}

func (s *setup) openMaster() (*os.File, error) {
	master, err := linux.OpenInRoot(s.rootfs, "/dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NOFOLLOW, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return nil, err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(master.Fd()), &fs); err != nil || fs.Type != unix.DEVPTS_SUPER_MAGIC {
		master.Close()
		return nil, errors.New("\"/dev/pts/ptmx\" is not on a devpts")
	}
	if err := checkDevice(master, unix.S_IFCHR, 5, 2); err != nil {
		master.Close()
		return nil, err
	}
	return master, nil
}

func (s *setup) bindConsole(slave *os.File) error {
	dev, err := s.openDir("/dev")
	if err != nil {
		return err
	}
	defer dev.Close()
	// The file may be there already, as a device node; it is never followed
	// or opened for anything but its place.
	fd, err := unix.Openat(int(dev.Fd()), "console", unix.O_CREAT|unix.O_EXCL|unix.O_RDONLY|unix.O_CLOEXEC, 0o644)
	if errors.Is(err, unix.EEXIST) {
		fd, err = unix.Openat(int(dev.Fd()), "console", unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: "/dev/console", Err: err}
	}
	console := os.NewFile(uintptr(fd), "/dev/console")
	defer console.Close()
	if info, err := console.Stat(); err != nil || info.Mode()&os.ModeSymlink != 0 {
		return errors.New("\"/dev/console\" is a link")
	}
	tree, err := linux.CloneTreeAt(slave, false)
	if err != nil {
		return err
	}
	defer tree.Close()
	return linux.MoveMount(tree, console)
}
