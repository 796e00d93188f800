package egress

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"eggrun/egress/inside"
	"eggrun/internal/linux"

	"golang.org/x/sys/unix"
)

// checkDescriptors refuses descriptors that lead out of the container: sockets
// of another network namespace, directories, kernel objects. network is the path
// of the container's network namespace, "" for a new one. allowed lets sockets
// in, and nothing else.
func checkDescriptors(g *gaps, fds []int, network string, allowed bool) error {
	names := readDeviceNames()
	for _, fd := range fds {
		var stat unix.Stat_t
		err := unix.Fstat(fd, &stat)
		if errors.Is(err, unix.EBADF) {
			continue // closed by the caller: the program gets none
		}
		if err != nil {
			return fmt.Errorf("descriptor %d: %w", fd, os.NewSyscallError("stat", err))
		}
		fix, what := "drop it from --preserve-fds or the standard streams", ""
		switch stat.Mode & unix.S_IFMT {
		case unix.S_IFSOCK:
			if allowed {
				break
			}
			fix = "close it, or set eggrun.allow-fds"
			if what, err = socketWay(fd, network); err != nil {
				return fmt.Errorf("descriptor %d: %w", fd, err)
			}
		case unix.S_IFDIR:
			what = "a directory of the host, which leads to all others"
		case unix.S_IFCHR:
			what = deviceWay(fd, uint64(stat.Rdev), names)
		case unix.S_IFIFO:
		default:
			what = fileWay(fd, stat.Mode&unix.S_IFMT)
		}
		if what != "" {
			g.add(fix, "descriptor %d is %s", fd, what)
		}
	}
	return nil
}

// socketWay says how a socket leads out, "" if it does not.
//
// It belongs for ever to the network namespace in which it was made, whoever uses
// it, and can be used for other peers than the one it has: a listening TCP socket
// becomes an ordinary one by connect(2) to AF_UNSPEC. Not so an end of a unix
// socketpair(2) that is a stream; one of datagrams sends to any abstract name.
func socketWay(fd int, network string) (string, error) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil { // open with O_PATH: a name to connect to
		return "a unix socket's name", nil
	}
	switch domain {
	case unix.AF_UNIX:
		isPair, err := linux.IsUnnamedPair(fd)
		if err != nil || isPair {
			return "", err
		}
		return "a unix socket with a name or of datagrams", nil
	case unix.AF_INET, unix.AF_INET6:
		// ENOPROTOOPT: Linux before 5.14; then nothing is known of it.
		cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		if err == nil && network != "" {
			own, err := netnsCookie(network)
			if err != nil || own == cookie {
				return "", err
			}
		}
		return "a socket of another network namespace", nil
	}
	return fmt.Sprintf("a socket of family %d", domain), nil
}

// netnsCookie returns the number that stands for a network namespace, which no
// other one ever gets until the next boot, see SO_NETNS_COOKIE; Linux 5.14.
func netnsCookie(path string) (cookie uint64, err error) {
	ns, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	err = inside.Within(ns, func() (err error) {
		cookie, err = inside.OwnCookie()
		return err
	})
	return cookie, err
}

// deviceWay judges an open character device. Terminals are for the program to
// talk by; a tun device is that of the namespace in which it was opened.
func deviceWay(fd int, number uint64, names *deviceNames) string {
	const tunMinor = 200
	major, minor := unix.Major(number), unix.Minor(number)
	if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
		return ""
	}
	if names.allow(unix.S_IFCHR, major, minor) && (major != miscMajor || minor != tunMinor) {
		return ""
	}
	return fmt.Sprintf("the device %d:%d of the host", major, minor)
}

// harmlessObjects are the files without a name, made by system calls, that hold
// nothing but a state of their own.
var harmlessObjects = []string{
	"anon_inode:[eventfd]", "anon_inode:[timerfd]", "anon_inode:[signalfd]", "anon_inode:[eventpoll]", "anon_inode:inotify",
}

// Magic numbers of file systems that are not in package unix, see statfs(2).
const (
	nsfsMagic  = 0x6e736673
	pidfsMagic = 0x50494446
)

// fileWay judges a regular file and what has no format of its own, the kernel's
// objects: a pidfd hands out the descriptors of its process, a namespace can be
// joined, io_uring makes sockets, and files of procfs and the like are its
// levers, also when they are open for reading only: /proc/self/fd opens them
// anew.
func fileWay(fd int, format uint32) string {
	link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if strings.HasPrefix(link, "anon_inode:") || format != unix.S_IFREG {
		if slices.Contains(harmlessObjects, link) {
			return ""
		}
		return fmt.Sprintf("a kernel object, %q", link)
	}
	var filesystem unix.Statfs_t
	if err := unix.Fstatfs(fd, &filesystem); err != nil {
		return "a file of an unknown kind"
	}
	if filesystem.Type == nsfsMagic || filesystem.Type == pidfsMagic || isKernelMagic(&filesystem) {
		return fmt.Sprintf("a file of the kernel, %q", link)
	}
	return ""
}
