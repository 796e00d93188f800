package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// namespacesOf returns the namespaces of a process.
func namespacesOf(t *testing.T, pid int) string {
	t.Helper()
	var all []string
	for _, name := range []string{"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"} {
		all = append(all, procLink(t, pid, "ns/"+name))
	}
	return strings.Join(all, " ")
}

// wantJoined runs a program in the container and wants it to be where init is.
func (c *container) wantJoined() {
	c.t.Helper()
	pid, _ := c.execDetached(invocation{}, nil, "sleep", "1000")
	equal(c.t, "namespaces", namespacesOf(c.t, pid), namespacesOf(c.t, c.pid))
	equal(c.t, "cgroups", procFile(c.t, pid, "cgroup"), procFile(c.t, c.pid, "cgroup"))
	equal(c.t, "uid_map", procFile(c.t, pid, "uid_map"), procFile(c.t, c.pid, "uid_map"))
	equal(c.t, "root", procLink(c.t, pid, "root"), procLink(c.t, c.pid, "root"))
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		c.t.Error(err)
	}
	suite.reaper.status(c.t, pid)
}

func TestExecNamespaces(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string][]edit{
		"default":          nil,
		"cgroup":           {withNamespace(specs.CgroupNamespace, "")},
		"user":             {idMappings},
		"user, cgroup":     {idMappings, withNamespace(specs.CgroupNamespace, "")},
		"host's pid":       {withoutNamespace(specs.PIDNamespace)},
		"host's net":       {withoutNamespace(specs.NetworkNamespace), dropMounts("/sys", "/sys/fs/cgroup")},
		"host's uts, ipc":  {withoutNamespace(specs.UTSNamespace), withoutNamespace(specs.IPCNamespace), noHostname, dropMounts("/dev/mqueue")},
		"user, host's net": {idMappings, withoutNamespace(specs.NetworkNamespace), dropMounts("/sys", "/sys/fs/cgroup")},
		"user, host's pid": {idMappings, withoutNamespace(specs.PIDNamespace), hostProc},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, l *lab) {
				id := l.newID()
				b := l.bundle(id, append([]edit{sh("exec sleep 1000")}, edits...)...)
				if strings.Contains(name, "user") {
					chownTree(t, b.rootfs, 100000)
				}
				c := l.createIn(b, id, invocation{})
				c.start()
				c.wantJoined()
				equal(t, "ids", c.execOutput("id -u; id -g; touch /made; stat -c %u:%g /made"), "0\n0\n0:0")
			})
		})
	}
}

// hostProc binds the caller's procfs: a user namespace may not mount a new one
// for processes that are not its own.
func hostProc(spec *specs.Spec) {
	for i := range spec.Mounts {
		if spec.Mounts[i].Destination == "/proc" {
			spec.Mounts[i] = specs.Mount{Destination: "/proc", Type: "bind", Source: "/proc", Options: []string{"rbind"}}
		}
	}
}

// TestExecJoinedNamespaces enters a container that joined those of another.
func TestExecJoinedNamespaces(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		first := l.sleeper()
		edits := []edit{noHostname}
		for _, kind := range []specs.LinuxNamespaceType{specs.PIDNamespace, specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace} {
			edits = append(edits, withNamespace(kind, fmt.Sprintf("/proc/%d/ns/%s", first.pid, procName[kind])))
		}
		second := l.sleeper(edits...)
		second.wantJoined()
		// /proc shows the first one's pid 1 and the second's program.
		equal(t, "processes", second.execOutput("ps | grep -c '[s]leep 1000'"), "2")
	})
}

// TestExecTimeNamespace reads the container's clock.
func TestExecTimeNamespace(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)) // time namespaces came with runc 1.2
	for name, more := range map[string]edit{"alone": noHostname, "with a user namespace": idMappings} {
		id := l.newID()
		b := l.bundle(id, sh("exec sleep 1000"), more, withNamespace(specs.TimeNamespace, ""), func(spec *specs.Spec) {
			spec.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{"boottime": {Secs: 1_000_000_000}}
		})
		if strings.Contains(name, "user") {
			chownTree(t, b.rootfs, 100000)
		}
		c := l.createIn(b, id, invocation{})
		c.start()
		c.wantJoined()
		got := c.execOutput("cut -d. -f1 /proc/uptime")
		if seconds, err := strconv.Atoi(got); err != nil || seconds < 1_000_000_000 {
			t.Errorf("%s: uptime: %q, want more than a thousand million seconds", name, got)
		}
	}
}

// TestExecCgroup puts it into one below the container's, which it must not
// climb out of.
func TestExecCgroup(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper()
		own := l.cgroupOf(c.id)
		for _, folder := range cgroupFolders(own + "/sub/deep") {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		controller := ""
		if !isCgroup2() {
			controller = "pids:"
		}
		placed := func(path string) string {
			pid, _ := c.execDetached(invocation{}, []string{"--cgroup", controller + path}, "sleep", "1000")
			for line := range strings.Lines(procFile(t, pid, "cgroup")) {
				fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
				switch {
				case fields[1] == strings.TrimSuffix(controller, ":"):
					return fields[2]
				case isMounted(fields[1]):
					equal(t, "cgroup of "+fields[1], fields[2], own)
				}
			}
			return "none"
		}
		for _, path := range []string{"sub", "/sub", "sub/"} {
			equal(t, "cgroup for "+path, placed(path), own+"/sub")
		}
		equal(t, "cgroup for sub/deep", placed("sub/deep"), own+"/sub/deep")
		if !isCgroup2() {
			pid, _ := c.execDetached(invocation{}, []string{"--cgroup", "pids,memory:sub", "--cgroup", "freezer:sub/deep"}, "sleep", "1000")
			for _, want := range []string{":pids:" + own + "/sub\n", ":memory:" + own + "/sub\n", ":freezer:" + own + "/sub/deep\n", ":devices:" + own + "\n"} {
				contains(t, "cgroups", procFile(t, pid, "cgroup"), want)
			}
		}
		if l.rt.isEggrun() {
			for _, path := range []string{"..", "../sub", "sub/../.."} {
				l.wantExecFail(c.exec([]string{"--cgroup", controller + path}, "true"), "bad sub cgroup path")
			}
		}
		l.wantExecFail(c.exec([]string{"--cgroup", "nosuch"}, "true"))
		l.wantExecFail(c.exec([]string{"--cgroup", controller + "nosuch"}, "true"))
		l.wantExecFail(c.exec([]string{"--cgroup", "nosuch:sub"}, "true"))
	})
}

// TestExecCreated is allowed: the container's first program has not run yet.
func TestExecCreated(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.create(sh("echo started; exec sleep 1000"))
		equal(t, "output", c.execOutput("echo in; touch /made"), "in")
		equal(t, "status", c.state().Status, "created")
		c.wantJoined()
		c.start()
		c.wantOutput("started")
		equal(t, "file", c.execOutput("ls /made"), "/made")
	})
}

func TestExecStates(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		l.wantExecFail(l.call("exec", "nosuchcontainer", "true"), "container does not exist")
		l.wantExecFail(l.call("exec", "../x", "true"))
		c := l.sleeper()
		c.kill("KILL")
		c.wait()
		pidFile := filepath.Join(l.dir, "pid")
		l.wantExecFail(c.exec([]string{"--detach", "--pid-file", pidFile}, "true"), l.rt.pick("container not running", "stopped"))
		if _, err := os.Stat(pidFile); err == nil {
			t.Error("there is a pid file")
		}
		c.delete()
		l.wantExecFail(c.exec(nil, "true"), "container does not exist")
	})
}

// TestExecCreating calls from a hook, before there is anything to enter.
func TestExecCreating(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	id := l.newID()
	out := filepath.Join(l.dir, "out")
	script := fmt.Sprintf("%s --root %s exec %s touch /entered 2>%s; echo $? >>%s", l.rt.path, l.root, id, out, out)
	b := l.bundle(id, sh("exec sleep 1000"), func(spec *specs.Spec) {
		spec.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", script}}}}
	})
	l.createIn(b, id, invocation{})
	equal(t, "what exec said", readFile(t, out), "eggrun: exec "+id+": container is creating, want running\n255\n")
	if _, err := os.Stat(filepath.Join(b.rootfs, "entered")); err == nil {
		t.Error("it ran")
	}
}

// TestExecPaused waits in a paused container only if it is told to.
func TestExecPaused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *lab) {
		c := l.sleeper()
		l.wantSilent(l.call("pause", c.id))
		l.wantExecFail(c.exec(nil, "true"), "paused")
		pidFile := filepath.Join(l.dir, "pid")
		cmd, r, logFile := l.command(invocation{args: c.execArgs([]string{"--ignore-paused", "--pid-file", pidFile}, "echo", "thawed")})
		if err := suite.reaper.start(cmd); err != nil {
			t.Fatal(err)
		}
		folder := cgroupFolders(l.cgroupOf(c.id))
		eventually(t, "process in the paused cgroup", func() bool {
			for _, dir := range folder {
				procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
				if err == nil && len(strings.Fields(string(procs))) == 2 {
					return true
				}
			}
			return false
		})
		equal(t, "status", c.state().Status, "paused")
		equal(t, "output while paused", readFile(t, r.outFile), "")
		l.wantSilent(l.call("resume", c.id))
		r = l.finish(cmd, r, logFile)
		equal(t, "exit status ("+r.stderr+")", r.code, 0)
		equal(t, "output", r.stdout, "thawed\n")
	})
}

// TestExecPidfdSocket sends a pidfd of the new process.
func TestExecPidfdSocket(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)) // the flag came with runc 1.3
	c := l.sleeper()
	s := l.listenConsole("pidfd")
	pid, _ := c.execDetached(invocation{}, []string{"--pidfd-socket", s.path}, "sleep", "1000")
	pidfd := l.master(s)
	info := readFile(t, fmt.Sprintf("/proc/self/fdinfo/%d", pidfd.Fd()))
	contains(t, "fdinfo", strings.Join(strings.Fields(info), " "), fmt.Sprintf("Pid: %d ", pid))
	if err := unix.PidfdSendSignal(int(pidfd.Fd()), unix.SIGKILL, nil, 0); err != nil {
		t.Error(err)
	}
	equal(t, "exit status", suite.reaper.status(t, pid), 128+9)
	l.wantExecFail(c.exec([]string{"--pidfd-socket", filepath.Join(l.dir, "nosuchsocket")}, "sleep", "1000"), "pidfd socket")
	equal(t, "processes left", c.execOutput("ps | grep -c '[s]leep 1000'"), "1")
}

// TestExecHundredAtOnce enters one container a hundred times, at once.
func TestExecHundredAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	c := l.sleeper()
	var done sync.WaitGroup
	for i := range 100 {
		cmd, r, log := l.command(invocation{args: c.execArgs(nil, "sh", "-c", fmt.Sprintf("echo %d; exit %d", i, i))})
		if err := suite.reaper.start(cmd); err != nil {
			t.Fatal(err)
		}
		done.Go(func() {
			r := l.finish(cmd, r, log)
			equal(t, "exit status ("+r.stderr+")", r.code, i)
			equal(t, "output", r.stdout, strconv.Itoa(i)+"\n")
		})
	}
	done.Wait()
	equal(t, "processes", c.execOutput("ps | grep -c '[s]leep 1000'"), "1")
}

// TestAffinityIsReset has the caller be bound to one CPU, which the container is
// not to be.
func TestAffinityIsReset(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)) // runc since 1.3
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &all); err != nil {
		t.Fatal(err)
	}
	need(t, "two CPUs", func() error {
		if all.Count() < 2 {
			return fmt.Errorf("%d", all.Count())
		}
		return nil
	})
	const script = "sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status"
	want := l.output(script)
	bound := filepath.Join(l.dir, "bound")
	writeFile(t, bound, "#!/bin/sh\nexec taskset -c 0 "+l.rt.path+" \"$@\"\n", 0o755)
	l.rt.path = bound
	equal(t, "CPUs of init", l.output(script), want)
	equal(t, "CPUs of a further process", l.sleeper().execOutput(script), want)
}
