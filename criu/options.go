package main

import (
	"eggrun/internal/syncsocket"

	"github.com/checkpoint-restore/go-criu/v8/rpc"
	"golang.org/x/sys/unix"
)

// firstInherited is the number in criu of the first further file: 3 is its
// socket.
const firstInherited = 4

// cgroupModes are the values of --manage-cgroups-mode.
var cgroupModes = map[string]rpc.CriuCgMode{
	"": rpc.CriuCgMode_DEFAULT, "soft": rpc.CriuCgMode_SOFT, "full": rpc.CriuCgMode_FULL,
	"strict": rpc.CriuCgMode_STRICT, "ignore": rpc.CriuCgMode_IGNORE,
}

// options says in criu's words what is to be done. Directories are descriptors
// of this process, which criu opens in /proc; inherited ones are criu's own.
func (s *session) options() *rpc.CriuOpts {
	r, o := s.request, s.request.Options
	mode := cgroupModes[o.CgroupsMode]
	opts := &rpc.CriuOpts{
		ImagesDirFd:       new(int32(s.images.Fd())),
		LogLevel:          new(int32(4)),
		LogFile:           new(logName(r.Task)),
		NotifyScripts:     new(true),
		Root:              &r.Rootfs,
		ManageCgroups:     new(true), // what the mode was before criu 2.0
		ManageCgroupsMode: &mode,
		// The network of a container is its engine's.
		EmptyNs:         new(uint32(unix.CLONE_NEWNET)),
		OrphanPtsMaster: new(true),
		TcpEstablished:  &o.TCPEstablished,
		ExtUnixSk:       &o.ExtUnixSockets,
		ShellJob:        &o.ShellJob,
		FileLocks:       &o.FileLocks,
		AutoDedup:       &o.AutoDedup,
		LazyPages:       &o.LazyPages,
		External:        r.External,
	}
	if s.work != nil {
		opts.WorkDirFd = new(int32(s.work.Fd()))
	}
	if r.ConfigFile != "" {
		opts.ConfigFile = &r.ConfigFile
	}
	for _, m := range r.Mounts {
		opts.ExtMnt = append(opts.ExtMnt, &rpc.ExtMountMap{Key: new(m.Key), Val: new(m.Value)})
	}
	if r.Task == syncsocket.CriuRestore {
		s.restoreOptions(opts)
	} else {
		dumpOptions(opts, r)
	}
	return opts
}

func dumpOptions(opts *rpc.CriuOpts, r *syncsocket.Criu) {
	o := r.Options
	opts.Pid = new(int32(r.PID))
	opts.LeaveRunning = &o.LeaveRunning
	opts.TcpSkipInFlight = &o.TCPSkipInFlight
	opts.LinkRemap = &o.LinkRemap
	if r.FreezeCgroup != "" {
		opts.FreezeCgroup = &r.FreezeCgroup
	}
	if o.ParentPath != "" {
		opts.ParentImg = &o.ParentPath
		opts.TrackMem = new(true)
	}
	if o.PageServer != "" {
		opts.Ps = &rpc.CriuPageServerInfo{Address: &o.PageServer, Port: &o.PageServerPort}
	}
}

func (s *session) restoreOptions(opts *rpc.CriuOpts) {
	r, o := s.request, s.request.Options
	opts.Root = &r.RootDir
	// The restored init is to be a child of this process, not of criu's.
	opts.RstSibling = new(true)
	opts.EvasiveDevices = new(true)
	opts.TcpClose = &o.TCPClose
	if o.LSMProfile != "" {
		opts.LsmProfile = &o.LSMProfile
	}
	if o.LSMMountContext != "" {
		opts.LsmMountContext = &o.LSMMountContext
	}
	for controllers, path := range r.CgroupRoots {
		opts.CgRoot = append(opts.CgRoot, &rpc.CgroupRoot{Ctrl: new(controllers), Path: new(path)})
	}
	for kind, file := range r.JoinNS {
		opts.JoinNs = append(opts.JoinNs, &rpc.JoinNamespace{Ns: new(kind), NsFile: new(file)})
	}
	next := int32(firstInherited)
	for _, fd := range r.InheritFDs {
		number := int32(fd.Stream)
		if !fd.IsStream {
			number = next
			next++
		}
		opts.InheritFd = append(opts.InheritFd, &rpc.InheritFd{Key: new(fd.Key), Fd: &number})
	}
}
