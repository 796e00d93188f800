package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"eggrun/egress/resolver"
	"eggrun/internal/linux"
	"eggrun/sandbox"
	"eggrun/spec"

	"golang.org/x/sys/unix"
)

const resolvConf = "/etc/resolv.conf"

// maxResolvConf is more than any libc reads.
const maxResolvConf = 64 << 10

// readConf returns the resolv.conf that the engine wrote for the container, the
// source of a mount; what the image brings is nobody's word. It is empty where
// there is none.
func readConf(plan *spec.Plan) (*resolver.Conf, error) {
	m := confMount(plan)
	if m == nil {
		return &resolver.Conf{}, nil
	}
	return readConfFile(m.Source)
}

func readConfFile(path string) (*resolver.Conf, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return &resolver.Conf{}, nil // the mount will report it
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, maxResolvConf)
	n, err := f.Read(data)
	if n == 0 && err != nil {
		return &resolver.Conf{}, nil // empty, or a directory
	}
	conf := resolver.ParseConf(data[:n])
	return &conf, nil
}

// confMount returns the bind mount on /etc/resolv.conf, the last one of several.
func confMount(plan *spec.Plan) *spec.Mount {
	for i := len(plan.Mounts) - 1; i >= 0; i-- {
		if m := &plan.Mounts[i]; m.IsBind() && filepath.Clean(m.Target) == resolvConf {
			return m
		}
	}
	return nil
}

// needsOwnConf tells whether programs in the container would ask nobody: the
// table sends all questions for other addresses to eggrun's resolver, but what
// has no route never gets there.
func needsOwnConf(conf *resolver.Conf, closed bool) bool {
	reachable := func(a netip.Addr) bool {
		// Docker's resolver is there in the container's own namespace.
		return a == netip.AddrFrom4([4]byte{127, 0, 0, 11}) || !closed && !a.IsLoopback()
	}
	for _, a := range conf.Nameservers {
		if !reachable(a) {
			return true
		}
	}
	return len(conf.Nameservers) == 0
}

// ownConf is a resolv.conf that names eggrun's resolver and keeps the rest. A
// closed namespace has no names of its own to search.
func ownConf(conf *resolver.Conf, closed bool) string {
	text := fmt.Sprintf("nameserver %s\n", resolver.Addr())
	if !closed && len(conf.Search) > 0 {
		text += "search " + strings.Join(conf.Search, " ") + "\n"
	}
	if !closed && conf.Ndots > 1 {
		text += fmt.Sprintf("options ndots:%d\n", conf.Ndots)
	}
	return text
}

// mountConf makes file, of the host, the container's resolv.conf. Where the
// image has none and can't get one it stays as it is: libc then asks 127.0.0.1.
func mountConf(plan *spec.Plan, file string) error {
	if m := confMount(plan); m != nil {
		m.Source, m.IDMap, m.Recursive, m.Checked = file, nil, false, nil
		return nil
	}
	ok, err := canMountConf(plan.Rootfs)
	if err != nil || !ok {
		return err
	}
	m := spec.Mount{
		Mount: sandbox.Mount{Source: file, Target: resolvConf, ReadOnly: true},
		Set:   unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC,
	}
	plan.Mounts = append(plan.Mounts, m)
	plan.Config.Mounts = append(plan.Config.Mounts, m.Mount)
	return nil
}

// canMountConf tells whether rootfs has a /etc/resolv.conf, looked up as the
// container would, or can be given one.
func canMountConf(rootfs string) (bool, error) {
	root, err := os.OpenFile(rootfs, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return false, fmt.Errorf("rootfs: %w", err)
	}
	defer root.Close()
	f, err := linux.OpenInRoot(root, resolvConf, unix.O_PATH, 0)
	if err == nil {
		return true, f.Close()
	}
	if !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	// A link that leads nowhere can't be mounted on.
	if link, err := linux.OpenInRoot(root, resolvConf, unix.O_PATH|unix.O_NOFOLLOW, 0); err == nil {
		return false, link.Close()
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(rootfs, &fs); err != nil {
		return false, &os.PathError{Op: "statfs", Path: rootfs, Err: err}
	}
	return fs.Flags&unix.ST_RDONLY == 0, nil
}
