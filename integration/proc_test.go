package integration

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// process is one row of /proc.
type process struct {
	pid, ppid int
	session   int
	state     byte
	cmdline   string // arguments joined by spaces, empty for a zombie
	exe       string
	cgroup    string // the text of /proc/PID/cgroup
	environ   string // variables separated by NUL, empty when not readable
}

// processStates lists what /proc shows, only with pid, parent, session and
// state, without what ended meanwhile.
func processStates() []process {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	list := make([]process, 0, len(dirs))
	for _, dir := range dirs {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue
		}
		// The name may hold spaces and parentheses; what follows it does not.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		p := process{state: fields[0][0]}
		p.pid, _ = strconv.Atoi(filepath.Base(dir))
		p.ppid, _ = strconv.Atoi(fields[1])
		p.session, _ = strconv.Atoi(fields[3])
		list = append(list, p)
	}
	return list
}

// processes lists all that lives, with everything that can be read of it.
func processes() []process {
	var list []process
	for _, p := range processStates() {
		if p.state == 'Z' {
			continue
		}
		dir := "/proc/" + strconv.Itoa(p.pid)
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		p.cmdline = strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " "))
		p.exe, _ = os.Readlink(dir + "/exe")
		cgroup, _ := os.ReadFile(dir + "/cgroup")
		p.cgroup = string(cgroup)
		environ, _ := os.ReadFile(dir + "/environ")
		p.environ = string(environ)
		list = append(list, p)
	}
	return list
}

// findProcess returns the process with that number.
func findProcess(t *testing.T, pid int) process {
	t.Helper()
	for _, p := range processStates() {
		if p.pid == pid {
			return p
		}
	}
	t.Fatalf("no process %d", pid)
	return process{}
}

// procFile reads a file of a process that must live.
func procFile(t *testing.T, pid int, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// procLink reads a link of a process that must live, such as ns/net.
func procLink(t *testing.T, pid int, name string) string {
	t.Helper()
	target, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), name))
	if err != nil {
		t.Fatal(err)
	}
	return target
}
