package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawConnect is connect(2) to an address that package unix would not encode.
func rawConnect(fd int, address []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&address[0])), uintptr(len(address)))
	if errno != 0 {
		return errno
	}
	return nil
}
