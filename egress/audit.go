package egress

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openAudit opens the audit log of a container. It is kept apart from the state
// dir, for it stays when the container is deleted.
func openAudit(id string, rootless bool) (*os.File, error) {
	dir := "/var/log/eggrun"
	if rootless {
		base := os.Getenv("XDG_STATE_HOME")
		if base == "" {
			base = filepath.Join(os.Getenv("HOME"), ".local/state")
		}
		if !filepath.IsAbs(base) {
			return nil, errors.New("audit log: neither XDG_STATE_HOME nor HOME is set")
		}
		dir = filepath.Join(base, "eggrun")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	path := filepath.Join(dir, id+".jsonl")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return f, nil
}
