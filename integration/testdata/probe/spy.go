package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// spy looks into every process that comes up until the file stop exists, as a
// container's root does who waits for the runtime to enter. It says what it got:
//
//	executes PATH, holds PATH       read in /proc/PID/exe and /proc/PID/fd
//	environment NAME=VALUE          read in /proc/PID/environ
//	traced COMMAND                  stopped by ptrace(2)
//	wrote PATH, kept from PATH: …   tried, in the end, with what was executed
type spy struct {
	seen map[string]bool
	// programs are the files that others executed, held open.
	programs map[string]int
	trace    bool
}

func runSpy(stop string, trace bool) {
	// Only the thread that traces may let go again.
	runtime.LockOSThread()
	s := &spy{seen: map[string]bool{}, programs: map[string]int{}, trace: trace}
	self, known := os.Getpid(), 0
	fmt.Println("spying")
	for unix.Access(stop, unix.F_OK) != nil {
		last := lastPID()
		// A process that has just come up may be another one by the time of the
		// next look: it executes something else.
		for pid := max(last-20, 1, min(known, last)-20); pid <= last+2; pid++ {
			if pid != self {
				s.look(pid)
			}
		}
		known = last
	}
	s.write()
}

// lastPID returns the number of the youngest process.
func lastPID() int {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		fail(err)
	}
	fields := strings.Fields(string(load))
	last, _ := strconv.Atoi(fields[len(fields)-1])
	return last
}

func (s *spy) say(what string) {
	if !s.seen[what] {
		s.seen[what] = true
		fmt.Println(what)
	}
}

func (s *spy) look(pid int) {
	dir := "/proc/" + strconv.Itoa(pid)
	if s.trace {
		s.traceOne(pid, dir)
		return
	}
	if fd, err := unix.Open(dir+"/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		path := readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if _, ok := s.programs[path]; ok {
			unix.Close(fd)
		} else {
			s.programs[path] = fd
		}
		s.say("executes " + path)
	} else if !errors.Is(err, unix.ENOENT) {
		s.say("program: " + err.Error())
		return
	} else {
		return
	}
	for fd := range 30 {
		if path := readlink(fmt.Sprintf("%s/fd/%d", dir, fd)); strings.HasPrefix(path, "/") {
			s.say("holds " + path)
		}
	}
	environ, _ := os.ReadFile(dir + "/environ")
	for variable := range bytes.SplitSeq(environ, []byte{0}) {
		if len(variable) > 0 {
			s.say("environment " + string(variable))
		}
	}
}

func readlink(path string) string {
	target, _ := os.Readlink(path)
	return target
}

func (s *spy) traceOne(pid int, dir string) {
	if err := unix.PtraceSeize(pid); err != nil {
		if !errors.Is(err, unix.ESRCH) {
			s.say("trace: " + err.Error())
		}
		return
	}
	command, _ := os.ReadFile(dir + "/cmdline")
	status, _ := os.ReadFile(dir + "/status")
	_, effective, _ := strings.Cut(string(status), "CapEff:\t")
	effective, _, _ = strings.Cut(effective, "\n")
	s.say(fmt.Sprintf("traced %s with %s", bytes.ReplaceAll(bytes.TrimRight(command, "\x00"), []byte{0}, []byte(" ")), effective))
	if err := unix.PtraceInterrupt(pid); err == nil {
		var wait unix.WaitStatus
		_, _ = unix.Wait4(pid, &wait, unix.WALL, nil)
	}
	_ = unix.PtraceDetach(pid)
}

// write waits until a program is no longer busy.
func (s *spy) write() {
	for path, fd := range s.programs {
		if path == "/probe" || path == "/bin/busybox" { // of other tests too
			continue
		}
		name := "/proc/self/fd/" + strconv.Itoa(fd)
		writable, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		for deadline := time.Now().Add(patience); errors.Is(err, unix.ETXTBSY) && time.Now().Before(deadline); {
			writable, err = unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		}
		if err == nil {
			_, err = unix.Write(writable, []byte("#!/hostile\n"))
		}
		if err != nil {
			fmt.Printf("kept from %s: %v\n", path, err)
			continue
		}
		fmt.Printf("wrote %s\n", path)
	}
}
