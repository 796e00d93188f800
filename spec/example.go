package spec

import (
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Example returns the config.json that the spec verb writes: a shell in a
// read-only rootfs, isolated by every namespace but user and time. unified
// tells that the host has only cgroup v2, where the container gets a cgroup
// namespace too. It is what runc 1.5 writes but for the host name.
func Example(unified bool) *specs.Spec {
	capabilities := []string{"CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"}
	return &specs.Spec{
		Version:  specs.Version,
		Hostname: "eggrun",
		Root:     &specs.Root{Path: "rootfs", Readonly: true},
		Mounts:   exampleMounts(),
		Process: &specs.Process{
			Terminal: true,
			Args:     []string{"sh"},
			Env:      []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"},
			Cwd:      "/",
			// No inheritable and ambient ones: CVE-2022-29162.
			Capabilities: &specs.LinuxCapabilities{
				Bounding:  slices.Clone(capabilities),
				Permitted: slices.Clone(capabilities),
				Effective: slices.Clone(capabilities),
			},
			Rlimits:         []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 1024, Soft: 1024}},
			NoNewPrivileges: true,
		},
		Linux: &specs.Linux{
			Namespaces: exampleNamespaces(unified),
			Resources: &specs.LinuxResources{
				Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
			},
			MaskedPaths: []string{
				"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
				"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/sys/firmware", "/proc/scsi",
			},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
}

func exampleNamespaces(unified bool) []specs.LinuxNamespace {
	namespaces := []specs.LinuxNamespace{
		{Type: specs.PIDNamespace},
		{Type: specs.NetworkNamespace},
		{Type: specs.IPCNamespace},
		{Type: specs.UTSNamespace},
		{Type: specs.MountNamespace},
	}
	if unified {
		namespaces = append(namespaces, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	return namespaces
}

func exampleMounts() []specs.Mount {
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{
			Destination: "/dev", Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"},
		},
		{
			Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"},
		},
		{
			Destination: "/dev/shm", Type: "tmpfs", Source: "shm",
			Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"},
		},
		{
			Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue",
			Options: []string{"nosuid", "noexec", "nodev"},
		},
		{
			Destination: "/sys", Type: "sysfs", Source: "sysfs",
			Options: []string{"nosuid", "noexec", "nodev", "ro"},
		},
		{
			Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup",
			Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"},
		},
	}
}

// ExampleRootless returns the config.json that the spec verb writes with
// --rootless: [Example] for a user without privileges, who is root in a user
// namespace. uid and gid are the effective ids of the caller. The container
// has the host's network, no resources, a /sys bound from the host, and no
// mount that names an id other than 0.
func ExampleRootless(unified bool, uid, gid uint32) *specs.Spec {
	config := Example(unified)
	linux := config.Linux
	linux.Namespaces = slices.DeleteFunc(linux.Namespaces, func(ns specs.LinuxNamespace) bool {
		return ns.Type == specs.NetworkNamespace
	})
	linux.Namespaces = append(linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
	linux.UIDMappings = []specs.LinuxIDMapping{{ContainerID: 0, HostID: uid, Size: 1}}
	linux.GIDMappings = []specs.LinuxIDMapping{{ContainerID: 0, HostID: gid, Size: 1}}
	linux.Resources = nil
	for i := range config.Mounts {
		mount := &config.Mounts[i]
		if mount.Destination == "/sys" {
			// A new sysfs needs a network namespace of one's own.
			*mount = specs.Mount{
				Destination: "/sys", Type: "none", Source: "/sys",
				Options: []string{"rbind", "nosuid", "noexec", "nodev", "ro"},
			}
		}
		mount.Options = slices.DeleteFunc(mount.Options, func(option string) bool {
			return strings.HasPrefix(option, "uid=") || strings.HasPrefix(option, "gid=")
		})
	}
	return config
}
