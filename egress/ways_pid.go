package egress

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// checkPIDNamespace refuses a pid namespace with processes outside the wall:
// the same user's memory, files and root directory are open to everybody who
// sees them in /proc, and no capability is needed for that. Who is in the same
// network namespace is behind the same wall.
func checkPIDNamespace(g *gaps, plan *spec.Plan) error {
	path, ok := plan.HasNamespace(specs.PIDNamespace)
	if ok && path == "" {
		return nil
	}
	isHost := !ok
	if ok {
		var err error
		if isHost, err = isOwnNamespace(path, "pid"); err != nil {
			return fmt.Errorf("pid namespace: %w", err)
		}
	}
	const fix = "run without --pid, so that the container has its own pid namespace"
	if isHost {
		g.add(fix, "host pid namespace requested, whose processes can be made to connect")
		return nil
	}
	outside, err := hasOthers(path, networkOf(plan))
	if err != nil {
		return fmt.Errorf("pid namespace: %w", err)
	}
	if outside {
		g.add(fix, "pid namespace %q is of a container on another network, whose processes can be made to connect", path)
	}
	return nil
}

// networkOf returns the path of the network namespace that the container joins,
// "" for a new one, in which nothing can be yet.
func networkOf(plan *spec.Plan) string {
	path, _ := plan.HasNamespace(specs.NetworkNamespace)
	return path
}

// hasOthers tells whether in the pid namespace at path, or one below it, there is
// a process of another network namespace than that at network. A namespace in
// which nobody can be seen may have any.
func hasOthers(path, network string) (bool, error) {
	if network == "" {
		return true, nil
	}
	wantPID, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	wantNet, err := os.Stat(network)
	if err != nil {
		return false, err
	}
	seen := false
	others, err := someProcess(func(dir string) bool {
		if !isWithin(dir+"/ns/pid", wantPID) {
			return false
		}
		net, err := os.Stat(dir + "/ns/net")
		seen = seen || err == nil
		return err == nil && !os.SameFile(net, wantNet)
	})
	return others || !seen, err
}

// isWithin tells whether the pid namespace at path is want or lies below it.
func isWithin(path string, want os.FileInfo) bool {
	ns, err := os.Open(path)
	for err == nil {
		info, statErr := ns.Stat()
		if statErr == nil && os.SameFile(info, want) {
			ns.Close()
			return true
		}
		parent, ioctlErr := unix.IoctlRetInt(int(ns.Fd()), unix.NS_GET_PARENT) // EPERM: above this process's
		ns.Close()
		if err = ioctlErr; err == nil {
			ns = os.NewFile(uintptr(parent), path)
		}
	}
	return false
}

// someProcess tells whether f holds for a process, given its directory in /proc.
// What has ended meanwhile, or may not be looked at, f has to leave out.
func someProcess(f func(dir string) bool) (bool, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false, err
	}
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err == nil && f(filepath.Join("/proc", entry.Name())) {
			return true, nil
		}
	}
	return false, nil
}
