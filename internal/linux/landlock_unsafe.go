package linux

import (
	"errors"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// landlockFS are all rights over files, by the version of Landlock that brought
// them; see landlock(7).
var landlockFS = []uint64{
	1: unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1,
	2: unix.LANDLOCK_ACCESS_FS_REFER,
	3: unix.LANDLOCK_ACCESS_FS_TRUNCATE,
	5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV,
}

// LandlockVersion returns the version of Landlock that the kernel has, from 1 on.
//
// ENOSYS: Linux before 5.13; EOPNOTSUPP: it is not among the LSMs that were
// chosen at boot. See landlock_create_ruleset(2).
func LandlockVersion() (int, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, os.NewSyscallError("landlock_create_ruleset", errno)
	}
	return int(version), nil
}

// RestrictToReading takes from the calling thread, and from what it executes,
// all rights over files that are not open yet, but to read those in dirs and to
// execute exe; with Linux 6.7 the right to bind TCP sockets too, and with 6.12
// that to signal other processes and to connect to their abstract sockets. A
// kernel without Landlock (before 5.13, or not among its LSMs) leaves it as it
// is.
//
// The thread needs no_new_privs. dirs and exe may be open with O_PATH.
func RestrictToReading(dirs []*os.File, exe *os.File) error {
	version, err := LandlockVersion()
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	if err != nil {
		return err
	}
	attr := landlockAttr(version)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return os.NewSyscallError("landlock_create_ruleset", errno)
	}
	ruleset := os.NewFile(fd, "landlock ruleset")
	defer ruleset.Close()
	for _, dir := range dirs {
		if err := landlockAllow(ruleset, dir, unix.LANDLOCK_ACCESS_FS_READ_FILE|unix.LANDLOCK_ACCESS_FS_READ_DIR); err != nil {
			return err
		}
	}
	// EBADFD: a memfd, which Landlock does not govern.
	err = landlockAllow(ruleset, exe, unix.LANDLOCK_ACCESS_FS_READ_FILE|unix.LANDLOCK_ACCESS_FS_EXECUTE)
	if err != nil && !errors.Is(err, unix.EBADFD) {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset.Fd(), 0, 0); errno != 0 {
		return os.NewSyscallError("landlock_restrict_self", errno)
	}
	return nil
}

// landlockAttr is everything that a version of Landlock can take away. An older
// kernel accepts the newer struct as long as what it does not know is zero.
func landlockAttr(version int) unix.LandlockRulesetAttr {
	var attr unix.LandlockRulesetAttr
	for v, rights := range landlockFS {
		if v <= version {
			attr.Handled_access_fs |= rights
		}
	}
	if version >= 4 {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP
	}
	if version >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return attr
}

func landlockAllow(ruleset, f *os.File, rights uint64) error {
	defer runtime.KeepAlive(f)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(f.Fd())}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset.Fd(), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("landlock_add_rule", errno)
	}
	return nil
}
