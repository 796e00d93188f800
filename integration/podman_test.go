package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPodman drives each runtime through podman, with storage, image and
// configuration of the test's own.
func TestPodman(t *testing.T) {
	needRoot(t)
	need(t, "podman with conmon", func() error {
		for _, name := range []string{"podman", "conmon"} {
			if _, err := exec.LookPath(name); err != nil {
				return err
			}
		}
		return nil
	})
	store := newPodmanStore(t, nil)
	t.Run("cases", func(t *testing.T) {
		for _, tt := range podmanCases() {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				if tt.need != nil {
					need(t, tt.needs, tt.need)
				}
				store.each(t, tt.run)
			})
		}
	})
}

type podmanCase struct {
	name  string
	needs string
	need  func() error
	run   func(t *testing.T, p *podman)
}

func podmanCases() []podmanCase {
	var all []podmanCase
	for _, some := range [][]podmanCase{podmanRunCases(), podmanLifeCases(), podmanIsolationCases(), podmanLimitCases(), podmanCgroupCases(), podmanNetworkCases(), podmanBuildCases(), podmanExecCases(), podmanWallCases(), podmanLockedCases(), podmanKubeCases(), podmanRestartCases(), podmanServiceCases()} {
		all = append(all, some...)
	}
	return all
}

// podmanStore is one storage root for all cases.
type podmanStore struct {
	dir, run, config string
	// driver is what stores images.
	driver string
	// user is whose it is, nil for root.
	user *rootlessUser
}

// image is what the store imports: busybox with /bin/sh as its command.
const image = "localhost/busybox:latest"

func newPodmanStore(t *testing.T, user *rootlessUser) *podmanStore {
	t.Helper()
	dir, err := os.MkdirTemp(suite.dir, "podman-store-")
	if err != nil {
		t.Fatal(err)
	}
	s := &podmanStore{dir: dir, run: filepath.Join("/run", filepath.Base(dir)), driver: "overlay", user: user}
	if user != nil {
		// podman 4 wants a short one. And a normal user cannot make an overlay on
		// every file system.
		s.run, s.driver = filepath.Join(user.runDir, filepath.Base(dir)), "vfs"
	}
	s.fill(t)
	return s
}

// fill writes the configuration and imports the image.
func (s *podmanStore) fill(t *testing.T) {
	t.Helper()
	manager := suite.cgroups.manager
	if s.user != nil {
		manager = s.user.manager
	}
	if s.user != nil || ownPIDs() == 0 { // else /run is the suite's own
		t.Cleanup(func() { _ = os.RemoveAll(s.run) })
	}
	s.config = filepath.Join(s.dir, "containers.conf")
	runtimes, names := "", ""
	for _, rt := range []runtimeUnderTest{suite.runtime, suite.control} {
		if rt.path != "" {
			runtimes += fmt.Sprintf("%s = [%q]\n", rt.name, rt.path)
			names += fmt.Sprintf("%q, ", rt.name)
		}
	}
	// The limits: root here may lack CAP_SYS_RESOURCE, and podman's own are
	// higher than what it then may set.
	writeFile(t, s.config, `[engine]
cgroup_manager = "`+string(manager)+`"
events_logger = "file"
runtime_supports_json = [`+names+`]
[engine.runtimes]
`+runtimes+`
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
`+pidsDefault()+`
[network]
network_backend = "netavark"
`, 0o644)
	t.Cleanup(func() {
		_ = unix.Unmount(filepath.Join(s.dir, "root", "overlay"), unix.MNT_DETACH)
		_ = unix.Unmount(filepath.Join(s.dir, "root"), unix.MNT_DETACH)
	})
	rootfs := filepath.Join(suite.dir, filepath.Base(s.dir)+"-rootfs")
	makeRootfs(t, rootfs)
	t.Cleanup(func() { _ = os.RemoveAll(rootfs) })
	p := &podman{t: t, store: s, rt: suite.runtime, dir: s.dir}
	if s.user != nil {
		s.user.own(t, s.dir)
	}
	tarball := filepath.Join(s.dir, "busybox.tar")
	pack(t, rootfs, tarball)
	p.ok("import", "--change", `CMD ["/bin/sh"]`, tarball, image)
}

// each runs a case on the runtime under test and on runc.
func (s *podmanStore) each(t *testing.T, test func(t *testing.T, p *podman)) {
	t.Helper()
	for _, rt := range []runtimeUnderTest{suite.runtime, suite.control} {
		if rt.path == "" {
			continue
		}
		reason, known := deviations[rt.name][t.Name()]
		t.Run(rt.name, func(t *testing.T) {
			skipKnown(t, rt, reason, known)
			dir, err := os.MkdirTemp(suite.dir, "podman-"+rt.name+"-")
			if err != nil {
				t.Fatal(err)
			}
			p := &podman{t: t, store: s, rt: rt, dir: dir}
			if s.user != nil {
				s.user.own(t, dir)
			}
			t.Cleanup(p.close)
			test(t, p)
		})
	}
}

// podman is one case's podman; its containers are known by their cidfiles.
type podman struct {
	t     *testing.T
	store *podmanStore
	rt    runtimeUnderTest
	dir   string
	count int
}

func (p *podman) command(args ...string) *exec.Cmd {
	global := []string{
		"--root", filepath.Join(p.store.dir, "root"), "--runroot", filepath.Join(p.store.run, "root"), "--tmpdir", filepath.Join(p.store.run, "tmp"),
		"--storage-driver", p.store.driver, "--runtime", p.rt.name, "--log-level", "error",
	}
	cmd := exec.Command("podman", append(global, args...)...)
	cmd.Dir = p.dir // where conmon puts a file when memory runs out
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/root", "TMPDIR=" + p.dir, "CONTAINERS_CONF=" + p.store.config, "TERM=xterm", "DISABLE_HC_SYSTEMD=true"}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if p.store.user != nil {
		p.store.user.become(cmd)
	}
	return cmd
}

// call runs podman and returns how it ended.
func (p *podman) call(args ...string) result {
	p.t.Helper()
	return p.callWith("", args...)
}

func (p *podman) callWith(stdin string, args ...string) result {
	p.t.Helper()
	cmd := p.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	if err := suite.reaper.start(cmd); err != nil {
		p.t.Fatal(err)
	}
	err := suite.reaper.wait(cmd)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("podman %v: %v", args, err)
	}
	return result{args: args, code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

// ok runs podman, which must succeed, and returns its output.
func (p *podman) ok(args ...string) string {
	p.t.Helper()
	r := p.call(args...)
	if r.code != 0 {
		p.t.Fatalf("podman %v: exit %d, stdout %q, stderr %q", args, r.code, r.stdout, r.stderr)
	}
	return strings.TrimRight(r.stdout, "\n")
}

// cidfile names a file for the id of the next container.
func (p *podman) cidfile() string {
	p.count++
	return filepath.Join(p.dir, fmt.Sprintf("cid%d", p.count))
}

// runArgs are podman run with a cidfile and without a network, which costs
// most of the time, unless args say otherwise.
func (p *podman) runArgs(args ...string) []string {
	network := []string{"--network", "none"}
	for _, arg := range args {
		if strings.HasPrefix(arg, "--network") || strings.HasPrefix(arg, "--pod") {
			network = nil
		}
	}
	return append(append([]string{"run", "--cidfile", p.cidfile()}, network...), args...)
}

// run runs a container to its end and removes it.
func (p *podman) run(args ...string) result {
	p.t.Helper()
	return p.call(p.runArgs(append([]string{"--rm"}, args...)...)...)
}

// output is the output of a shell script, which must exit 0, in a container
// with the options.
func (p *podman) output(script string, options ...string) string {
	p.t.Helper()
	r := p.run(append(options, image, "/bin/sh", "-c", script)...)
	if r.code != 0 {
		p.t.Fatalf("podman run %v, script %q: exit %d, stdout %q, stderr %q", options, script, r.code, r.stdout, r.stderr)
	}
	return strings.TrimRight(r.stdout, "\n")
}

// detach starts a container in the background and returns its id.
func (p *podman) detach(args ...string) string {
	p.t.Helper()
	return p.ok(p.runArgs(append([]string{"-d"}, args...)...)...)
}

// wantLog waits until a container has printed text.
func (p *podman) wantLog(id, text string) {
	p.t.Helper()
	var last string
	eventuallyOr(p.t, func() string { return fmt.Sprintf("log %q, have %q", text, last) }, func() bool {
		last = p.ok("logs", id)
		return strings.Contains(last, text)
	})
}

// close removes the case's containers and looks for what is left of them.
func (p *podman) close() {
	cidfiles, _ := filepath.Glob(filepath.Join(p.dir, "cid*"))
	for _, file := range cidfiles {
		id := readFile(p.t, file)
		if r := p.call("rm", "-f", "-t", "0", "--ignore", id); r.code != 0 {
			p.t.Errorf("podman rm -f %s: exit %d: %s", id, r.code, r.stderr)
		}
		p.wantGone(id)
	}
}

// wantGone waits until nothing is left of a container.
func (p *podman) wantGone(id string) {
	p.t.Helper()
	var left []string
	eventuallyOr(p.t, func() string { return fmt.Sprintf("end of container %s: left are %v", id, left) }, func() bool {
		left = leftOfContainer(id)
		return len(left) == 0
	})
}

// leftOfContainer looks for an id in every place.
func leftOfContainer(id string) []string {
	left, _ := filepath.Glob("/run/*/" + id)
	for _, mount := range mounts() {
		if strings.Contains(mount, id) {
			left = append(left, mount)
		}
	}
	for _, folder := range cgroupFolders(suite.cgroups.ofPodman(id)) {
		if _, err := os.Stat(folder); err == nil {
			left = append(left, folder)
		}
	}
	for _, p := range processes() {
		if strings.Contains(p.cmdline, id) || strings.Contains(p.cgroup, id) {
			left = append(left, fmt.Sprintf("process %d: %s", p.pid, p.cmdline))
		}
	}
	return left
}
