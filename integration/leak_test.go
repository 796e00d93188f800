package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// checkLeaks fails the test when the runtime left a state dir, a mount, a
// cgroup or a process. Processes and cgroups may take a moment to go.
func (l *lab) checkLeaks() {
	l.t.Helper()
	left := l.left()
	for deadline := time.Now().Add(patience); len(left) > 0 && time.Now().Before(deadline); left = l.left() {
		time.Sleep(10 * time.Millisecond)
	}
	for _, what := range left {
		l.t.Errorf("left behind: %s", what)
	}
}

func (l *lab) left() []string {
	var left []string
	entries, err := os.ReadDir(l.root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		left = append(left, err.Error())
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue // no container's: an id does not begin with a dot
		}
		left = append(left, "state "+filepath.Join(l.root, entry.Name()))
	}
	for _, mount := range mounts() {
		if strings.Contains(mount, l.dir+"/") {
			left = append(left, "mount "+mount)
		}
	}
	for _, dir := range cgroupDirs(l.cgroup) {
		if dir == l.cgroup {
			continue
		}
		left = append(left, "cgroup "+dir)
	}
	for _, p := range processes() {
		if strings.Contains(p.cgroup, l.cgroup+"/") || strings.Contains(p.cmdline, l.root) || strings.Contains(p.environ, "EGGRUN_IT_LAB="+l.dir) {
			left = append(left, fmt.Sprintf("process %d (parent %d): %s [%s]", p.pid, p.ppid, p.cmdline, p.exe))
		}
		if l.rt.isEggrun() && isSidecar(p) && len(watched(p)) == 0 {
			left = append(left, fmt.Sprintf("sidecar %d of a container that has ended", p.pid))
		}
	}
	return left
}

// mounts returns the lines of mountinfo of the suite's own mount namespace.
func mounts() []string {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return []string{err.Error()}
	}
	defer func() { _ = file.Close() }()
	var lines []string
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		lines = append(lines, scanner.Text())
	}
	return lines
}

// leftOfSuite tells what is wrong after all tests: in this PID namespace, or,
// where the suite has none, among its children, nothing may live, and no test
// may keep a mount.
func leftOfSuite() []string {
	var left []string
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		left = left[:0]
		for _, p := range processes() {
			if p.pid != os.Getpid() && (ownPIDs() != 0 || p.ppid == os.Getpid()) {
				left = append(left, fmt.Sprintf("process %d (parent %d): %s [%s]", p.pid, p.ppid, p.cmdline, p.exe))
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	for _, mount := range mounts() {
		// The overlay on /etc names the directory too, as its upper one.
		if strings.Contains(mount, suite.dir+"/") && !strings.Contains(mount, " /etc ") {
			left = append(left, "mount "+mount)
		}
	}
	return left
}

// cgroupRoot is where each hierarchy of v1 is a directory, or v2 itself.
const cgroupRoot = "/sys/fs/cgroup"

// cgroupFolders returns where a cgroupsPath is in each hierarchy, there or
// not.
func cgroupFolders(path string) []string {
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		return []string{filepath.Join(cgroupRoot, path)}
	}
	hierarchies, _ := filepath.Glob(cgroupRoot + "/*")
	folders := make([]string, 0, len(hierarchies))
	for _, hierarchy := range hierarchies {
		// cpu,cpuacct is reachable by links of either name too, and systemd makes
		// a directory of that name that is none.
		_, procsErr := os.Stat(filepath.Join(hierarchy, "cgroup.procs"))
		if info, err := os.Lstat(hierarchy); err == nil && info.IsDir() && procsErr == nil {
			folders = append(folders, filepath.Join(hierarchy, path))
		}
	}
	return folders
}

// cgroupDirs lists every cgroup at and below the path, deepest first.
func cgroupDirs(path string) []string {
	var dirs []string
	for _, folder := range cgroupFolders(path) {
		_ = filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && name != folder {
				dirs = append([]string{name}, dirs...)
			}
			return nil
		})
	}
	return dirs
}

// cgroupFile reads a file of a container's cgroup: of the named v1 hierarchy,
// or the v2 file of another name.
func cgroupFile(t *testing.T, path, v1Hierarchy, v1File, v2File string) string {
	t.Helper()
	name := filepath.Join(cgroupRoot, v1Hierarchy, path, v1File)
	if isCgroup2() {
		name = filepath.Join(cgroupRoot, path, v2File)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func isCgroup2() bool {
	_, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers"))
	return err == nil
}
