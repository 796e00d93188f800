package syncsocket

// CriuTask is what the program eggrun-criu is started for.
type CriuTask string

const (
	// CriuCheck looks whether criu(8) works on this kernel.
	CriuCheck CriuTask = "check"
	// CriuPreDump writes memory only; the processes go on.
	CriuPreDump CriuTask = "pre-dump"
	// CriuDump writes everything.
	CriuDump CriuTask = "dump"
	// CriuRestore makes the processes again. The first is left to the reaper of
	// eggrun-criu, which ends.
	CriuRestore CriuTask = "restore"
)

// Criu is the body of a Request to eggrun-criu, decided by checkpoint and
// restore. Its files are the status descriptor, if there is one, and those of
// InheritFDs that are no streams.
//
//	checkpoint, restore                 eggrun-criu                   criu swrk
//	 ── Request ──────────────────────▶
//	                                     ── request ─────────────────▶
//	 ◀── Console (terminal only) ─────── ◀── orphan-pts-master ───────
//	 ◀── Hooks (pid; restore only) ───── ◀── setup-namespaces ────────
//	prestart, createRuntime
//	 ── Proceed ──────────────────────▶  ── notify success ──────────▶
//	 ◀── Ready (pid) ─────────────────── ◀── response ────────────────
//
// Instead of any of its messages eggrun-criu may send Failed.
type Criu struct {
	Task    CriuTask    `json:"task"`
	Options CriuOptions `json:"options"`
	// Images and Work are directories by their absolute paths, for a mount
	// namespace of one's own has no use for descriptors of another. Work, ""
	// for Images, is where criu writes its log.
	Images string `json:"images,omitempty"`
	Work   string `json:"work,omitempty"`
	// HasStatus tells whether there is a status descriptor.
	HasStatus bool `json:"hasStatus,omitempty"`

	// PID is the first process of what is dumped.
	PID int `json:"pid,omitempty"`
	// Rootfs is the root file system's place on the host.
	Rootfs string `json:"rootfs,omitempty"`
	// RootDir is an empty directory on which a restore mounts Rootfs, in a
	// mount namespace of its own.
	RootDir string `json:"rootDir,omitempty"`
	// MountPoints are made below Rootfs before a restore, in this order.
	MountPoints []CriuMountPoint `json:"mountPoints,omitempty"`

	// ConfigFile is a configuration file of criu, "" for none.
	ConfigFile string `json:"configFile,omitempty"`
	// FreezeCgroup is the directory of the container's freezer, "" for none.
	FreezeCgroup string `json:"freezeCgroup,omitempty"`
	// CgroupRoots are the cgroups of a restore, by v1 controllers or under "".
	CgroupRoots map[string]string `json:"cgroupRoots,omitempty"`
	// External are namespaces that are not dumped: "net[INODE]:KEY".
	External []string `json:"external,omitempty"`
	// Mounts are those from outside of the container: of a dump its mount
	// point and a name, of a restore that name and the path on the host.
	Mounts []CriuMount `json:"mounts,omitempty"`
	// JoinNS are namespaces to be restored into, by criu's names of their
	// types.
	JoinNS map[string]string `json:"joinNS,omitempty"`
	// InheritFDs stand for descriptors of the dump.
	InheritFDs []CriuInherit `json:"inheritFDs,omitempty"`
}

// CriuOptions are what the command line says, as criu knows it.
type CriuOptions struct {
	// ParentPath is relative to the images, "" for none.
	ParentPath      string `json:"parentPath,omitempty"`
	LeaveRunning    bool   `json:"leaveRunning,omitempty"`
	TCPEstablished  bool   `json:"tcpEstablished,omitempty"`
	TCPClose        bool   `json:"tcpClose,omitempty"`
	TCPSkipInFlight bool   `json:"tcpSkipInFlight,omitempty"`
	LinkRemap       bool   `json:"linkRemap,omitempty"`
	ExtUnixSockets  bool   `json:"extUnixSockets,omitempty"`
	ShellJob        bool   `json:"shellJob,omitempty"`
	FileLocks       bool   `json:"fileLocks,omitempty"`
	LazyPages       bool   `json:"lazyPages,omitempty"`
	AutoDedup       bool   `json:"autoDedup,omitempty"`
	// CgroupsMode is soft, full, strict, ignore or "" for criu's default.
	CgroupsMode string `json:"cgroupsMode,omitempty"`
	// PageServer is an address, "" for none, and PageServerPort its port.
	PageServer      string `json:"pageServer,omitempty"`
	PageServerPort  int32  `json:"pageServerPort,omitempty"`
	LSMProfile      string `json:"lsmProfile,omitempty"`
	LSMMountContext string `json:"lsmMountContext,omitempty"`
}

// CriuMount is one mount from outside.
type CriuMount struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// CriuMountPoint is a place for a mount.
type CriuMountPoint struct {
	// Target is its path in the container, through whatever links are there.
	Target string `json:"target"`
	// Source is what a bind mount shows, "" for another mount, whose point is
	// a directory.
	Source string `json:"source,omitempty"`
}

// CriuInherit gives a descriptor to a restore.
type CriuInherit struct {
	Key string `json:"key"`
	// IsStream is set where it is one of the standard streams, Stream.
	IsStream bool `json:"isStream,omitempty"`
	Stream   int  `json:"stream,omitempty"`
}

// CriuStatus is the body of Hooks and of Ready from eggrun-criu.
type CriuStatus struct {
	// PID is the restored first process, 0 where nothing is restored.
	PID int `json:"pid,omitempty"`
}
