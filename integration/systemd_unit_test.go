package integration

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Where systemd and podman's generator look for units that last until the next boot.
const (
	unitDir    = "/run/systemd/system"
	quadletDir = "/run/containers/systemd"
)

// TestSystemdUnits has systemd start containers and stop them: by the units that
// podman writes and by quadlets, as services that say when they are ready, and for
// a socket of systemd's.
func TestSystemdUnits(t *testing.T) {
	eggrunOnly(t)
	need(t, "systemd, which starts what is in "+unitDir, func() error {
		_, err := os.Stat(unitDir)
		return err
	})
	if !isCgroup2() {
		need(t, "cgroup v2, where systemd hears of a cgroup's end", func() error { return fmt.Errorf("cgroup v1") })
	}
	// systemd does not see the suite's own file system.
	dir, err := os.MkdirTemp("/var/tmp", "podman-units-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	store := &podmanStore{dir: dir, run: filepath.Join("/run", filepath.Base(dir)), driver: "vfs"}
	store.fill(t)
	// A unit that podman writes lacks its global options where it stops something.
	config := strings.Replace(readFile(t, store.config), "[engine]\n", fmt.Sprintf("[engine]\ntmp_dir = %q\nruntime = %q\n", store.run+"/tmp", suite.runtime.name), 1)
	writeFile(t, store.config, config, 0o644)
	writeFile(t, filepath.Join(dir, "storage.conf"), fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", dir+"/root", store.run+"/root"), 0o644)
	notify, err := buildNotify()
	if err != nil {
		t.Fatal(err)
	}
	for name, options := range map[string][]string{"plain": nil, "policy": {"eggrun.domains=" + allowedName}} {
		t.Run(name, func(t *testing.T) {
			store.each(t, func(t *testing.T, p *podman) {
				p.generatedUnit(notify, options)
				p.quadlet(notify, options)
				if options != nil {
					options = append(options, "eggrun.allow-fds=on")
				}
				p.socketUnit(options)
			})
		})
	}
}

// files are the variables that name podman's configuration.
func (s *podmanStore) files() []string {
	return []string{"CONTAINERS_CONF=" + s.config, "CONTAINERS_STORAGE_CONF=" + filepath.Join(s.dir, "storage.conf")}
}

func (p *podman) systemctl(args ...string) {
	p.t.Helper()
	cmd := exec.Command("systemctl", append([]string{"--no-ask-password"}, args...)...)
	if out, err := suite.reaper.output(cmd); err != nil {
		journal, _ := suite.reaper.output(exec.Command("journalctl", "--no-pager", "--lines=40", "--unit", args[len(args)-1]))
		p.t.Fatalf("systemctl %v: %v: %s\n%s", args, err, out, journal)
	}
}

// addUnits writes files for systemd and has it read them. In the end they go.
func (p *podman) addUnits(files map[string]string) {
	p.t.Helper()
	for path, text := range files {
		makeDir(p.t, filepath.Dir(path))
		writeFile(p.t, path, text, 0o644)
	}
	p.t.Cleanup(func() {
		for path := range files {
			_ = os.Remove(path)
		}
		p.systemctl("daemon-reload")
	})
	p.systemctl("daemon-reload")
}

// ready is a script of a service that says when it is ready.
const ready = "notify READY=1; " + idle

// generatedUnit starts and stops one that podman has written.
func (p *podman) generatedUnit(notify string, annotations []string) {
	p.t.Helper()
	name := p.podName() + "-generated"
	create := []string{"create", "--name", name, "--network", "none", "--sdnotify=container", "-v", notify + ":/bin/notify:ro"}
	for _, annotation := range annotations {
		create = append(create, "--annotation", annotation)
	}
	cmd := exec.Command("podman", append(create, image, "sh", "-c", ready)...)
	cmd.Env = append(p.command().Env, p.store.files()...)
	callProgram(p.t, cmd).must(p.t)
	files := p.store.files()
	unit := p.ok("generate", "systemd", "--new", "--name", "--no-header", "--restart-policy=no", "-e", files[0], "-e", files[1], name)
	p.ok("rm", name)
	contains(p.t, "unit", unit, "Type=notify")
	p.addUnits(map[string]string{filepath.Join(unitDir, "container-"+name+".service"): unit})
	p.systemctl("start", "container-"+name+".service")
	p.wantService("container-"+name+".service", name, annotations)
}

// wantService looks at a container that a service has started, and at its end.
func (p *podman) wantService(service, container string, annotations []string) {
	p.t.Helper()
	id := p.ok("inspect", "--format", "{{.Id}}", container)
	equal(p.t, "status", p.ok("inspect", "--format", "{{.State.Status}}", container), "running")
	show := func(property string) string {
		out, err := suite.reaper.output(exec.Command("systemctl", "show", "--value", "--property", property, service))
		if err != nil {
			p.t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	equal(p.t, "state of the service", show("ActiveState"), "active")
	equal(p.t, "main process", show("MainPID"), p.conmonOf(container))
	initPID, err := strconv.Atoi(p.ok("inspect", "--format", "{{.State.Pid}}", container))
	if err != nil {
		p.t.Fatal(err)
	}
	sidecars := sidecarsOf(initPID)
	equal(p.t, "whether there is a sidecar", len(sidecars) == 1, len(annotations) > 0)
	p.systemctl("stop", service)
	equal(p.t, "state after stop", show("ActiveState"), "inactive")
	p.wantGone(id)
	for _, sidecar := range sidecars {
		wantEnd(p.t, sidecar)
	}
	equal(p.t, "containers", p.ok("ps", "-a", "-q", "--filter", "id="+id), "")
}

// container is a quadlet's section with the lines.
func (p *podman) container(name string, annotations []string, lines ...string) string {
	lines = slices.Concat([]string{"[Container]", "Image=" + image, "ContainerName=" + name, "Network=none", "Pull=never"}, lines)
	for _, annotation := range annotations {
		lines = append(lines, "Annotation="+annotation)
	}
	return strings.Join(append(lines, "[Service]", "Environment="+strings.Join(p.store.files(), " "), ""), "\n")
}

// quadlet is a service that is described by what it runs.
func (p *podman) quadlet(notify string, annotations []string) {
	p.t.Helper()
	p.needQuadlets()
	name := p.podName() + "-quadlet"
	p.addUnits(map[string]string{filepath.Join(quadletDir, name+".container"): p.container(name, annotations,
		"Notify=true", "Volume="+notify+":/bin/notify:ro", `Exec=/bin/sh -c "`+ready+`"`)})
	p.systemctl("start", name+".service")
	p.wantService(name+".service", name, annotations)
}

// needQuadlets is for podman 5; before that they have no directory in /run.
func (p *podman) needQuadlets() {
	p.t.Helper()
	need(p.t, "podman 5", func() error {
		if version := p.ok("version", "--format", "{{.Client.Version}}"); version < "5" {
			return fmt.Errorf("podman %s", version)
		}
		return nil
	})
}

// socketUnit has systemd listen, and start the container when somebody comes.
func (p *podman) socketUnit(annotations []string) {
	p.t.Helper()
	name := p.podName() + "-socket"
	address := filepath.Join("/run", name+".sock")
	p.addUnits(map[string]string{
		filepath.Join(unitDir, name+".socket"): "[Socket]\nListenStream=" + address + "\n",
		filepath.Join(quadletDir, name+".container"): p.container(name, annotations, "Volume="+probePath()+":/probe:ro",
			`Exec=/bin/sh -c "trap 'exit 0' TERM; /probe serve fd:3 & wait"`),
	})
	p.systemctl("start", name+".socket")
	p.t.Cleanup(func() { _ = os.Remove(address) })
	conn, err := net.Dial("unix", address)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answer, err := io.ReadAll(conn)
	if err != nil {
		p.t.Fatal(err)
	}
	equal(p.t, "answer", string(answer), "inside\n")
	p.systemctl("stop", name+".socket")
	p.wantService(name+".service", name, annotations)
}
