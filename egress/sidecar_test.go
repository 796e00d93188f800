package egress

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"eggrun/egress/resolver"
	"eggrun/internal/linux"
	"eggrun/internal/need"
	"eggrun/internal/syncsocket"
	"eggrun/policy"
	"eggrun/proxy"

	"golang.org/x/sys/unix"
)

// TestSidecarIsBare looks at what the process is and has.
func TestSidecarIsBare(t *testing.T) {
	need.Root(t)
	w := newWorld(t, false)
	w.tunnel(t)
	pid := w.sidecar.PID
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		wantEqual(t, set, statusField(t, pid, set), "0000000000000000")
	}
	wantEqual(t, "no_new_privs", statusField(t, pid, "NoNewPrivs"), "1")
	wantEqual(t, "filter", statusField(t, pid, "Seccomp"), "2")
	id := fmt.Sprint(sidecarUID)
	wantEqual(t, "uids", strings.Fields(statusField(t, pid, "Uid")), []string{id, id, id, id})
	wantEqual(t, "gids", strings.Fields(statusField(t, pid, "Gid")), []string{id, id, id, id})
	wantEqual(t, "groups", statusField(t, pid, "Groups"), "")
	wantEqual(t, "pid inside", strings.Fields(statusField(t, pid, "NSpid"))[1:], []string{"1"})
	for _, kind := range []string{"mnt", "pid", "ipc"} {
		own, theirs := readLink(t, "/proc/self/ns/"+kind), readLink(t, fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if own == theirs {
			t.Errorf("%s namespace: the caller's", kind)
		}
	}
	wantEqual(t, "network namespace", readLink(t, fmt.Sprintf("/proc/%d/ns/net", pid)), readLink(t, "/proc/self/ns/net"))
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", pid))
	wantEqual(t, "files, error", fmt.Sprint(entries, err), fmt.Sprint(topOf(resolverDirs()), error(nil)))
	stat := strings.Fields(procFile(t, pid, "stat"))
	wantEqual(t, "parent, group, session", stat[3:6], fmt.Sprint([]int{os.Getpid(), pid, pid}))
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	wantEqual(t, "working directory, error", fmt.Sprint(cwd, " ", err), "/ <nil>")
	wantEqual(t, "environment", procFile(t, pid, "environ"), "")
	wantEqual(t, "arguments", procFile(t, pid, "cmdline"),
		"eggrun\x00sidecar\x00/run/state/"+w.id()+"\x00")
	// A test never runs on the thread that was thrown away.
	own := procFile(t, "thread-self", "status")
	if !strings.Contains(own, "NoNewPrivs:\t0\n") || strings.Contains(own, "CapPrm:\t0000000000000000\n") {
		t.Errorf("the caller lost rights:\n%s", own)
	}
	t.Run("descriptors", func(t *testing.T) { wantDescriptors(t, w) })
	info, err := os.Stat(w.audit)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "mode of the audit", info.Mode(), os.FileMode(0o600))
	info, err = os.Stat(filepath.Dir(w.audit))
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "mode of its directory", info.Mode().Perm(), os.FileMode(0o700))
}

func readLink(t *testing.T, path string) string {
	t.Helper()
	target, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// topOf is how a listing shows the first parts of paths.
func topOf(paths []string) []string {
	var tops []string
	for _, path := range paths {
		tops = append(tops, "d "+strings.Split(path, "/")[1]+"/")
	}
	slices.Sort(tops)
	return slices.Compact(tops)
}

// wantDescriptors needs the sidecar to hold what it was given and, once no
// client is left, two sockets: the proxy's and its own for requests.
func wantDescriptors(t *testing.T, w *world) {
	expected := []string{"/null", "/null", "/null", "anon_inode:[eventfd]", "anon_inode:[eventpoll]", "anon_inode:[pidfd]", w.audit, ledgerName, "socket", "socket"}
	slices.Sort(expected)
	var got []string
	defer func() {
		if t.Failed() {
			t.Logf("%q, want %q", got, expected)
		}
	}()
	eventually(t, "the descriptors that are expected", func() bool {
		got = nil
		paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", w.sidecar.PID))
		for _, path := range paths {
			target, err := os.Readlink(path)
			switch kind, _, _ := strings.Cut(target, ":["); {
			case err != nil:
			case kind == "socket":
				got = append(got, kind)
			case filepath.Base(target) == ledgerName:
				got = append(got, ledgerName)
			case kind == "pipe":
				// Those of splice, kept for the next tunnel.
			default:
				got = append(got, target)
			}
		}
		slices.Sort(got)
		return len(got) <= len(expected)+2 && containsAll(got, expected)
	})
}

// containsAll tells whether got is expected and at most the two sockets of the
// tunnel that the test has open.
func containsAll(got, expected []string) bool {
	rest := slices.Clone(got)
	for _, want := range expected {
		i := slices.Index(rest, want)
		if i < 0 {
			return false
		}
		rest = slices.Delete(rest, i, i+1)
	}
	return !slices.ContainsFunc(rest, func(s string) bool { return s != "socket" })
}

// TestSidecarServes has one target allowed and one refused, and both in the
// audit.
func TestSidecarServes(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	need.Root(t)
	w := newWorld(t, true)
	conn, _ := w.tunnel(t)
	_, _, status := w.connect(t, "bad.example:443")
	wantEqual(t, "status", status, "HTTP/1.1 403 eggrun: bad.example:443 not on the allowlist")
	// Loopback is not allowed as such, only that port.
	_, _, status = w.connect(t, "127.0.0.1:1")
	wantEqual(t, "status", status, "HTTP/1.1 403 eggrun: 127.0.0.1:1 port not on the allowlist")
	conn.Close()
	var lines []map[string]any
	eventually(t, "four lines of audit", func() bool {
		text, err := os.ReadFile(w.audit)
		if err != nil {
			t.Fatal(err)
		}
		lines = nil
		for line := range strings.Lines(string(text)) {
			var record map[string]any
			if err := json.Unmarshal([]byte(line), &record); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			lines = append(lines, record)
		}
		return len(lines) >= 4
	})
	id := w.id()
	var decisions []string
	for _, line := range lines {
		wantEqual(t, "container", line["container"], id)
		if decision, ok := line["decision"]; ok {
			decisions = append(decisions, fmt.Sprintf("%v %v:%v", decision, line["host"], line["port"]))
		}
	}
	slices.Sort(decisions)
	wantEqual(t, "decisions", decisions, []string{"allow " + w.origin, "deny 127.0.0.1:1", "deny bad.example:443"})
}

// TestSidecarEndsWithInit needs the sidecar to live as long as init does, also
// through a garbage collection, and no longer.
func TestSidecarEndsWithInit(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	need.Root(t)
	w := newWorld(t, true)
	conn, in := w.tunnel(t)
	// Go collects garbage at the latest when 4 MB have been allocated.
	for range 300 {
		c, _, status := w.connect(t, "bad.example:443")
		if !strings.HasPrefix(status, "HTTP/1.1 403") {
			t.Fatal(status)
		}
		c.Close()
	}
	if !w.sidecar.Alive() {
		t.Fatal("the sidecar ended before init")
	}
	if err := w.init.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Not reaped yet: a zombie is no more a container.
	status := w.reap(t)
	wantEqual(t, "status", status, 0)
	w.wantRefused(t)
	rest, _ := io.ReadAll(in)
	wantEqual(t, "rest of the tunnel", string(rest), "")
	conn.Close()
}

// TestSidecarKilled needs clients to be refused at once, not to wait, when the
// sidecar is gone.
func TestSidecarKilled(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	need.Root(t)
	w := newWorld(t, true)
	_, in := w.tunnel(t)
	w.kill(t)
	w.wantRefused(t)
	if rest, _ := io.ReadAll(in); len(rest) > 0 {
		t.Errorf("rest of the tunnel %q", rest)
	}
}

// TestServeErrors needs an error to leave no process.
func TestServeErrors(t *testing.T) {
	need.Root(t)
	pidfd, err := linux.PidfdOpen(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer pidfd.Close()
	dir := t.TempDir()
	taken, err := AuditPath("dir", Where{RuntimeRoot: testRoot})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), os.MkdirAll(filepath.Join(dir, "eggrun", filepath.Base(taken)), 0o700)); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	_, socket := listen(t)
	defer socket.Close()
	for _, tt := range []struct {
		name, id, state string
		listener        *os.File
		want            string
	}{
		{"no listener", "a", dir, null, "^sidecar ended: .*socket operation on non-socket"},
		{"no directory", "a", filepath.Join(dir, "file"), socket, "^audit log: .*not a directory"},
		{"relative", "a", "relative", socket, "^audit log: neither XDG_STATE_HOME nor HOME is set$"},
		{"directory for the log", "dir", dir, socket, "^audit log: .*is a directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("XDG_STATE_HOME", tt.state)
			launched, err := Launch("test")
			if err != nil {
				t.Fatal(err)
			}
			_, err = serve(t, launched, tt.id, true, []string{"good.example"}, tt.listener, pidfd)
			if err == nil || !regexp.MustCompile(tt.want).MatchString(err.Error()) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
			wantNoChild(t)
		})
	}
}

// TestLaunchedEnds needs a sidecar that is never told anything to end, also
// where its launcher was killed.
func TestLaunchedEnds(t *testing.T) {
	need.Root(t)
	launched, err := Launch("test")
	if err != nil {
		t.Fatal(err)
	}
	launched.socket.Close()
	eventually(t, "the end of the sidecar", func() bool {
		pid, err := unix.Wait4(launched.child.PID, nil, unix.WNOHANG, nil)
		return err == nil && pid == launched.child.PID
	})
	if launched, err = Launch("test"); err != nil {
		t.Fatal(err)
	}
	if err := launched.End(); err != nil {
		t.Error(err)
	}
	wantNoChild(t)
}

func wantNoChild(t *testing.T) {
	t.Helper()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); !errors.Is(err, unix.ECHILD) {
		t.Errorf("a child is left (%v)", err)
	}
}

// TestSidecarChecksItself starts it with rights that it must not have.
func TestSidecarChecksItself(t *testing.T) {
	need.Root(t)
	filter, err := sidecarFilter("")
	if err != nil {
		t.Fatal(err)
	}
	// bare starts a sidecar that was not caged, from the calling thread.
	bare := func(uid int) error {
		ours, theirs, err := syncsocket.Pair()
		if err != nil {
			return err
		}
		defer ours.Close()
		cmd := exec.Command("/proc/self/exe", "sidecar", "test")
		cmd.ExtraFiles = []*os.File{theirs.File()}
		err = cmd.Start()
		theirs.Close()
		if err != nil {
			return err
		}
		sendErr := ours.Send(kindServe, &serveRequest{UID: uid, Policy: &policy.Policy{}, Filter: filter})
		_, err = ours.Expect(kindServing, nil)
		_ = cmd.Wait() // it fails
		return errors.Join(err, sendErr)
	}
	wantEqual(t, "with everything", bare(0), "the sidecar has capabilities")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // thrown away
		none := linux.NewCapabilitySets(nil)
		if err := errors.Join(none.DropBounding(), none.Apply(0)); err != nil {
			t.Error(err)
			return
		}
		wantEqual(t, "without capabilities", bare(0), "load seccomp filter: neither no_new_privs nor CAP_SYS_ADMIN (EACCES)")
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			t.Error(err)
		}
		wantEqual(t, "as root", bare(sidecarUID), fmt.Sprintf("the sidecar has uid 0 and gid 0, want %d", sidecarUID))
		wantEqual(t, "among others", bare(0), "the sidecar sees other processes")
	}()
	<-done
}

// TestSidecarWithoutRoot is started by somebody who has no right to lose.
func TestSidecarWithoutRoot(t *testing.T) {
	if os.Getenv(childEnv) == t.Name() {
		w := newWorld(t, true)
		w.tunnel(t)
		wantEqual(t, "CapPrm", statusField(t, w.sidecar.PID, "CapPrm"), "0000000000000000")
		wantEqual(t, "no_new_privs", statusField(t, w.sidecar.PID, "NoNewPrivs"), "1")
		wantEqual(t, "filter", statusField(t, w.sidecar.PID, "Seccomp"), "2")
		if own, theirs := readLink(t, "/proc/self/ns/user"), readLink(t, fmt.Sprintf("/proc/%d/ns/user", w.sidecar.PID)); own == theirs {
			t.Error("user namespace: the caller's")
		}
		return
	}
	need.Root(t)
	const nobody = 65534
	dir := t.TempDir()
	if err := errors.Join(os.Chown(dir, nobody, nobody), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), childEnv+"="+t.Name(), "XDG_STATE_HOME="+dir, "TMPDIR="+dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestSidecarSearchDomains has "*" pass no name that a libc of the container
// made up of a short one, whether the domain was known at create, comes by start,
// or the policy is replaced.
func TestSidecarSearchDomains(t *testing.T) {
	t.Parallel()
	pol, err := policyOf("*")
	if err != nil {
		t.Fatal(err)
	}
	server, err := resolver.New(resolver.Options{Policy: pol})
	if err != nil {
		t.Fatal(err)
	}
	s := &sidecar{policy: pol, resolver: server}
	t.Cleanup(s.resolver.Close)
	s.proxy = proxy.New(proxy.Options{Policy: pol, Lookup: func(context.Context, string) ([]netip.Addr, error) {
		return nil, errors.New("nobody to ask")
	}})
	listener, _ := listen(t)
	served := make(chan error, 1)
	go func() { served <- s.proxy.Serve(listener) }()
	t.Cleanup(func() {
		if err := errors.Join(s.proxy.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	want := func(when, name, status string) {
		t.Helper()
		conn, err := net.Dial("tcp4", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "CONNECT %s:443 HTTP/1.1\r\n\r\n", name)
		answer, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(answer, "HTTP/1.1 "+status+" ") {
			t.Errorf("%s: CONNECT %s: %q, %v, want %s", when, name, answer, err, status)
		}
	}
	const made, other = "github.com.corp.example.com", "github.com.other.example.com"
	want("control", made, "502")
	s.conf.Search = []string{"corp.example.com"}
	if err := s.setUpstream(nil); err != nil {
		t.Fatal(err)
	}
	want("create", made, "403")
	want("create", other, "502")
	s.setEngine(&brought{Conf: &resolver.Conf{Search: []string{"other.example.com"}}})
	want("start", other, "403")
	s.setPolicy(pol)
	want("reload", other, "403")
}
