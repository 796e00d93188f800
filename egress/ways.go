package egress

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"eggrun/sandbox"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// checkOtherWays refuses what leads out of a container without any network: the
// processes of the host, and sockets on which they listen.
func checkOtherWays(plan *spec.Plan) error {
	var gaps []string
	path, ok := plan.HasNamespace(specs.PIDNamespace)
	isHost := !ok
	if path != "" {
		var err error
		if isHost, err = isOwnNamespace(path, "pid"); err != nil {
			return fmt.Errorf("pid namespace: %w", err)
		}
	}
	if isHost {
		gaps = append(gaps, "domains: host pid namespace requested, whose processes can be made to connect")
	}
	ways, err := mountedWays(plan.Mounts)
	if err != nil {
		return err
	}
	return otherWays(append(gaps, ways...))
}

// CheckMounts refuses mounts of a plan that lead out of a container with a
// policy.
func CheckMounts(plan *spec.Plan) error {
	ways, err := mountedWays(plan.Mounts)
	if err != nil {
		return err
	}
	return otherWays(ways)
}

func mountedWays(mounts []spec.Mount) (gaps []string, err error) {
	for i := range mounts {
		m := &mounts[i]
		if !m.IsBind() {
			continue
		}
		way, err := wayOut(m.Source)
		if err != nil {
			return nil, fmt.Errorf("mount %q on %q: %w", m.Source, m.Target, err)
		}
		if way != "" {
			gaps = append(gaps, fmt.Sprintf("domains: mount %q on %q: %s", m.Source, m.Target, way))
		}
	}
	return gaps, nil
}

func otherWays(gaps []string) error {
	if gaps == nil {
		return nil
	}
	return &sandbox.EnforcementError{
		Gaps:     gaps,
		Platform: "give the container its own pid namespace, and only directories in which no process of the host listens",
	}
}

// runtimeDirs are where services of the host keep their sockets.
var runtimeDirs = []string{"/run", "/var/run", "/tmp"}

// wayOut says why a bind mount of source leads to processes of the host, "" if
// it does not. A missing source is left to the mount to report.
func wayOut(source string) (string, error) {
	source, err := filepath.EvalSymlinks(source)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	info, err := os.Stat(source)
	if err != nil {
		return "", err
	}
	if info.Mode()&fs.ModeSocket != 0 {
		return "a socket of the host", nil
	}
	if !info.IsDir() {
		return "", nil
	}
	dirs := runtimeDirs
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		dirs = append(slices.Clone(dirs), dir)
	}
	for _, dir := range dirs {
		if dir == source || strings.HasPrefix(dir, strings.TrimSuffix(source, "/")+"/") {
			return fmt.Sprintf("%q is where services of the host listen", dir), nil
		}
	}
	found, err := findSocket(source)
	if err != nil || found == "" {
		return "", err
	}
	return fmt.Sprintf("the socket %q is in it", found), nil
}

// findSocket looks for a socket in a directory and two levels below, among at
// most ten thousand entries: a volume may be large, and sockets lie near its
// top. One that is made later is not found by any walk; SECURITY.md says so.
func findSocket(dir string) (string, error) {
	const maxEntries, maxDepth = 10_000, 2
	entries, found := 0, ""
	depth := strings.Count(filepath.Clean(dir), "/")
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		entries++
		switch {
		case err != nil:
			// What the caller cannot read he cannot share for reading either;
			// what has gone meanwhile is no socket.
			return fs.SkipDir
		case entry.Type()&fs.ModeSocket != 0:
			found = path
			return fs.SkipAll
		case entries > maxEntries:
			return fs.SkipAll
		case entry.IsDir() && strings.Count(path, "/")-depth > maxDepth:
			return fs.SkipDir
		}
		return nil
	})
	return found, err
}
