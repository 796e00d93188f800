// Package state keeps what eggrun knows of a container in its state dir, the
// directory ROOT/ID: state.json, written atomically, and the exec fifo.
//
// Whoever changes a container holds the lock on its state dir. Everything that a
// step leaves behind on the host is written here before the step, so that delete
// finds it also after a crash.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"eggrun/internal/linux"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Errors that engines look for in the text (containerd, CRI-O).
var (
	ErrExist      = errors.New("container with given ID already exists")
	ErrNotExist   = errors.New("container does not exist")
	ErrNotRunning = errors.New("container not running")
)

// State is what later calls need of a container: they get no config.json and
// not the global flags of create.
type State struct {
	OCIVersion  string            `json:"ociVersion"`
	ID          string            `json:"id"`
	Bundle      string            `json:"bundle"`
	Rootfs      string            `json:"rootfs"`
	Created     time.Time         `json:"created"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// OwnerUID is the uid of the caller of create.
	OwnerUID int `json:"ownerUID"`

	// Ready is set once create has done all of its work.
	Ready bool `json:"ready,omitempty"`
	// Init is the container's first process; zero until it is spawned.
	Init linux.Process `json:"init"`
	// OwnPIDNamespace is false where processes outlive init.
	OwnPIDNamespace bool `json:"ownPIDNamespace,omitempty"`
	// HasProcess is false for a config.json without process: not startable.
	HasProcess bool `json:"hasProcess,omitempty"`

	// ExecCPUAffinity is process.execCPUAffinity, for what is executed in the
	// container later; nil for none.
	ExecCPUAffinity *specs.CPUAffinity `json:"execCPUAffinity,omitempty"`

	// HostMount is the id of the mount that a container without a mount
	// namespace of its own has on Rootfs; 0 for none.
	HostMount uint64 `json:"hostMount,omitempty"`

	Cgroup Cgroup `json:"cgroup"`
	// Resctrl are directories of the resctrl file system to be removed with
	// the container, in this order.
	Resctrl []string `json:"resctrl,omitempty"`
	// Resources are the limits of config.json and of every update since,
	// without the device rules, which do not change; nil for none.
	Resources *specs.LinuxResources `json:"resources,omitempty"`
	// IntelRdt is linux.intelRdt, likewise.
	IntelRdt *specs.LinuxIntelRdt `json:"intelRdt,omitempty"`
	// Hooks are those that run after create: poststart and poststop.
	Hooks specs.Hooks `json:"hooks,omitzero"`

	// Domains is the allowlist as written, nil for a container without a
	// policy.
	Domains []string `json:"domains,omitempty"`
	// Walled is set for a container with a policy, which may be an empty one.
	Walled bool `json:"walled,omitempty"`
	// Sidecar is the egress proxy of a walled container.
	Sidecar linux.Process `json:"sidecar,omitzero"`
	// Network is the entry of its network namespace in the registry of sidecars.
	Network string `json:"network,omitempty"`
}

// Cgroup says which cgroup manager made the container's cgroup, and where.
type Cgroup struct {
	// Manager is cgroupfs, systemd or disabled.
	Manager string `json:"manager"`
	// Path is config.json's linux.cgroupsPath.
	Path string `json:"path,omitempty"`
	// Paths are the directories a controller (v1), or one under "" (v2).
	Paths map[string]string `json:"paths,omitempty"`
	// Rootless is set where the user's own systemd is the manager, and where
	// missing rights over cgroups are tolerated.
	Rootless bool `json:"rootless,omitempty"`
	// Subgroup is the name of a cgroup below that which is the container's, and
	// Delegate that of one below it, for its processes; "" for none.
	Subgroup string `json:"subgroup,omitempty"`
	Delegate string `json:"delegate,omitempty"`
}

const (
	stateFile = "state.json"
	fifoFile  = "exec.fifo"
	execFile  = "exec.json"
)

// Dir is an open state dir. Its files are opened in it, by the descriptor that
// has the lock: whoever replaces the directory does not change what is read.
type Dir struct {
	path string
	id   string
	f    *os.File
	root *os.Root
}

// maxID leaves room for the endings of file names, which have 255 bytes.
const maxID = 240

// CheckID tells whether id may name a container: letters, digits, "_", "+", "-"
// and, not first, "." as in runc and crun, at most 240 bytes, for files are
// called after it.
func CheckID(id string) error {
	const hint = "use letters, digits and _ + - ."
	if id == "" || len(id) > maxID || id[0] == '.' {
		return fmt.Errorf("container id %q: invalid; %s", shorten(id), hint)
	}
	for _, c := range id {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9',
			c == '_', c == '+', c == '-', c == '.':
		default:
			return fmt.Errorf("container id %q: invalid character %q; %s", shorten(id), c, hint)
		}
	}
	return nil
}

func shorten(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

// Create makes the state dir of a new container and locks it. [ErrExist] where
// there is one already. runtimeRoot is made where it is missing, for its owner
// alone.
func Create(runtimeRoot, id string) (*Dir, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(runtimeRoot, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(runtimeRoot, id)
	if err := os.Mkdir(path, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil, ErrExist
		}
		return nil, err
	}
	d, err := Lock(runtimeRoot, id)
	if errors.Is(err, ErrNotExist) {
		// A delete --force of the same id came between.
		return Create(runtimeRoot, id)
	}
	if err != nil {
		_ = os.Remove(path)
	}
	return d, err
}

// Open opens the state dir of a container, to read. [ErrNotExist] where there
// is none.
func Open(runtimeRoot, id string) (*Dir, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	return open(filepath.Join(runtimeRoot, id), id)
}

// Lock opens the state dir of a container, to change, and waits for its lock,
// which goes with the process or with [Dir.Close].
func Lock(runtimeRoot, id string) (*Dir, error) {
	d, err := Open(runtimeRoot, id)
	if err == nil {
		err = d.lock()
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

func open(path, id string) (*Dir, error) {
	root, err := os.OpenRoot(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	f, err := root.Open(".")
	if err != nil {
		root.Close()
		return nil, err
	}
	// OpenRoot follows a link of that name.
	named, err := os.Lstat(path)
	if err != nil || !named.IsDir() {
		root.Close()
		f.Close()
		if errors.Is(err, os.ErrNotExist) {
			return nil, ErrNotExist
		}
		return nil, &os.PathError{Op: "open", Path: path, Err: unix.ENOTDIR}
	}
	return &Dir{path: path, id: id, f: f, root: root}, nil
}

// lock closes d on an error.
func (d *Dir) lock() error {
	for {
		err := unix.Flock(int(d.f.Fd()), unix.LOCK_EX)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			d.Close()
			return &os.PathError{Op: "lock", Path: d.path, Err: err}
		}
	}
	// Whoever held the lock before may have deleted the container.
	if d.isDeleted() {
		d.Close()
		return ErrNotExist
	}
	return nil
}

// isDeleted tells whether the directory has lost its name.
func (d *Dir) isDeleted() bool {
	var stat unix.Stat_t
	err := unix.Fstat(int(d.f.Fd()), &stat)
	return err != nil || stat.Nlink == 0
}

// Path returns the state dir's path.
func (d *Dir) Path() string { return d.path }

// Close lets go of the lock.
func (d *Dir) Close() error { return errors.Join(d.f.Close(), d.root.Close()) }

// Load reads the state. A dir without a state file is that of a create that
// ended before it did anything else: its state has the id and nothing more.
func (d *Dir) Load() (*State, error) {
	data, err := d.root.ReadFile(stateFile)
	if errors.Is(err, os.ErrNotExist) {
		if d.isDeleted() {
			return nil, ErrNotExist
		}
		return &State{ID: d.id}, nil
	}
	if err != nil {
		return nil, err
	}
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("parse %q: %w", filepath.Join(d.path, stateFile), err)
	}
	return &s, nil
}

// Save replaces the state: a reader sees the old one or the new one.
func (d *Dir) Save(s *State) error {
	return d.replace(stateFile, s)
}

// SaveExec keeps what a further process of the container needs, apart from the
// state, which is read more often. It replaces it as Save does: exec reads it
// without the lock.
func (d *Dir) SaveExec(value any) error {
	return d.replace(execFile, value)
}

func (d *Dir) replace(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	aside := name + ".new"
	if err := d.root.WriteFile(aside, data, 0o600); err != nil {
		return err
	}
	return d.root.Rename(aside, name)
}

// LoadExec reads into value what [Dir.SaveExec] kept.
func (d *Dir) LoadExec(value any) error {
	data, err := d.root.ReadFile(execFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, value); err != nil {
		return fmt.Errorf("parse %q: %w", filepath.Join(d.path, execFile), err)
	}
	return nil
}

// Remove deletes the state dir.
func (d *Dir) Remove() error { return os.RemoveAll(d.path) }

// List returns the ids of all containers below runtimeRoot, sorted; none where
// it does not exist.
func List(runtimeRoot string) ([]string, error) {
	entries, err := os.ReadDir(runtimeRoot)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, entry := range entries {
		if entry.IsDir() && CheckID(entry.Name()) == nil {
			ids = append(ids, entry.Name())
		}
	}
	return ids, nil
}
