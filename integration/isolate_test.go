package integration

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// tmpfsDir is where in the outer process's directory the inner one mounts a
// tmpfs: hundreds of root file systems take seconds there, minutes on disk.
const tmpfsDir = "tests"

// isolate gives the process, which is PID 1 of new namespaces, a /proc that
// fits, a writable copy of /etc, and empty /run, /dev/shm and /var/log: the
// places that runtimes and podman share with the rest of the machine.
func isolate(dir string) error {
	if ownPIDs() != 0 && os.Getpid() != 1 {
		return fmt.Errorf("%s is set, but this is not PID 1; unset it", envSuiteDir)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make / private: %w", err)
	}
	// Of the same PID namespace this is but another mount of it.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	own := filepath.Join(dir, tmpfsDir)
	if err := os.Mkdir(own, 0o711); err != nil {
		return err
	}
	private := []string{"/dev/shm", "/var/log", own}
	if ownPIDs() != 0 { // else systemd's sockets are needed in it
		private = append(private, "/run")
	}
	for _, path := range private {
		if err := unix.Mount("tmpfs", path, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", path, err)
		}
	}
	if err := os.Chmod("/dev/shm", 0o1777); err != nil {
		return err
	}
	if err := overlayEtc(own); err != nil {
		return err
	}
	return setLinkUp("lo")
}

func overlayEtc(dir string) error {
	upper, work := filepath.Join(dir, "etc"), filepath.Join(dir, "etc.work")
	for _, path := range []string{upper, work} {
		if err := os.Mkdir(path, 0o755); err != nil {
			return err
		}
	}
	data := "lowerdir=/etc,upperdir=" + upper + ",workdir=" + work
	if err := unix.Mount("overlay", "/etc", "overlay", 0, data); err != nil {
		return fmt.Errorf("mount overlay on /etc: %w", err)
	}
	// For whoever resolves outside of the containers.
	return os.WriteFile("/etc/hosts", []byte("127.0.0.1 localhost "+allowedName+" "+evilName+"\n"), 0o644)
}

// setLinkUp raises an interface of the current network namespace.
func setLinkUp(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	ifreq, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifreq); err != nil {
		return fmt.Errorf("flags of %s: %w", name, err)
	}
	ifreq.SetUint16(ifreq.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifreq); err != nil {
		return fmt.Errorf("raise %s: %w", name, err)
	}
	return nil
}
