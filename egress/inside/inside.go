// Package inside is what is done inside a container's network namespace to make
// the wall: nothing leaves it but to peers and in answer to whoever connected,
// and what a program sends elsewhere comes to sockets that the sidecar, which
// stands outside, serves.
//
// [Build] does so at create, before the container's program can run, whatever
// interfaces the engine has added or will add. [Recheck] looks again at start
// and exec.
package inside

import (
	"os"

	"golang.org/x/sys/unix"
)

// LoopbackUp brings up lo of the calling thread's network namespace, unless it
// is. It needs CAP_NET_ADMIN over the namespace.
func LoopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("loopback: socket", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil {
		return os.NewSyscallError("loopback: get flags", err)
	}
	if request.Uint16()&unix.IFF_UP != 0 {
		return nil
	}
	request.SetUint16(request.Uint16() | unix.IFF_UP)
	return os.NewSyscallError("loopback: set up", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request))
}
