package egress

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"eggrun/policy"

	"github.com/moby/sys/user"
	"golang.org/x/sys/unix"
)

// adminPolicy is where the administrator's policy is. Nothing that a caller can
// say moves it: it binds him.
const adminPolicy = "/etc/eggrun/policy.toml"

// maxPolicy is far more than anybody writes.
const maxPolicy = 1 << 20

// PolicyFiles are the policies that bind what a caller makes.
type PolicyFiles struct {
	// Admin and User are the administrator's and the caller's own; nil for what is
	// not there.
	Admin, User *policy.File
	// UID is the caller's outside of his user namespace, as far as can be seen
	// from in it.
	UID uint32
}

// ReadPolicyFiles reads /etc/eggrun/policy.toml and, for a caller who is not the
// host's root, $XDG_CONFIG_HOME/eggrun/policy.toml or that in ~/.config. Root's
// environment is not looked at: engines fill it from elsewhere.
//
// A file that is there but can't be trusted or read is an error. It must be owned
// by the host's root, the caller's also by the caller, like every directory above
// it, be writable for nobody else and reached through no link. In a rootless
// user namespace the host's root looks like everybody who has no id there, so
// there the caller must not be able to write to any of them.
func ReadPolicyFiles() (PolicyFiles, error) {
	viewer, err := whoAmI()
	if err != nil {
		return PolicyFiles{}, err
	}
	files := PolicyFiles{UID: viewer.outer}
	if files.Admin, err = viewer.readPolicy(adminPolicy, false); err != nil {
		return PolicyFiles{}, err
	}
	if path := userPolicy(os.Getenv); path != "" && viewer.outer != 0 {
		if files.User, err = viewer.readPolicy(path, true); err != nil {
			return PolicyFiles{}, err
		}
	}
	return files, nil
}

// userPolicy returns where a caller's own policy is, or "".
func userPolicy(getenv func(string) string) string {
	// The XDG specification ignores relative paths.
	if dir := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "eggrun/policy.toml")
	}
	if dir := getenv("HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, ".config/eggrun/policy.toml")
	}
	return ""
}

// viewer is how this process sees the owners of files.
type viewer struct {
	own   uint32 // effective uid
	outer uint32 // the same outside of the user namespace
	// root is the uid as which the host's root is seen. With overflow it is that
	// of everybody who has no id in this user namespace.
	root     uint32
	overflow bool
}

func whoAmI() (viewer, error) {
	data, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		return viewer{}, err
	}
	overflow, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 32)
	if err != nil {
		return viewer{}, fmt.Errorf("overflowuid: %w", err)
	}
	uids, err := user.CurrentProcessUIDMap()
	if err != nil {
		return viewer{}, err
	}
	return newViewer(uint32(os.Geteuid()), uint32(overflow), uids), nil
}

func newViewer(own, overflow uint32, uids []user.IDMap) viewer {
	v := viewer{own: own, outer: overflow, root: overflow, overflow: true}
	for _, m := range uids {
		if id := int64(own) - m.ID; 0 <= id && id < m.Count {
			v.outer = uint32(m.ParentID + id)
		}
		if m.ParentID == 0 && m.Count > 0 {
			v.root, v.overflow = uint32(m.ID), false
		}
	}
	return v
}

// readPolicy reads a policy; nil where there is none. own says that the caller
// may own it.
func (v viewer) readPolicy(path string, own bool) (*policy.File, error) {
	f, err := v.open(path, own)
	if f == nil && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("policy %q: %w", path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPolicy+1))
	if err != nil {
		return nil, fmt.Errorf("policy %q: %w", path, err)
	}
	if len(data) > maxPolicy {
		return nil, fmt.Errorf("policy %q: larger than %d bytes", path, maxPolicy)
	}
	return policy.ParseFile(path, data)
}

// open opens the file by walking down from the root, so that what is checked is
// what is passed through; nil without an error where there is no file. What is
// wrong on the way counts only then.
func (v viewer) open(path string, own bool) (*os.File, error) {
	const walk = unix.O_PATH | unix.O_DIRECTORY
	at, err := unix.Open("/", walk|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	fault := v.check(at, "/", own)
	parts := strings.Split(strings.Trim(filepath.Clean(path), "/"), "/")
	for i, part := range parts {
		// Not blocking, for it may turn out to be a fifo.
		flags := unix.O_RDONLY | unix.O_NONBLOCK
		if i < len(parts)-1 {
			flags = walk
		}
		next, err := unix.Openat(at, part, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(at)
		name := "/" + filepath.Join(parts[:i+1]...)
		if err != nil {
			return nil, refuseWalk(err, path, name, own)
		}
		if at = next; fault == nil {
			fault = v.check(at, name, own)
		}
	}
	if fault != nil {
		unix.Close(at)
		return nil, fault
	}
	return os.NewFile(uintptr(at), path), nil
}

// refuseWalk says why the walk to path ended at name; nil where there is no file.
func refuseWalk(err error, path, name string, own bool) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EACCES) && own:
		return nil // as with HOME of another user: the caller can't have put a file there
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%q can't be opened; let those read it whom it binds", name)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		if _, err := os.Stat(path); err != nil {
			return nil
		}
		return fmt.Errorf("%q is a link; put the file itself there", name)
	}
	return err
}

// check says whether what fd refers to is what only those can change whose word
// counts.
func (v viewer) check(fd int, name string, own bool) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	kind := stat.Mode & unix.S_IFMT
	switch {
	case kind != unix.S_IFDIR && kind != unix.S_IFREG:
		return fmt.Errorf("%q is neither a file nor a directory", name)
	case own && stat.Uid == v.own:
	case stat.Uid != v.root:
		return fmt.Errorf("%q belongs to uid %d; give it to root%s", name, stat.Uid, orYourself(own))
	case v.overflow && writable(fd):
		return fmt.Errorf("%q can be written to by the caller, whom it is to bind", name)
	}
	if stat.Mode&0o022 != 0 {
		return fmt.Errorf("%q can be written to by others than its owner; take that away with chmod go-w", name)
	}
	return nil
}

func orYourself(own bool) string {
	if own {
		return " or to yourself"
	}
	return ""
}

// writable reports whether the effective ids of this process may write to fd, or
// whether that can't be told.
func writable(fd int) bool {
	switch unix.Faccessat2(fd, "", unix.W_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS) {
	case unix.EACCES, unix.EROFS, unix.EPERM: // EPERM of an immutable file
		return false
	}
	return true
}
