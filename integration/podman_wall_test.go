package integration

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func podmanWallCases() []podmanCase {
	return []podmanCase{
		{name: "policy, everyday options", run: podmanWallEveryday},
		{name: "policy, clamp", run: podmanWallClamp},
		{name: "policy, refused", run: podmanWallRefused},
		{name: "policy, preserve-fds", run: podmanWallPreserve},
	}
}

// walled are the options of a container with a policy, none where the runtime
// knows no policies: there the case is its own control.
func (p *podman) walled(options ...string) []string {
	if !p.rt.isEggrun() {
		return options
	}
	return append([]string{"--annotation", "eggrun.domains=" + allowedName}, options...)
}

// wantWall has a container that has no network, and the options of
// [server.withServer], try the server and another one. The control reaches neither.
func (p *podman) wantWall(container string, s *server) {
	p.t.Helper()
	fetch := func(url string) string {
		r := p.call("exec", container, "/probe", "fetch", url)
		return r.stdout + r.stderr
	}
	if !p.rt.isEggrun() {
		contains(p.t, "control: allowed name", fetch(s.url()), "error: Get")
		return
	}
	contains(p.t, "allowed name", fetch(s.url()), "200 OK this is allowed.test")
	contains(p.t, "another name", fetch("https://"+evilName+"/"), evilName+":443 not on the allowlist")
}

// podmanWallEveryday: what podman itself mounts and hands over is no way out.
func podmanWallEveryday(t *testing.T, p *podman) {
	dir := makeDir(t, filepath.Join(p.dir, "volume"))
	writeFile(t, filepath.Join(dir, "file"), "shared\n", 0o644)
	secret := "secret-" + strings.ToLower(filepath.Base(p.dir))
	p.ok("secret", "create", secret, filepath.Join(dir, "file"))
	t.Cleanup(func() { p.ok("secret", "rm", secret) })
	volume := strings.ToLower(filepath.Base(p.dir))
	t.Cleanup(func() { p.ok("volume", "rm", "-f", volume) })
	for name, options := range map[string][]string{
		"plain":        nil,
		"interactive":  {"-i"},
		"terminal":     {"-t"},
		"directory":    {"-v", dir + ":/data:ro"},
		"volume":       {"-v", volume + ":/data"},
		"tmpfs":        {"--tmpfs", "/run", "--read-only"},
		"secret":       {"--secret", secret},
		"shared ipc":   {"--ipc", "shareable", "--hostname", "web1"},
		"user mapping": {"--uidmap", "0:100000:5000"},
		"device":       {"--device", "/dev/zero:/dev/myzero"},
		"sysctl":       {"--sysctl", "net.ipv4.ping_group_range=0 0"},
		"no seccomp":   {"--security-opt", "seccomp=unconfined"},
	} {
		got := strings.TrimRight(p.output("cat /etc/hosts >/dev/null && echo ok", p.walled(options...)...), "\r\n")
		equal(t, name, got, "ok")
	}
	id := p.sleeper(p.walled()...)
	equal(t, "exec", p.ok("exec", id, "echo", "ok"), "ok")
	equal(t, "exec -i", p.callWith("typed\n", "exec", "-i", id, "cat").stdout, "typed\n")
}

func podmanWallClamp(t *testing.T, p *podman) {
	const script = "grep CapBnd /proc/self/status | cut -f2; echo 1 2>/dev/null >/proc/sys/net/ipv4/conf/all/route_localnet && echo wrote; mount -t tmpfs tmpfs /tmp 2>/dev/null && echo mounted; true"
	loose := []string{"--cap-add", "all", "--security-opt", "unmask=ALL", "--security-opt", "seccomp=unconfined"}
	id := p.sleeper(p.walled(loose...)...)
	for name, got := range map[string]string{
		"run":               p.output(script, p.walled(loose...)...),
		"exec":              p.ok("exec", id, "sh", "-c", script),
		"exec --privileged": p.ok("exec", "--privileged", id, "sh", "-c", script),
	} {
		lines := strings.Split(got, "\n")
		if p.rt.isEggrun() {
			equal(t, name, got, hex16(clampedMask))
		} else if len(lines) != 3 || lines[0] == hex16(clampedMask) || lines[1] != "wrote" || lines[2] != "mounted" {
			t.Errorf("control, %s: %q", name, lines)
		}
	}
}

// podmanWallRefused also shows what podman makes of the message.
func podmanWallRefused(t *testing.T, p *podman) {
	// Not below the runtime directory, where podman has its own.
	socket := filepath.Join(p.dir, "service.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	other := p.sleeper()
	for _, tt := range []struct {
		options []string
		want    string
	}{
		{[]string{"--privileged"}, "run without --privileged"},
		{[]string{"-v", "/run:/run"}, "drop the volume"},
		{[]string{"-v", "/:/host"}, "drop the volume"},
		{[]string{"-v", "/tmp:/tmp"}, "drop the volume"},
		{[]string{"-v", socket + ":/service.sock"}, "eggrun.allow-sockets"},
		{[]string{"-v", p.dir + ":/data"}, "eggrun.allow-sockets"},
		{[]string{"--device", "/dev/kmsg"}, "--device"},
		{[]string{"--device-cgroup-rule", "b *:* rwm"}, "--device-cgroup-rule"},
		{[]string{"--sysctl", "net.ipv4.ip_forward=1"}, "--sysctl"},
		{[]string{"--pid", "host"}, "--pid"},
		{[]string{"--pid", "container:" + other}, "--pid"},
		{[]string{"--network", "host"}, "--network none"},
	} {
		r := p.run(append(p.walled(tt.options...), image, "echo", "ran")...)
		if !p.rt.isEggrun() {
			equal(t, "control, "+strings.Join(tt.options, " ")+" ("+r.stderr+")", r.stdout, "ran\n")
			continue
		}
		if r.code != 125 && r.code != 126 || r.stdout != "" {
			t.Errorf("%v: exit %d, stdout %q", tt.options, r.code, r.stdout)
		}
		contains(t, strings.Join(tt.options, " "), r.stderr, "cannot enforce domains: ")
		contains(t, strings.Join(tt.options, " "), r.stderr, tt.want)
	}
}

// podmanWallPreserve hands a listening socket of the host over.
func podmanWallPreserve(t *testing.T, p *podman) {
	target, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = target.Close() }()
	visits := make(chan struct{}, 10)
	go func() {
		for {
			conn, err := target.Accept()
			if err != nil {
				return // closed
			}
			_, _ = conn.Write([]byte("here\n"))
			_ = conn.Close()
			visits <- struct{}{}
		}
	}()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	listening := os.NewFile(uintptr(fd), "listening")
	defer func() { _ = listening.Close() }()
	if err := unix.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	probe := []string{"-v", probePath() + ":/probe:ro"}
	attack := []string{"/probe", "fd", "turn", "3", target.Addr().String()}
	id := p.sleeper(p.walled(probe...)...)
	for name, command := range map[string][]string{
		"run":  p.runArgs(append(append(p.walled(probe...), "--rm", "--preserve-fds", "1", image), attack...)...),
		"exec": append([]string{"exec", "--preserve-fds", "1", id}, attack...),
	} {
		cmd := p.command(command...)
		cmd.ExtraFiles = []*os.File{listening}
		out, err := suite.reaper.output(cmd)
		if !p.rt.isEggrun() {
			contains(t, "control, "+name, out, "fd ok")
			<-visits
			continue
		}
		if err == nil || strings.Contains(out, "fd ok") {
			t.Errorf("%s: %v, output %q", name, err, out)
		}
	}
	equal(t, "visits", len(visits), 0)
}
