package check

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"

	"eggrun/egress/inside"
	"eggrun/internal/linux"
	"eggrun/policy"

	"golang.org/x/sys/unix"
)

// TryArgument is the argument of the verb with which it starts itself to call
// [Try].
const TryArgument = "try"

// Outcome is how one try ended, for [Result.Cause].
type outcome struct {
	Detail string `json:"detail,omitempty"`
	Err    string `json:"err,omitempty"`
}

// try is something that the kernel, or whoever runs us, may not allow.
type try struct {
	name string
	do   func(dir string) (detail string, err error)
	// without says what is not to be had where it fails; "" where nothing is.
	without string
	fix     string
}

const (
	allowIt = "allow it in the seccomp profile or security module that this runs under"
	newer   = "use a newer kernel, or "
)

// tablesTry is the name of the one that attempts depend on.
const tablesTry = "nftables"

// tries are all of them. Like the other tables here it is a function, so that the
// other verbs do not pay for it when they start.
func tries() []try {
	return []try{
		namespace("network namespace", unix.CLONE_NEWNET, ""),
		namespace("mount namespace", unix.CLONE_NEWNS, ""),
		namespace("pid namespace", unix.CLONE_NEWPID, ""),
		namespace("ipc namespace", unix.CLONE_NEWIPC, ""),
		namespace("uts namespace", unix.CLONE_NEWUTS, ""),
		namespace("cgroup namespace", unix.CLONE_NEWCGROUP, "only containers with one need it, as engines make them on cgroup v2"),
		namespace("time namespace", unix.CLONE_NEWTIME, "only containers with one need it, as new versions of docker make them"),
		{"pidfds", tryPidfds, "", "allow pidfd_open and pidfd_getfd in the seccomp profile that this runs under"},
		{"openat2", tryOpenat2, "", "allow openat2 in the seccomp profile that this runs under"},
		{"mount API", in(unix.CLONE_NEWNS, tryMount), "", "allow fsopen, fsmount, move_mount and mount_setattr in the seccomp profile that this runs under"},
		{"idmapped mounts", in(unix.CLONE_NEWNS, tryIDMap), "only mounts with uidMappings need them", "use a kernel from Linux 6.3 on"},
		{"sealed program", in(unix.CLONE_NEWNS, trySealed), "", "allow memfd_create, and set the sysctl vm.memfd_noexec to less than 2"},
		{"landlock", tryLandlock, "the sidecar is confined without it", "use a kernel from Linux 5.13 on and add landlock to its parameter lsm="},
		{"network cookie", tryCookie, "a container in a network namespace that an engine made can have no list", "use a kernel from Linux 5.14 on"},
		{tablesTry, in(unix.CLONE_NEWNET, tryWall), "a list needs a container without any interface, and programs that know no proxy reach only the ports of its rules", "modprobe -a nf_tables nft_chain_nat nft_redir nft_reject_inet nft_ct nft_fib_inet; a kernel has them by CONFIG_NF_TABLES_INET, NFT_NAT, NFT_REDIR, NFT_REJECT, NFT_CT and NFT_FIB_INET"},
		{"IPv6", in(unix.CLONE_NEWNET, tryIPv6), "programs that use ::1 fail in containers with a list", "boot without ipv6.disable=1"},
	}
}

// namespace tries to make one of a kind.
func namespace(name string, flag int, without string) try {
	return try{name, in(flag, func(string) (string, error) { return "", nil }), without, newer + allowIt}
}

// in returns do on a thread in new namespaces, which ends with it.
func in(flags int, do func(dir string) (string, error)) func(dir string) (string, error) {
	return func(dir string) (detail string, err error) {
		done := make(chan struct{})
		go func() {
			runtime.LockOSThread() // and never unlocked
			defer close(done)
			if err = unix.Unshare(flags); err != nil {
				err = os.NewSyscallError("unshare", err)
				return
			}
			detail, err = do(dir)
		}()
		<-done
		return detail, err
	}
}

// Try makes all tries and returns what came out of each, to be printed as JSON.
// The process must be root of a user namespace, and end soon. dir is an existing
// empty directory.
func Try(dir string) any {
	outcomes := map[string]outcome{}
	for _, t := range tries() {
		detail, err := t.do(dir)
		o := outcome{Detail: detail}
		if err != nil {
			o.Err = err.Error()
		}
		outcomes[t.name] = o
	}
	return outcomes
}

func tryPidfds(string) (string, error) {
	pidfd, err := linux.PidfdOpen(os.Getpid())
	if err != nil {
		return "", err
	}
	defer pidfd.Close()
	f, err := linux.PidfdGetFD(pidfd, int(pidfd.Fd()))
	if err != nil {
		return "", err
	}
	return "", f.Close()
}

func tryOpenat2(dir string) (string, error) {
	root, err := os.Open(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	f, err := linux.OpenInRoot(root, ".", unix.O_PATH, 0)
	if err != nil {
		return "", err
	}
	return "", f.Close()
}

func tryMount(string) (string, error) {
	tree, err := linux.NewMount("tmpfs", "eggrun", nil, 0)
	if err != nil {
		return "", err
	}
	defer tree.Close()
	return "", linux.SetMountAttr(tree, unix.MOUNT_ATTR_RDONLY, 0, false)
}

// tryIDMap takes the file system of temporary files, as a bind mount would, or a
// tmpfs, the only one that a user can mount.
func tryIDMap(dir string) (string, error) {
	userNS, err := linux.NewUserNamespace(func(pid int) error {
		for _, name := range []string{"uid_map", "gid_map"} {
			if err := os.WriteFile("/proc/"+strconv.Itoa(pid)+"/"+name, []byte("0 0 1"), 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	defer userNS.Close()
	if tree, err := linux.CloneTree(dir, false); err == nil {
		err := linux.SetIDMap(tree, userNS, false)
		tree.Close()
		if err == nil {
			return "", nil
		}
	}
	tree, err := linux.NewMount("tmpfs", "eggrun", nil, 0)
	if err != nil {
		return "", err
	}
	defer tree.Close()
	return "of tmpfs, not of " + dir, linux.SetIDMap(tree, userNS, false)
}

func trySealed(dir string) (string, error) {
	exe, err := linux.SealedSelf(dir)
	if err != nil {
		return "", err
	}
	defer exe.Close()
	// What enters a container's user namespace is always such a copy.
	copied, err := linux.UnreadableSelf()
	if err != nil {
		return "", err
	}
	defer copied.Close()
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(exe.Fd()), &stat); err != nil {
		return "", os.NewSyscallError("fstatfs", err)
	}
	if stat.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return "by an overlay", nil
	}
	return "by a copy in memory for each exec: no overlay can be mounted", nil
}

func tryLandlock(string) (string, error) {
	version, err := linux.LandlockVersion()
	return fmt.Sprintf("version %d", version), err
}

func tryCookie(string) (string, error) {
	_, err := inside.OwnCookie()
	return "", err
}

// tryWall makes a wall as it is made for a container, with all kinds of rules.
func tryWall(string) (string, error) {
	sockets, err := inside.Build(&inside.Wall{
		Peers:       policy.Peers{OnLink: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}},
		Inbound:     policy.Inbound{OnLink: true, Ports: []uint16{80}},
		Resolvers:   []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		Transparent: true,
		New:         true,
	})
	if err != nil {
		return "", err
	}
	defer sockets.Close()
	if sockets.NoTables {
		return "", errors.New("the kernel lacks nftables or one of the modules behind it")
	}
	return "", nil
}

func tryIPv6(string) (string, error) {
	if err := inside.LoopbackUp(); err != nil {
		return "", err
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	return "", os.NewSyscallError("bind ::1", unix.Bind(fd, &unix.SockaddrInet6{Addr: netip.IPv6Loopback().As16()}))
}
