package egress

import (
	"os"
	"path/filepath"
	"slices"

	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// isHostNetwork tells whether a container would be on the host's network: it has
// no network namespace of its own, or joins this process's, that of pid 1, or one
// that is used by a process of no container, which is one that shares this
// process's pid namespace.
func isHostNetwork(plan *spec.Plan) (bool, error) {
	path, ok := plan.HasNamespace(specs.NetworkNamespace)
	if !ok || path == "" {
		return !ok, nil
	}
	want, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	ownPID, err := os.Stat("/proc/thread-self/ns/pid")
	if err != nil {
		return false, err
	}
	for _, host := range []string{"/proc/thread-self/ns/net", "/proc/1/ns/net"} {
		// Who may not look at pid 1 cannot join its namespace either.
		if net, err := os.Stat(host); err == nil && os.SameFile(net, want) {
			return true, nil
		}
	}
	return someProcess(func(dir string) bool {
		net, err := os.Stat(dir + "/ns/net")
		if err != nil || !os.SameFile(net, want) {
			return false
		}
		pid, err := os.Stat(dir + "/ns/pid")
		return err == nil && os.SameFile(pid, ownPID) && allThreadsIn(dir, want) && !isForwarder(dir)
	})
}

// isForwarder tells whether a process is podman's rootlessport, which a normal
// user's podman starts in a container's namespace before the container: there it
// connects to the ports that are published, and serves nothing.
func isForwarder(dir string) bool {
	program, err := os.Readlink(dir + "/exe")
	return err == nil && filepath.Base(program) == "rootlessport"
}

// allThreadsIn tells whether a whole process uses a network namespace. Engines set
// up a container's with one thread of theirs, which may be the first and stay there.
func allThreadsIn(dir string, namespace os.FileInfo) bool {
	threads, err := filepath.Glob(dir + "/task/*/ns/net")
	return err == nil && len(threads) > 0 && !slices.ContainsFunc(threads, func(thread string) bool {
		net, err := os.Stat(thread)
		return err == nil && !os.SameFile(net, namespace)
	})
}
