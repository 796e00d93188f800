package egress

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"eggrun/sandbox"
	"eggrun/spec"
)

// CheckPolicyMounts refuses a container into which a policy file of this host, or
// a directory above it, is mounted so that it can be written to: it would write
// the policy of the next one. That holds for containers without a policy too.
func CheckPolicyMounts(mounts []spec.Mount) error {
	viewer, err := whoAmI()
	if err != nil {
		return err
	}
	var gaps []string
	for _, file := range viewer.writablePolicies(os.Getenv) {
		gap, err := policyGap(file, mounts)
		if err != nil {
			return err
		}
		if gap != "" {
			gaps = append(gaps, gap)
		}
	}
	if gaps == nil {
		return nil
	}
	return &sandbox.EnforcementError{Gaps: gaps, Platform: "mount it read-only, or what is needed of it"}
}

// writablePolicies returns the files that a container of this caller's could
// write if it saw them. A user namespace keeps it from what is the host's root's.
func (v viewer) writablePolicies(getenv func(string) string) []string {
	var files []string
	if !v.overflow {
		files = append(files, adminPolicy)
	}
	if path := userPolicy(getenv); path != "" && v.outer != 0 {
		files = append(files, path)
	}
	return files
}

// policyGap says which mount shows file, if it exists. Files are compared and not
// their names, of which a directory has many.
func policyGap(file string, mounts []spec.Mount) (string, error) {
	var way []fs.FileInfo
	for path := file; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil {
			return "", nil // nobody can read it, so it binds nobody
		}
		way = append(way, info)
		if path == "/" {
			break
		}
	}
	for i := range mounts {
		m := &mounts[i]
		if !m.IsBind() || m.ReadOnly {
			continue
		}
		source, err := os.Stat(m.Source)
		if err != nil {
			return "", fmt.Errorf("mount %q on %q: %w", m.Source, m.Target, err)
		}
		for _, part := range way {
			if os.SameFile(part, source) {
				return fmt.Sprintf("policy file: mount %q on %q lets the container write %q", m.Source, m.Target, file), nil
			}
		}
	}
	return "", nil
}
