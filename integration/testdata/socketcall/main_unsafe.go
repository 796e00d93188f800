//go:build 386

// Command socketcall makes sockets in both ways that a 32-bit program has: by
// socketcall(2), whose arguments lie in memory, where no filter sees them, and by
// socket(2). It prints a line for each, "ok" or the error.
package main

import (
	"fmt"
	"syscall"
	"unsafe"
)

func main() {
	const (
		sysSocket = 359 // since Linux 4.3
		vsock     = 40
	)
	for _, family := range []uintptr{syscall.AF_INET, syscall.AF_PACKET, vsock} {
		kind := uintptr(syscall.SOCK_STREAM)
		if family == syscall.AF_PACKET {
			kind = syscall.SOCK_RAW
		}
		const makeSocket = 1
		arguments := [3]uintptr{family, kind, 0}
		fd, _, errno := syscall.RawSyscall(syscall.SYS_SOCKETCALL, makeSocket, uintptr(unsafe.Pointer(&arguments)), 0)
		report("socketcall", family, fd, errno)
		fd, _, errno = syscall.RawSyscall(sysSocket, family, kind, 0)
		report("socket", family, fd, errno)
	}
}

func report(call string, family, fd uintptr, errno syscall.Errno) {
	outcome := "ok"
	if errno != 0 {
		outcome = errno.Error()
	} else {
		_ = syscall.Close(int(fd))
	}
	fmt.Printf("%s %d %s\n", call, family, outcome)
}
