package spec

import (
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// capabilityNames has the names of capabilities(7) in the order of their
// numbers, up to Linux 5.9, which added the last.
var capabilityNames = [...]string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID",
	"CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_LINUX_IMMUTABLE",
	"CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_IPC_LOCK",
	"CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE",
	"CAP_SYS_PACCT", "CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_NICE", "CAP_SYS_RESOURCE",
	"CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE", "CAP_AUDIT_WRITE",
	"CAP_AUDIT_CONTROL", "CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG",
	"CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND", "CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF",
	"CAP_CHECKPOINT_RESTORE",
}

// CapabilityNames returns the capabilities that process.capabilities may name,
// the index of each being its number in capabilities(7).
func CapabilityNames() []string {
	return slices.Clone(capabilityNames[:])
}

// normalizeCapabilities writes the names in capitals and drops those that Linux
// doesn't have: the specification wants a container that names a capability
// which can't be granted to run without it. A name without CAP_ is such a one,
// as in runc and crun.
func normalizeCapabilities(from *specs.LinuxCapabilities) *specs.LinuxCapabilities {
	if from == nil {
		return nil
	}
	return &specs.LinuxCapabilities{
		Bounding:    knownCapabilities(from.Bounding),
		Effective:   knownCapabilities(from.Effective),
		Inheritable: knownCapabilities(from.Inheritable),
		Permitted:   knownCapabilities(from.Permitted),
		Ambient:     knownCapabilities(from.Ambient),
	}
}

func knownCapabilities(names []string) []string {
	var known []string
	for _, name := range names {
		name = strings.ToUpper(name)
		if slices.Contains(capabilityNames[:], name) && !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	return known
}
