package initproc

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// agent is what the tests run in the sandbox where a shell would not do.
//
//	signals    prints "ready", then each signal that arrives, until SIGUSR2
//	do OP...   does what it is told, and prints "ok" or the name of the errno
//	serve      as do, with one OP a line of standard input, after "ready"
func agent(args []string) int {
	switch args[0] {
	case "signals":
		return printSignals()
	case "do":
		fmt.Println(do(strings.Join(args[1:], " ")))
	case "serve":
		fmt.Println("ready")
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			fmt.Printf("%s: %s\n", lines.Text(), do(lines.Text()))
		}
	}
	return 0
}

func printSignals() int {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	fmt.Println("ready")
	for sig := range signals {
		switch sig {
		case unix.SIGURG, unix.SIGCHLD: // the Go runtime's own
			continue
		}
		fmt.Println("got", unix.SignalName(sig.(syscall.Signal)))
		if sig == unix.SIGUSR2 {
			break
		}
	}
	return 0
}

// do does one operation.
func do(op string) string {
	verb, arg, _ := strings.Cut(op, " ")
	pid, _ := strconv.Atoi(arg)
	var err error
	switch verb {
	case "read": // the first bytes of a file
		var f *os.File
		if f, err = os.Open(arg); err == nil {
			_, err = f.Read(make([]byte, 1))
			f.Close()
		}
	case "write": // opens for writing
		var f *os.File
		if f, err = os.OpenFile(arg, os.O_RDWR, 0); err == nil {
			f.Close()
		}
	case "list": // a directory
		_, err = os.ReadDir(arg)
	case "readlink":
		_, err = os.Readlink(arg)
	case "dial": // a unix socket
		var c net.Conn
		if c, err = net.Dial("unix", arg); err == nil {
			c.Close()
		}
	case "exchange": // two names
		from, to, _ := strings.Cut(arg, " ")
		err = unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	case "kill": // only whether it could
		err = unix.Kill(pid, 0)
	case "pidfd": // the same by a directory of /proc, see pidfd_send_signal(2)
		var f *os.File
		if f, err = os.Open("/proc/" + arg); err == nil {
			err = unix.PidfdSendSignal(int(f.Fd()), 0, nil, 0)
			f.Close()
		}
	default:
		return "unknown"
	}
	return errnoOf(err)
}

func errnoOf(err error) string {
	for err != nil {
		if errno, ok := err.(unix.Errno); ok { //nolint:errorlint // unwrapped here
			return unix.ErrnoName(errno)
		}
		unwrapper, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err.Error()
		}
		err = unwrapper.Unwrap()
	}
	return "ok"
}
