package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"eggrun/internal/linux"
	"eggrun/policy"

	"golang.org/x/sys/unix"
)

// The registry says which network namespace has which sidecar. It is a directory
// for each namespace, named after the boot and the namespace's cookie: inode
// numbers are used again at once, cookies never while the kernel runs. Nothing
// in it is believed that can be looked at: whether the sidecar lives, whether the
// wall stands.

// Where says where the sidecars of a caller keep what they have on the host.
type Where struct {
	// RuntimeRoot is the directory of the containers' state.
	RuntimeRoot string
	// Rootless is set for a caller that may not write to /run and /var/log.
	Rootless bool
}

// registry returns where the registry is. It does not depend on --root, for a
// namespace can hold containers of several; but a user may have no other place.
func (w Where) registry() string {
	switch dir := os.Getenv("XDG_RUNTIME_DIR"); {
	case !w.Rootless:
		return "/run/eggrun/netns"
	case dir != "":
		return filepath.Join(dir, "eggrun/netns")
	}
	return filepath.Join(w.RuntimeRoot, ".netns")
}

// dirs are the directories of eggrun's own.
func (w Where) dirs() []string {
	dirs := []string{w.registry()}
	if w.RuntimeRoot != "" {
		dirs = append(dirs, w.RuntimeRoot)
	}
	return dirs
}

// entry is one namespace's, locked.
type entry struct {
	dir string
	f   *os.File
}

// record is what an entry says.
type record struct {
	// Sidecar is the process that serves the namespace, or did.
	Sidecar linux.Process `json:"sidecar"`
	// Container is the member whose audit it writes, the file Audit.
	Container string         `json:"container"`
	Audit     string         `json:"audit"`
	Policy    *policy.Policy `json:"policy"`
	// Asked is that of [Member].
	Asked bool `json:"asked,omitempty"`
	// NoTables is that of [inside.Sockets].
	NoTables bool `json:"noTables,omitempty"`
	// Members are all that came since the first one; some may have ended.
	Members []memberRecord `json:"members"`
}

type memberRecord struct {
	ID   string        `json:"id"`
	Init linux.Process `json:"init"`
}

// living are the members that have not ended.
func (r *record) living() []memberRecord {
	return slices.DeleteFunc(slices.Clone(r.Members), func(m memberRecord) bool { return !m.Init.Alive() })
}

// binds tells whether whoever joins the namespace is held to the policy. A
// sidecar that was killed leaves members behind, and nobody with more rights than
// they have may come to them and undo their wall.
func (r *record) binds() bool { return r.Sidecar.Alive() || len(r.living()) > 0 }

const recordFile, controlName, ledgerName = "sidecar.json", "control", "ledger"

// entryDir returns the directory of a namespace's entry.
func entryDir(registry string, cookie uint64) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	id, _, _ := strings.Cut(string(boot), "-")
	return filepath.Join(registry, fmt.Sprintf("%s-%d", id, cookie)), nil
}

// lockEntry makes an entry if need be and waits for its lock, which goes with
// the process or with [entry.close].
func lockEntry(dir string) (*entry, error) {
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		e, err := lockExisting(dir)
		if !errors.Is(err, os.ErrNotExist) {
			return e, err
		}
	}
}

// lockExisting is lockEntry for an entry that is there. The error is
// [os.ErrNotExist] where it is not.
func lockExisting(dir string) (*entry, error) {
	f, err := os.OpenFile(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, &os.PathError{Op: "lock", Path: dir, Err: err}
		}
	}
	// Whoever held the lock before may have removed it.
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil || stat.Nlink == 0 {
		f.Close()
		return nil, os.ErrNotExist
	}
	return &entry{dir, f}, nil
}

func (e *entry) close() { e.f.Close() }

// load returns what the entry says, nil where that is nothing.
func (e *entry) load() (*record, error) { return loadRecord(e.dir) }

// loadRecord reads an entry without its lock: it is replaced as a whole.
func loadRecord(dir string) (*record, error) {
	data, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := new(record)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("parse %q: %w", filepath.Join(dir, recordFile), err)
	}
	return r, nil
}

func (e *entry) save(r *record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	aside := filepath.Join(e.dir, recordFile+".new")
	if err := os.WriteFile(aside, data, 0o600); err != nil {
		return err
	}
	return os.Rename(aside, filepath.Join(e.dir, recordFile))
}

// remove removes the entry.
func (e *entry) remove() error { return os.RemoveAll(e.dir) }

// openLedger opens what the namespace's sidecars, one after the other, keep of the
// fake addresses that they have given out.
func (e *entry) openLedger() (*os.File, error) {
	return os.OpenFile(filepath.Join(e.dir, ledgerName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
}

// listen returns the entry's control socket, which is for its owner alone.
func (e *entry) listen() (*os.File, error) {
	path := filepath.Join(e.dir, controlName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), path)
	// The path may be longer than an address; the directory is 0700 meanwhile.
	name := fmt.Sprintf("/proc/self/fd/%d/%s", e.f.Fd(), controlName)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: name})
	if err == nil {
		err = unix.Listen(fd, 16)
	}
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("control socket %q: %w", path, err)
	}
	return f, nil
}

// prune removes the entries whose sidecars and members have ended: of containers
// that were never deleted, or of a boot before.
func prune(registry string) {
	entries, err := os.ReadDir(registry)
	if err != nil {
		return
	}
	for _, each := range entries {
		dir := filepath.Join(registry, each.Name())
		if r, err := loadRecord(dir); err != nil || r == nil || r.binds() {
			continue
		}
		e, err := lockExisting(dir)
		if err != nil {
			continue
		}
		if r, err := e.load(); err == nil && r != nil && !r.binds() {
			_ = e.remove()
		}
		e.close()
	}
}
