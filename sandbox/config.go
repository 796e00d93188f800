// Package sandbox is the vocabulary that the rest of eggrun shares: what a
// container may touch ([Config], [Mount]), how much network it needs
// ([NetworkNeed]) and what is said when the system cannot hold it to that
// ([EnforcementError]).
//
// Everything here is plain data. Nothing makes a system call, reads a file or
// resolves a name.
package sandbox

import (
	"fmt"
	"runtime"
	"strconv"
	"time"
)

// Config holds what a sandbox is created from.
//
// Paths are absolute and final: nothing expands "~", follows a link or cleans
// them. A zero limit means that no limit is set.
type Config struct {
	// Mounts are the file systems that the sandbox sees beside its root.
	Mounts []Mount
	// Deny lists paths that can be neither read nor written.
	Deny []string
	// DenyWrite lists paths that can be read but not written.
	DenyWrite []string
	// NetworkNeed is how much network the program needs.
	NetworkNeed NetworkNeed
	// Domains is the allowlist of the proxy, in the syntax of
	// policy.ParseAllowlist.
	Domains []string
	// ProxyPort is the TCP port of the filtering proxy on the sandbox's own
	// loopback address; 0 means that there is no proxy.
	ProxyPort int
	// CPULimit is RLIMIT_CPU, which counts whole seconds of CPU time.
	CPULimit time.Duration
	// MemLimit is RLIMIT_AS in bytes.
	MemLimit uint64
	// MaxFDs is RLIMIT_NOFILE.
	MaxFDs uint32
}

// Mount describes one file system mount of a sandbox.
type Mount struct {
	// Source is the path on the host, or the name of the file system for one
	// that has no path.
	Source string
	// Target is the path in the sandbox.
	Target string
	// ReadOnly makes every file below Target unwritable through this mount.
	ReadOnly bool
	// UseRegex asks for a rule that also covers files beside Source whose names
	// begin with it (~/.claude and ~/.claude.json). Only macOS has such rules:
	// see [Config.Validate].
	UseRegex bool
}

const maxPort = 65535

// Validate reports the first part of c that no sandbox could honour.
//
// A request that has a meaning but cannot be enforced on this system is an
// [*EnforcementError]; a value without a meaning is a plain error. A limit is
// never rounded: half a second of CPU time cut to 0 kills the program at once.
func (c Config) Validate() error {
	for _, m := range c.Mounts {
		if m.UseRegex && runtime.GOOS == "linux" {
			return &EnforcementError{
				Gaps:     []string{fmt.Sprintf("mount %q: a bind mount covers one path, not every name that begins with it", m.Source)},
				Platform: "list each path as a mount of its own",
			}
		}
	}
	if c.CPULimit < 0 {
		return fmt.Errorf("cpu limit %q: negative; use 0 for no limit", c.CPULimit)
	}
	if c.CPULimit%time.Second != 0 {
		return fmt.Errorf("cpu limit %q: not a whole number of seconds; use %s", c.CPULimit, roundUp(c.CPULimit))
	}
	if c.ProxyPort < 0 || c.ProxyPort > maxPort {
		return fmt.Errorf("proxy port %q: not a TCP port; use 1 to 65535, or 0 for no proxy", strconv.Itoa(c.ProxyPort))
	}
	if c.NetworkNeed < NetworkNone || c.NetworkNeed > NetworkFull {
		return fmt.Errorf("network need %q: unknown; use none, local, https or full", strconv.Itoa(int(c.NetworkNeed)))
	}
	return nil
}

// roundUp returns the smallest whole number of seconds that is not below d,
// which is not negative. It stays below d's maximum instead of overflowing.
func roundUp(d time.Duration) time.Duration {
	whole := d.Truncate(time.Second)
	if up := whole + time.Second; up > whole {
		return up
	}
	return whole
}
