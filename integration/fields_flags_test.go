package integration

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// activated wraps the runtime in a shell that sets LISTEN_PID to what will be
// the runtime's own pid, as a service manager does.
func (l *lab) activated() *lab {
	wrapped := *l
	wrapped.rt.path = filepath.Join(makeDir(l.t, filepath.Join(l.dir, "activate")), l.rt.name)
	writeFile(l.t, wrapped.rt.path, "#!/bin/sh\nexport LISTEN_PID=$$\nexec "+l.rt.path+" \"$@\"\n", 0o755)
	return &wrapped
}

// TestFieldListenFDs passes two sockets as podman does, which counts them in
// --preserve-fds too, and a third descriptor that must stay outside.
func TestFieldListenFDs(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	var files []*os.File
	for _, name := range []string{"three", "four", "five"} {
		path := filepath.Join(l.dir, name)
		writeFile(t, path, name+"\n", 0o644)
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		files = append(files, file)
	}
	const script = "echo $LISTEN_FDS $LISTEN_PID $LISTEN_FDNAMES; env | grep -c LISTEN_; for n in 3 4 5; do readlink /proc/$$/fd/$n || echo closed; done"
	activated := l.activated()
	defer func() { l.calls, l.containers, l.ids = activated.calls, activated.containers, activated.ids }()
	for _, test := range []struct {
		name      string
		args, env []string
		edit      edit
		want      string
	}{
		{"sockets", nil, []string{"LISTEN_FDS=2"}, addEnv(), "2 1\n2\nthree\nfour\nclosed\n"},
		{"sockets that podman counts", []string{"--preserve-fds", "2"}, []string{"LISTEN_FDS=2"}, addEnv(), "2 1\n2\nthree\nfour\nclosed\n"},
		{"one more descriptor", []string{"--preserve-fds", "3"}, []string{"LISTEN_FDS=2"}, addEnv(), "2 1\n2\nthree\nfour\nfive\n"},
		{"names", nil, []string{"LISTEN_FDS=2", "LISTEN_FDNAMES=a:b"}, addEnv(), "2 1 a:b\n3\nthree\nfour\nclosed\n"},
		{"what config.json says", nil, []string{"LISTEN_FDS=2"}, addEnv("LISTEN_FDS=7", "LISTEN_PID=7", "LISTEN_FDNAMES=x"), "2 1\n2\nthree\nfour\nclosed\n"},
	} {
		r := activated.runWith(invocation{args: test.args, env: test.env, extraFiles: files}, sh(script), test.edit, quiet)
		equal(t, test.name+" ("+r.stderr+")", strings.ReplaceAll(r.stdout, l.dir+"/", ""), test.want)
	}
	own := activated.runWith(invocation{env: []string{"LISTEN_FDS=1"}, extraFiles: files}, sh("[ $LISTEN_PID = $$ ] && [ $$ != 1 ] && echo own"), withoutNamespace(specs.PIDNamespace), quiet)
	equal(t, "without a pid namespace ("+own.stderr+")", own.stdout, "own\n")
	l.wantFail(activated.runWith(invocation{env: []string{"LISTEN_FDS=two"}}, sh("exit 0")), `LISTEN_FDS "two": want 0 to 65536`)
}

// TestFieldPidfdSocket wants the message of a console socket, with a pidfd that
// names the container's init.
func TestFieldPidfdSocket(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t)) // the flag came with runc 1.3
	s := l.listenConsole("pidfd")
	c := l.createWith(invocation{args: []string{"--pidfd-socket", s.path}}, sh("exec sleep 1000"))
	pidfd := l.master(s)
	info := readFile(t, fmt.Sprintf("/proc/self/fdinfo/%d", pidfd.Fd()))
	contains(t, "fdinfo", strings.Join(strings.Fields(info), " "), fmt.Sprintf("Pid: %d ", c.pid))
	c.start()
	if err := unix.PidfdSendSignal(int(pidfd.Fd()), unix.SIGKILL, nil, 0); err != nil {
		t.Error(err)
	}
	equal(t, "exit status", c.wait(), 128+9)
	c.delete()

	id := l.newID()
	b := l.bundle(id, sh("exit 0"))
	l.wantFail(l.call("create", "--bundle", b.dir, "--pidfd-socket", filepath.Join(l.dir, "nosuchsocket"), id), "pidfd socket")
	l.wantGone(id)
}

// TestFieldNoPivot uncovers what is below the container's root, as root with
// CAP_SYS_ADMIN in it could, and finds nothing mounted there.
func TestFieldNoPivot(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	in := func() invocation { return invocation{args: []string{"--no-pivot"}} }
	r := l.runWith(in(), sh("ls -d /etc/hosts /proc/self /sys/class; cut -d' ' -f5 /proc/self/mountinfo | head -1; ls / | grep -c usr"))
	equal(t, "what is seen ("+r.stderr+")", r.stdout, "/etc/hosts\n/proc/self\n/sys/class\n/\n1\n")
	r = l.runWith(in(), sh("unshare -U true && echo made"))
	equal(t, "a user namespace, which is for nobody in a chroot ("+r.stderr+")", r.stdout, "made\n")
	id := l.newID()
	b := l.bundle(id, sh("ls -d /proc/self; cat /proc/self/uid_map | tr -s ' '"), idMappings)
	chownTree(t, b.rootfs, 100000)
	r = l.call("run", "--no-pivot", "--bundle", b.dir, id)
	equal(t, "with locked mounts below ("+r.stderr+")", r.stdout, "/proc/self\n 0 100000 65536\n")

	c := l.createWith(in(), sh("umount -l / && echo uncovered; exec sleep 1000"), addCapabilities("CAP_SYS_ADMIN"))
	c.start()
	c.wantOutput("uncovered")
	enter := func(args ...string) string {
		return l.helper("nsenter", append([]string{fmt.Sprintf("--mount=/proc/%d/ns/mnt", c.pid)}, args...)...)
	}
	contains(t, "the host's root", enter("ls", "/usr/bin"), "nsenter")
	equal(t, "the host's procfs, sysfs and devices", enter("ls", "-A", "/proc", "/sys", "/dev/pts"), "/dev/pts:\n\n/proc:\n\n/sys:\n")
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Errorf("the procfs outside is gone: %v", err)
	}
	l.wantSilent(l.call("delete", "--force", c.id))
}

// TestFieldNoPivotProcfs: as long as there is a whole procfs anywhere in its
// mount namespace, the kernel lets a user namespace mount one of its own.
func TestFieldNoPivotProcfs(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	const script = "unshare -U -r -m -p -f mount -t proc proc /tmp; echo $?"
	unmasked := func(spec *specs.Spec) { spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths = nil, nil }
	for _, test := range []struct {
		name string
		edit edit
		want string
	}{
		{"unmasked", unmasked, "0\n"}, // the same attack
		{"masked", both(), "1\n"},
		{"masked, user namespace", idMappings, "1\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t, rt)
			id := l.newID()
			b := l.bundle(id, sh(script), asUser(1000, 1000), test.edit, quiet)
			chownTree(t, b.rootfs, 100000)
			r := l.call("run", "--no-pivot", "--bundle", b.dir, id)
			equal(t, "exit status of mount ("+r.stderr+")", r.stdout, test.want)
		})
	}
}

var buildNotify = sync.OnceValues(func() (string, error) { return buildProgram("notify") })

// buildProgram builds one of testdata statically and returns where it is.
func buildProgram(name string, env ...string) (string, error) {
	if path := built(name); path != "" {
		return path, nil
	}
	path := filepath.Join(suite.dir, name)
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./testdata/"+name)
	build.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	var out strings.Builder
	build.Stdout, build.Stderr = &out, &out
	err := suite.reaper.start(build)
	if err == nil {
		err = suite.reaper.wait(build)
	}
	if err != nil {
		err = fmt.Errorf("build testdata/%s: %w\n%s", name, err, out.String())
	}
	return path, err
}

// serviceManager receives what is sent to NOTIFY_SOCKET.
type serviceManager struct {
	env      string
	messages chan string
}

// newServiceManager listens in a directory, for every user.
func newServiceManager(t *testing.T, dir string) *serviceManager {
	t.Helper()
	path := filepath.Join(dir, "manager")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		err = os.Chmod(path, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); _ = os.Remove(path) })
	m := &serviceManager{env: "NOTIFY_SOCKET=" + path, messages: make(chan string, 10)}
	go func() {
		defer close(m.messages)
		buffer, control := make([]byte, 4096), make([]byte, 1024)
		for {
			n, controlLen, _, _, err := conn.ReadMsgUnix(buffer, control)
			if err != nil {
				return
			}
			m.messages <- string(buffer[:n])
			// The barrier's descriptor.
			if parsed, err := unix.ParseSocketControlMessage(control[:controlLen]); err == nil {
				for i := range parsed {
					fds, _ := unix.ParseUnixRights(&parsed[i])
					for _, fd := range fds {
						_ = unix.Close(fd)
					}
				}
			}
		}
	}()
	return m
}

func (m *serviceManager) next(t *testing.T) string {
	t.Helper()
	select {
	case message := <-m.messages:
		return message
	case <-time.After(patience):
		t.Fatalf("no message within %v", patience)
		return ""
	}
}

// TestFieldNotifySocket has a program say that it is ready, among other things
// that are nobody's business.
func TestFieldNotifySocket(t *testing.T) {
	t.Parallel()
	rt := eggrunOnly(t)
	program, err := buildNotify()
	if err != nil {
		t.Fatal(err)
	}
	mount := addMounts(specs.Mount{Destination: "/bin/notify", Type: "bind", Source: program, Options: []string{"bind", "ro"}})
	const script = `echo $NOTIFY_SOCKET; touch /run/notify/x || echo read-only; notify STATUS=hello MAINPID=1 READYX=1 "STATUS=bye
READY=1" STATUS=late; exec sleep 1000`
	t.Run("start", func(t *testing.T) {
		l := newLab(t, rt)
		m := newServiceManager(t, l.dir)
		c := l.createWith(invocation{env: []string{m.env}}, sh(script), mount, asUser(1000, 1000), quiet)
		l.wantSilent(l.invoke(invocation{args: []string{"start", c.id}, env: []string{m.env}}))
		equal(t, "message", m.next(t), fmt.Sprintf("MAINPID=%d\nREADY=1", c.pid))
		equal(t, "second message", m.next(t), "BARRIER=1")
		equal(t, "status", c.state().Status, "running")
		c.wantOutput("/run/notify/notify.sock\nread-only\n")
		l.wantFail(l.invoke(invocation{args: []string{"start", c.id}, env: []string{m.env}}), "want created")
		l.wantSilent(l.call("delete", "--force", c.id))
		if len(m.messages) > 0 {
			t.Errorf("one more message: %q", m.next(t))
		}
	})
	t.Run("program that ends", func(t *testing.T) {
		l := newLab(t, rt)
		m := newServiceManager(t, l.dir)
		c := l.createWith(invocation{env: []string{m.env}}, sh("exit 3"))
		l.wantSilent(l.invoke(invocation{args: []string{"start", c.id}, env: []string{m.env}}))
		equal(t, "exit status", c.wait(), 3)
		c.delete()
	})
	t.Run("no manager at start", func(t *testing.T) {
		l := newLab(t, rt)
		m := newServiceManager(t, l.dir)
		c := l.createWith(invocation{env: []string{m.env}}, sh("exit 3"))
		c.start()
		equal(t, "exit status", c.wait(), 3)
		c.delete()
	})
	t.Run("foreground", func(t *testing.T) {
		l := newLab(t, rt)
		m := newServiceManager(t, l.dir)
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = read.Close() }()
		message := make(chan string, 1)
		go func() { // what was said is passed on while the program runs
			message <- <-m.messages
			_ = write.Close()
		}()
		r := l.runWith(invocation{env: []string{m.env}, stdin: read}, sh("notify READY=1; cat; echo said"), mount)
		equal(t, "output ("+r.stderr+")", r.stdout, "said\n")
		main, ready, _ := strings.Cut(<-message, "\n")
		equal(t, "message", ready, "READY=1")
		contains(t, "message", main, "MAINPID=")
	})
}
