package initproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"eggrun/internal/linux"
	"eggrun/spec"

	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"github.com/moby/sys/user"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// becomeUser takes the ids, groups and capabilities of the program. What the
// filters still need is kept until they are loaded, see [setup.execute].
func (s *setup) becomeUser() error {
	if s.container == nil || s.plan.Process == nil {
		return nil
	}
	p := s.plan.Process
	if err := s.setHome(p); err != nil {
		return err
	}
	if err := ownStdio(p.User.UID); err != nil {
		return err
	}
	sets := linux.NewCapabilitySets(p.Capabilities)
	if err := sets.DropBounding(); err != nil {
		return err
	}
	// Without this the kernel would clear the permitted set with the last
	// uid 0; see capabilities(7), "Effect of user ID changes".
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("keep capabilities", err)
	}
	if err := s.setIDs(p.User); err != nil {
		return err
	}
	if !s.isExec() { // whose user changes once more; execve resets it
		if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 0, 0, 0, 0); err != nil {
			return os.NewSyscallError("keep capabilities", err)
		}
	}
	if p.User.Umask != nil {
		unix.Umask(int(*p.User.Umask))
	}
	if p.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return os.NewSyscallError("set no_new_privs", err)
		}
	}
	s.caps = sets
	var keep uint64
	// A filter may be loaded with no_new_privs or with CAP_SYS_ADMIN.
	if len(s.container.request.Filters) > 0 && !p.NoNewPrivileges {
		keep |= 1 << unix.CAP_SYS_ADMIN
	}
	if s.isExec() && p.Scheduler != nil {
		keep |= 1 << unix.CAP_SYS_NICE // it is set in the cgroup
	}
	return sets.Apply(keep)
}

func (s *setup) setIDs(u specs.User) error {
	if !s.plan.KeepGroups {
		if err := s.setGroups(u.AdditionalGids); err != nil {
			return err
		}
	}
	if err := linux.SetGID(u.GID); err != nil {
		return unmapped("gid", u.GID, err)
	}
	setUID := linux.SetUID
	if s.isExec() {
		// The kernel (v1) and service managers of users let nobody but root
		// move the processes of others between cgroups: the real one stays
		// until then, see joinCgroup.
		setUID = linux.SetEffectiveUID
	}
	if err := setUID(u.UID); err != nil {
		return unmapped("uid", u.UID, err)
	}
	return nil
}

func (s *setup) setGroups(groups []uint32) error {
	err := linux.SetGroups(groups)
	// Denied in a user namespace that an unprivileged user mapped, where there
	// is also no group to get.
	if errors.Is(err, unix.EPERM) && len(groups) == 0 && s.setgroupsDenied() {
		return nil
	}
	return err
}

func unmapped(kind string, id uint32, err error) error {
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("process.user: %s %d is not mapped in the user namespace; widen linux.%sMappings", kind, id, kind)
	}
	return err
}

func (s *setup) setgroupsDenied() bool {
	f, err := s.proc.OpenSelf("setgroups")
	if err != nil {
		return false
	}
	defer f.Close()
	data, _ := readHandle(f, 16)
	return strings.TrimSpace(string(data)) == "deny"
}

// ownStdio makes the user the owner of the standard streams that were made for
// the container, pipes, sockets and terminals, so that programs can open
// /dev/stdout. Files and devices of the host keep their owner.
func ownStdio(uid uint32) error {
	for fd := range 3 {
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil {
			return os.NewSyscallError("stat standard stream", err)
		}
		const ttyMajorPTS, ttyMajorPTSLast = 136, 143
		major := unix.Major(stat.Rdev)
		isTTY := stat.Mode&unix.S_IFMT == unix.S_IFCHR && major >= ttyMajorPTS && major <= ttyMajorPTSLast
		isPipe := stat.Mode&unix.S_IFMT == unix.S_IFIFO || stat.Mode&unix.S_IFMT == unix.S_IFSOCK
		if stat.Uid == uid || !isTTY && !isPipe {
			continue
		}
		err := unix.Fchown(fd, int(uid), int(stat.Gid))
		// EINVAL: an id that the user namespace does not map. EPERM: somebody
		// else's, EROFS: a read-only devpts.
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EROFS) {
			return os.NewSyscallError("own standard stream", err)
		}
	}
	return nil
}

// setHome adds HOME where config.json gives none, or an empty one, from the
// image's /etc/passwd, "/" where the user is not in it.
func (s *setup) setHome(p *spec.Process) error {
	p.Env = slices.DeleteFunc(p.Env, func(v string) bool { return v == "HOME=" })
	if slices.ContainsFunc(p.Env, func(v string) bool { return strings.HasPrefix(v, "HOME=") }) {
		return nil
	}
	home := "/"
	err := s.readPasswd(func(r io.Reader) error {
		users, err := user.ParsePasswdFilter(r, func(u user.User) bool { return uint32(u.Uid) == p.User.UID })
		if err == nil && len(users) > 0 && users[0].Home != "" {
			home = users[0].Home
		}
		return err
	})
	if err != nil {
		return err
	}
	p.Env = append(p.Env, "HOME="+home)
	return nil
}

// readPasswd reads /etc/passwd of the image, which may be anything: only a
// regular file, and no more of it than a real one has (CVE-2026-135844). It is
// not even opened before that is known: a further process of a container is not
// in its cgroup yet, so nothing holds it to the container's devices.
func (s *setup) readPasswd(read func(io.Reader) error) error {
	const maxBytes = 8 << 20
	handle, err := linux.OpenInRoot(s.rootfs, "/etc/passwd", unix.O_PATH, 0)
	if err != nil {
		return nil // no such file: no entry
	}
	defer handle.Close()
	info, err := handle.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := pathrs.Reopen(handle, unix.O_RDONLY)
	if err != nil {
		return nil // or none that can be read
	}
	defer f.Close()
	if err := read(io.LimitReader(f, maxBytes)); err != nil {
		return fmt.Errorf("read \"/etc/passwd\" of the image: %w", err)
	}
	return nil
}
