package linux

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// SealedSelf returns this program, open for execution, in a form that nobody
// who sees it in /proc/PID/exe can write to the host's file through: a read-only
// overlay that has no upper layer, or a sealed memfd where no overlay can be
// made. emptyDir is an existing directory, the overlay's obligatory second
// layer.
//
// A container that opens /proc/PID/exe of a process that enters it and waits
// for that to end could otherwise rewrite the runtime (CVE-2019-5736).
func SealedSelf(emptyDir string) (*os.File, error) {
	if isSealed() {
		return os.OpenFile("/proc/self/exe", unix.O_PATH, 0)
	}
	if exe, err := overlaySelf(emptyDir); err == nil {
		return exe, nil
	}
	return memfdSelf(0o555)
}

// UnreadableSelf is [SealedSelf] for a process that enters a user namespace: a
// memfd that everybody may execute and nobody in the namespace may read. Its
// process cannot be traced from inside from its first instruction on, for the
// kernel asks for CAP_SYS_PTRACE where the file's owner is known, which is
// outside; see ptrace(2), "Ptrace access mode checking", and would_dump in
// fs/exec.c. It costs a copy of the program.
func UnreadableSelf() (*os.File, error) { return memfdSelf(0o111) }

// overlaySelf costs about as much as a mount, where a copy costs reading and
// writing the whole program, charged to the caller's memory cgroup.
func overlaySelf(emptyDir string) (*os.File, error) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	dir, name := filepath.Split(self)
	escape := strings.NewReplacer(`\`, `\\`, `:`, `\:`)
	// The program's own layer comes first: a file of the same name in the
	// other must not hide it.
	layers := "lowerdir=" + escape.Replace(dir) + ":" + escape.Replace(emptyDir)
	attr := uint64(unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
	overlay, err := NewMount("overlay", "", []string{layers}, attr)
	if err != nil {
		return nil, err
	}
	defer overlay.Close()
	fd, err := unix.Openat(int(overlay.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: self, Err: err}
	}
	return os.NewFile(uintptr(fd), self), nil
}

func memfdSelf(mode os.FileMode) (*os.File, error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer self.Close()
	// MFD_EXEC is wanted since Linux 6.3 where vm.memfd_noexec is set, and
	// unknown before.
	fd, err := unix.MemfdCreate("eggrun", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if err == unix.EINVAL { //nolint:errorlint // a bare errno
		fd, err = unix.MemfdCreate("eggrun", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	copied := os.NewFile(uintptr(fd), "memfd:eggrun")
	if _, err := io.Copy(copied, self); err != nil {
		copied.Close()
		return nil, fmt.Errorf("copy own program: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if err := copied.Chmod(mode); err != nil {
		copied.Close()
		return nil, err
	}
	if _, err := unix.FcntlInt(copied.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		copied.Close()
		return nil, os.NewSyscallError("seal memfd", err)
	}
	// A file that is open for writing cannot be executed (ETXTBSY).
	defer copied.Close()
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", copied.Fd()), unix.O_PATH, 0)
}
