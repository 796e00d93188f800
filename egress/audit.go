package egress

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// maxAudit is how large the audit of one container gets; then its older
	// half goes.
	maxAudit = 16 << 20
	// maxAudits is how large all get together, but for those being written.
	maxAudits = 256 << 20

	auditSuffix = ".jsonl"
)

// auditDir returns where the audits are, apart from the state dirs, for they
// stay when the container is deleted.
func auditDir(rootless bool) (string, error) {
	if !rootless {
		return "/var/log/eggrun", nil
	}
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		base = filepath.Join(os.Getenv("HOME"), ".local/state")
	}
	if !filepath.IsAbs(base) {
		return "", errors.New("audit log: neither XDG_STATE_HOME nor HOME is set")
	}
	return filepath.Join(base, "eggrun"), nil
}

// AuditPath returns the file of a container's audit. Containers of the same id with
// different directories for their state have one each.
func AuditPath(id string, where Where) (string, error) {
	dir, err := auditDir(where.Rootless)
	root := sha256.Sum256([]byte(filepath.Clean(where.RuntimeRoot)))
	return filepath.Join(dir, fmt.Sprintf("%s@%x%s", id, root[:4], auditSuffix)), err
}

// auditsOf returns the audits of all containers with an id.
func auditsOf(id string, rootless bool) ([]string, error) {
	dir, err := auditDir(rootless)
	if err != nil {
		return nil, err
	}
	return filepath.Glob(filepath.Join(dir, id+"@*"+auditSuffix)) // no id has a pattern's letters
}

// openAudit opens an audit log, for a sidecar. A lock on it says that it is being
// written.
func openAudit(path string) (*os.File, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		// That of a former member of somebody else's namespace.
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		// Shared, for a sidecar that was killed may not have ended yet.
		if err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
			f.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	pruneAudits(dir, maxAudits)
	return f, nil
}

// linkAudit makes an audit be found as path too: in one network namespace the
// sidecar can't tell who asks.
func linkAudit(path, audit string) error {
	if path == audit {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("audit log: %w", err)
	}
	if err := os.Symlink(filepath.Base(audit), path); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	return nil
}

// pruneAudits removes the oldest audits that nobody writes until all together
// have at most limit bytes. What can't be removed is left.
func pruneAudits(dir string, limit int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	var files []fs.FileInfo
	var sum int64
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || filepath.Ext(entry.Name()) != auditSuffix || !info.Mode().IsRegular() {
			continue
		}
		files = append(files, info)
		sum += info.Size()
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range files {
		if sum <= limit {
			return
		}
		if removeUnlocked(filepath.Join(dir, info.Name())) {
			sum -= info.Size()
		}
	}
}

func removeUnlocked(path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && os.Remove(path) == nil
}

// auditFile is an audit that a sidecar writes. Its older half goes when it would
// become larger than limit: that is done in the file, for a sidecar can't make
// or rename any.
type auditFile struct {
	mu    sync.Mutex
	f     *os.File
	size  int64
	limit int64
}

func newAuditFile(f *os.File, limit int64) (*auditFile, error) {
	size, err := f.Seek(0, io.SeekEnd)
	return &auditFile{f: f, size: size, limit: limit}, err
}

// Write appends whole lines.
func (a *auditFile) Write(lines []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.size+int64(len(lines)) > a.limit {
		if err := a.halve(); err != nil {
			return 0, err
		}
	}
	n, err := a.f.WriteAt(lines, a.size)
	if err != nil {
		// Of a disk that is full: half a line would spoil the next one too.
		return 0, errors.Join(err, a.f.Truncate(a.size))
	}
	a.size += int64(n)
	return n, nil
}

// halve moves the newer half, from its first whole line on, to the beginning.
func (a *auditFile) halve() error {
	buffer := make([]byte, 64<<10)
	from, to := a.size-a.limit/2, int64(0)
	found := from <= 0
	for from = max(from, 0); from < a.size; {
		n, err := a.f.ReadAt(buffer[:min(int64(len(buffer)), a.size-from)], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			break
		}
		from += int64(n)
		data := buffer[:n]
		if !found {
			end := bytes.IndexByte(data, '\n')
			if found = end >= 0; !found {
				continue
			}
			data = data[end+1:]
		}
		if _, err := a.f.WriteAt(data, to); err != nil {
			return err
		}
		to += int64(len(data))
	}
	a.size = to
	return a.f.Truncate(to)
}
