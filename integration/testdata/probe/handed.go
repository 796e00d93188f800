package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// useFD gets out by a descriptor that this program was started with:
//
//	turn     a listening or connected socket, taken apart and connected to address
//	send     a socket of datagrams, to address
//	climb    a directory: prints the file address, from the root above it
//	reopen   a file: what happens when it is opened for writing
func useFD(way, number, address string) error {
	fd, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	switch way {
	case "turn":
		return turn(fd, address)
	case "send":
		to, err := socketAddress(address)
		if err != nil {
			return err
		}
		return unix.Sendto(fd, []byte("canary?\n"), 0, to)
	case "climb":
		return climb(fd, address)
	case "reopen":
		f, err := os.OpenFile("/proc/self/fd/"+number, os.O_WRONLY, 0)
		if err == nil {
			err = f.Close()
		}
		return err
	}
	return fmt.Errorf("unknown way %q", way)
}

// turn makes any TCP socket an ordinary one again, see connect(2).
func turn(fd int, address string) error {
	unspecific := make([]byte, unix.SizeofSockaddrInet4)
	if err := rawConnect(fd, unspecific); err != nil {
		return fmt.Errorf("disconnect: %w", err)
	}
	to, err := socketAddress(address)
	if err != nil {
		return err
	}
	if err := unix.Connect(fd, to); err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "socket")
	if _, err := io.WriteString(f, "canary?\n"); err != nil {
		return err
	}
	_, err = f.Read(make([]byte, 100))
	return err
}

func socketAddress(address string) (unix.Sockaddr, error) {
	if strings.HasPrefix(address, "@") {
		return &unix.SockaddrUnix{Name: address}, nil
	}
	resolved, err := net.ResolveUDPAddr("udp4", address)
	if err != nil {
		return nil, err
	}
	return &unix.SockaddrInet4{Port: resolved.Port, Addr: [4]byte(resolved.IP.To4())}, nil
}

// climb prints a file by its path below a directory.
func climb(fd int, path string) error {
	file, err := unix.Openat(fd, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(os.NewFile(uintptr(file), path))
	fmt.Printf("%s", text)
	return err
}
