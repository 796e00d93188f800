package linux

import "golang.org/x/sys/unix"

// HasSELinux tells whether labels can be set: SELinux is on, and its file
// system is mounted, and not read-only, as it is for who is to believe that
// there is none. See selinux(8) and is_selinux_enabled(3).
func HasSELinux() bool {
	var fs unix.Statfs_t
	err := unix.Statfs("/sys/fs/selinux", &fs)
	return err == nil && fs.Type == unix.SELINUX_MAGIC && fs.Flags&unix.ST_RDONLY == 0
}
