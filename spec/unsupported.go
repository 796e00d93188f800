package spec

import "github.com/opencontainers/runtime-spec/specs-go"

// check is one field of config.json that this release doesn't apply: used
// tells whether config.json asks for it.
type check struct {
	field  string
	reason string
	used   func(*source) bool
}

const (
	otherPlatform = "not supported on Linux"
	noNotify      = notYet + ": no seccomp agent is told of notifications"
)

// checks has every such field that can be told by its presence. The rest is
// refused where it is parsed: the time namespace, mount options and mappings.
var checks = [...]check{
	{"process.selinuxLabel", notYet, func(s *source) bool { return s.process.SelinuxLabel != "" }},
	{"process.scheduler", notYet, func(s *source) bool { return s.process.Scheduler != nil }},
	{"process.ioPriority", notYet, func(s *source) bool { return s.process.IOPriority != nil }},
	{"process.execCPUAffinity", notYet, func(s *source) bool { return s.process.ExecCPUAffinity != nil }},
	{"process.user.username", otherPlatform, func(s *source) bool { return s.process.User.Username != "" }},
	{"process.commandLine", otherPlatform, func(s *source) bool { return s.process.CommandLine != "" }},

	{"linux.mountLabel", notYet, func(s *source) bool { return s.linux.MountLabel != "" }},
	{"linux.personality", notYet, func(s *source) bool { return s.linux.Personality != nil }},
	{"linux.memoryPolicy", notYet, func(s *source) bool { return s.linux.MemoryPolicy != nil }},
	{"linux.netDevices", notYet, func(s *source) bool { return len(s.linux.NetDevices) > 0 }},
	{"linux.intelRdt", notYet, func(s *source) bool { return s.linux.IntelRdt != nil }},
	{"linux.timeOffsets", notYet, func(s *source) bool { return len(s.linux.TimeOffsets) > 0 }},
	{"linux.seccomp.listenerPath", noNotify, func(s *source) bool {
		return s.linux.Seccomp != nil && s.linux.Seccomp.ListenerPath != ""
	}},
	{"linux.seccomp.listenerMetadata", noNotify, func(s *source) bool {
		return s.linux.Seccomp != nil && s.linux.Seccomp.ListenerMetadata != ""
	}},
	{"linux.seccomp", "SCMP_ACT_NOTIFY: " + noNotify, usesNotify},

	{"vm", notYet, func(s *source) bool { return s.VM != nil }},
	{"windows", otherPlatform, func(s *source) bool { return s.Windows != nil }},
	{"solaris", otherPlatform, func(s *source) bool { return s.Solaris != nil }},
	{"zos", otherPlatform, func(s *source) bool { return s.ZOS != nil }},
	{"freebsd", otherPlatform, func(s *source) bool { return s.FreeBSD != nil }},
}

func checkUnsupported(src *source, _ *Plan) error {
	for _, c := range checks {
		if c.used(src) {
			return unsupported(c.field, c.reason)
		}
	}
	return nil
}

// usesNotify tells whether a profile hands system calls to an agent: without
// one they would hang.
func usesNotify(src *source) bool {
	profile := src.linux.Seccomp
	if profile == nil {
		return false
	}
	if profile.DefaultAction == specs.ActNotify {
		return true
	}
	for _, rule := range profile.Syscalls {
		if rule.Action == specs.ActNotify {
			return true
		}
	}
	return false
}
