package spec

import (
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// ipcSysctls are those of kernel/ that every ipc namespace has of its own, see
// ipc_namespaces(7), beside all of fs/mqueue.
var ipcSysctls = [...]string{
	"kernel/msgmax", "kernel/msgmnb", "kernel/msgmni", "kernel/sem",
	"kernel/shmall", "kernel/shmmax", "kernel/shmmni", "kernel/shm_rmid_forced",
}

func translateSysctl(src *source, plan *Plan) error {
	const field = "linux.sysctl"
	for _, name := range slices.Sorted(maps.Keys(src.linux.Sysctl)) {
		value := src.linux.Sysctl[name]
		path := sysctlPath(name)
		if err := checkSysctlPath(field, name, path); err != nil {
			return err
		}
		if err := checkSysctlNamespace(field, name, path, plan); err != nil {
			return err
		}
		if strings.IndexByte(value, 0) >= 0 {
			return invalidValue(field, name, "value must not contain a NUL byte")
		}
		if _, twice := plan.Sysctl[path]; twice {
			return invalidValue(field, name, "is there twice, with dots and with slashes")
		}
		if plan.Sysctl == nil {
			plan.Sysctl = make(map[string]string)
		}
		plan.Sysctl[path] = value
	}
	return nil
}

// sysctlPath returns the path below /proc/sys. The first separator decides, as
// in sysctl.d(5): in a name with dots a slash stands for a dot, so that
// net.ipv4.conf.eth0/1.rp_filter can name the interface eth0.1.
func sysctlPath(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '/' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}

// checkSysctlPath refuses names that would lead out of /proc/sys or out of the
// part of it that was checked.
func checkSysctlPath(field, name, path string) error {
	if err := noNUL(field, name); err != nil {
		return err
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return invalidValue(field, name, "not a sysctl name")
		}
	}
	return nil
}

// checkSysctlNamespace refuses what is not the container's own: written from
// inside it would change the host.
func checkSysctlNamespace(field, name, path string, plan *Plan) error {
	owner := SysctlNamespace(path)
	switch {
	case path == "kernel/hostname":
		return invalidValue(field, name, "use hostname instead")
	case owner == "":
		return invalidValue(field, name, "no namespace has it of its own, so it would change the host")
	}
	if _, ok := plan.HasNamespace(owner); !ok {
		return invalidValue(field, name, "needs its own %s namespace in linux.namespaces", owner)
	}
	return nil
}

// SysctlNamespace returns the type of the namespaces that each have the sysctl of
// their own, "" for none. The name is that in [Plan].
func SysctlNamespace(name string) specs.LinuxNamespaceType {
	switch {
	case slices.Contains(ipcSysctls[:], name), strings.HasPrefix(name, "fs/mqueue/"):
		return specs.IPCNamespace
	case strings.HasPrefix(name, "net/"):
		return specs.NetworkNamespace
	case strings.HasPrefix(name, "user/"):
		return specs.UserNamespace
	case name == "kernel/domainname":
		return specs.UTSNamespace
	}
	return ""
}
