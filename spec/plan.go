// Package spec turns an OCI bundle's config.json into a [Plan]: everything
// that create decided, in the order in which it is applied.
//
// It is pure: bytes in, plan out, no system call. What config.json asks for and
// this runtime does not apply is an error that names the field, never silence.
package spec

import (
	"eggrun/sandbox"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Plan is a container as create decided it. It is sent to the init process as
// JSON; fields that only the host side needs are left out of that.
type Plan struct {
	// Config is the plan in the vocabulary of package sandbox. Deny (masked
	// paths), DenyWrite (readonly paths), Domains, NetworkNeed and ProxyPort
	// are applied from here; Mounts and the three limits are a view of
	// Plan.Mounts and Plan.Process.Rlimits.
	Config sandbox.Config `json:"config"`

	// PolicyDeny and PolicyDenyWrite are like Config.Deny and DenyWrite, but
	// those of the policy, which are held to for certain: also where the
	// container could make or move what is there, and under every name.
	PolicyDeny      []string `json:"policyDeny,omitempty"`
	PolicyDenyWrite []string `json:"policyDenyWrite,omitempty"`

	// OCIVersion is the ociVersion of config.json, never judged.
	OCIVersion string `json:"ociVersion"`
	// Annotations are those of config.json, for state and for hooks.
	Annotations map[string]string `json:"annotations,omitempty"`

	// Rootfs is the absolute host path of the root file system.
	Rootfs string `json:"rootfs"`
	// RootReadonly makes the root mount read-only once everything is in place.
	RootReadonly bool `json:"rootReadonly,omitempty"`
	// RootPropagation is one of the MS_SHARED, MS_SLAVE, MS_PRIVATE,
	// MS_UNBINDABLE bits with or without MS_REC, 0 where config.json is silent.
	RootPropagation uint64 `json:"rootPropagation,omitempty"`

	// Mounts are made in this order, each over what came before.
	Mounts []Mount `json:"mounts"`
	// PopulateDev is true where /dev is not bind-mounted from the host, so that
	// device nodes and the links of the specification are made there.
	PopulateDev bool `json:"populateDev,omitempty"`
	// Devices are the default devices of the specification, then
	// linux.devices; a later one of the same path replaces the earlier.
	Devices []Device `json:"devices,omitempty"`

	// MountLabel is the SELinux label of new file systems, "" for none.
	MountLabel string `json:"mountLabel,omitempty"`
	// MountContext is the parameter of a file system that takes it: fscontext,
	// defcontext or rootcontext, see mount(8), or context, also where it is "".
	MountContext string `json:"mountContext,omitempty"`

	// KeepGroups leaves the process the supplementary groups of the caller of
	// create, and process.user.additionalGids aside.
	KeepGroups bool `json:"keepGroups,omitempty"`

	Hostname   string `json:"hostname,omitempty"`
	Domainname string `json:"domainname,omitempty"`
	// Personality is the execution domain of personality(2), nil where
	// config.json is silent.
	Personality *uint32 `json:"personality,omitempty"`
	// MemoryPolicy is nil where config.json is silent.
	MemoryPolicy *MemoryPolicy `json:"memoryPolicy,omitempty"`
	// Sysctl maps a name relative to /proc/sys, with slashes
	// ("net/ipv4/ip_forward"), to its value.
	Sysctl map[string]string `json:"sysctl,omitempty"`

	// Namespaces has at most one entry a type, in the order of config.json.
	Namespaces  []Namespace            `json:"namespaces"`
	UIDMappings []specs.LinuxIDMapping `json:"uidMappings,omitempty"`
	GIDMappings []specs.LinuxIDMapping `json:"gidMappings,omitempty"`

	// Process is nil for a container that can be created but not started.
	Process *Process `json:"process,omitempty"`

	// CreateContainerHooks and StartContainerHooks run inside, by init.
	CreateContainerHooks []specs.Hook `json:"createContainerHooks,omitempty"`
	StartContainerHooks  []specs.Hook `json:"startContainerHooks,omitempty"`
	// Hooks are all of config.json's, for those that run on the host.
	Hooks specs.Hooks `json:"-"`

	// CgroupsPath is linux.cgroupsPath as written.
	CgroupsPath string `json:"-"`
	// Subgroup is the name of a cgroup below the systemd scope, for the
	// container to be in, and DelegateCgroup that of one below it, for the
	// processes; "" for none.
	Subgroup, DelegateCgroup string `json:"-"`
	// TimeOffsets are sorted by clock; only a new time namespace has any.
	TimeOffsets []TimeOffset `json:"-"`
	// Resources is linux.resources, nil where absent.
	Resources *specs.LinuxResources `json:"-"`
	// Seccomp is linux.seccomp, nil where absent or without a rule or action
	// to apply. Its listener path is "" where no call is handed to an agent.
	Seccomp *specs.LinuxSeccomp `json:"-"`
	// NetDevices are sorted by their names on the host.
	NetDevices []NetDevice `json:"-"`
	// IntelRdt is linux.intelRdt, nil where absent.
	IntelRdt *specs.LinuxIntelRdt `json:"-"`
}

// Mount is one mount of config.json, its options taken apart.
type Mount struct {
	// Mount has Source (absolute host path for a bind mount, else the
	// mount's name), Target (absolute path in the container) and ReadOnly.
	sandbox.Mount
	// Type is the file system type, "" for a bind mount.
	Type string `json:"type,omitempty"`
	// Recursive is set for rbind.
	Recursive bool `json:"recursive,omitempty"`
	// Set and Clear are MOUNT_ATTR_* bits for the mount itself.
	Set   uint64 `json:"set,omitempty"`
	Clear uint64 `json:"clear,omitempty"`
	// RecSet and RecClear are MOUNT_ATTR_* bits for the mount and all mounts
	// below it (the options that start with r: rro, rnosuid, …).
	RecSet   uint64 `json:"recSet,omitempty"`
	RecClear uint64 `json:"recClear,omitempty"`
	// Propagation is one of the MS_SHARED, MS_SLAVE, MS_PRIVATE,
	// MS_UNBINDABLE bits with or without MS_REC, 0 for the default.
	Propagation uint64 `json:"propagation,omitempty"`
	// Data are the file system's own parameters, "key" or "key=value", with
	// the superblock flags of the specification (ro, sync, dirsync, lazytime,
	// mand, iversion) before them; see fsconfig(2), which knows all of these
	// but iversion, MS_I_VERSION of mount(2). ro is left to Set for the file
	// systems of the kernel, tmpfs among them. Always empty for a bind mount.
	Data []string `json:"data,omitempty"`
	// CopyUp fills a new tmpfs with what it hides.
	CopyUp bool `json:"copyUp,omitempty"`
	// Checked is what the source of a bind mount was when it was judged, and
	// must still be; nil for whatever is there. It stays with create.
	Checked *FileID `json:"-"`
	// IDMap is nil for a mount with the owners of its file system. Create
	// applies it.
	IDMap *IDMap `json:"idMap,omitempty"`
}

// SetMounts replaces the mounts, and the view of them in Config.
func (p *Plan) SetMounts(mounts []Mount) {
	p.Mounts, p.Config.Mounts = mounts, nil
	for i := range mounts {
		if mounts[i].IsBind() {
			p.Config.Mounts = append(p.Config.Mounts, mounts[i].Mount)
		}
	}
}

// FileID is what stat(2) says of which file something is.
type FileID struct{ Device, Inode uint64 }

// IsBind tells whether the mount shows an existing tree of the host.
func (m *Mount) IsBind() bool { return m.Type == "" }

// Device is a device node below /dev or elsewhere in the container.
type Device struct {
	// Path is absolute in the container.
	Path string `json:"path"`
	// Mode has the S_IFCHR, S_IFBLK or S_IFIFO bit and the permissions.
	Mode         uint32 `json:"mode"`
	Major, Minor uint32
	UID, GID     uint32
}

// Namespace is one entry of linux.namespaces.
type Namespace struct {
	Type specs.LinuxNamespaceType `json:"type"`
	// Path is absolute, or "" for a new namespace.
	Path string `json:"path,omitempty"`
}

// Process is the user's program and what it runs with.
type Process struct {
	Args []string `json:"args"`
	Env  []string `json:"env,omitempty"`
	// ClosedEnv are variables that come to Env, in the place of those of the same
	// names, unless an engine has opened the network namespace by start.
	ClosedEnv []string   `json:"closedEnv,omitempty"`
	Cwd       string     `json:"cwd"`
	Terminal  bool       `json:"terminal,omitempty"`
	Console   *specs.Box `json:"console,omitempty"`

	User            specs.User               `json:"user"`
	Capabilities    *specs.LinuxCapabilities `json:"capabilities,omitempty"`
	Rlimits         []Rlimit                 `json:"rlimits,omitempty"`
	NoNewPrivileges bool                     `json:"noNewPrivileges,omitempty"`
	// ApparmorProfile is "" for none.
	ApparmorProfile string `json:"apparmorProfile,omitempty"`
	// SelinuxLabel is "" for none.
	SelinuxLabel string `json:"selinuxLabel,omitempty"`
	// OOMScoreAdj is nil where config.json is silent.
	OOMScoreAdj *int `json:"oomScoreAdj,omitempty"`
	// Scheduler is nil where config.json is silent.
	Scheduler *Scheduler `json:"scheduler,omitempty"`
	// IOPriority is a value for ioprio_set(2), nil where config.json is silent.
	IOPriority *int `json:"ioPriority,omitempty"`
	// ExecCPUAffinity is not for the container's init, but for what is
	// executed in it later; nil where config.json is silent.
	ExecCPUAffinity *specs.CPUAffinity `json:"execCPUAffinity,omitempty"`
}

// Rlimit is one process.rlimits entry, its name resolved.
type Rlimit struct {
	// Resource is an RLIMIT_* number.
	Resource int `json:"resource"`
	// Soft and Hard are in the resource's own unit, see setrlimit(2).
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

// HasNamespace tells whether the container has a namespace of that type of its
// own, new or joined, and its path, "" where new.
func (p *Plan) HasNamespace(kind specs.LinuxNamespaceType) (path string, ok bool) {
	for _, ns := range p.Namespaces {
		if ns.Type == kind {
			return ns.Path, true
		}
	}
	return "", false
}
