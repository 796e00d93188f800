package integration

import (
	"io"
	"net"
	"os"
	"strings"
	"testing"
)

// podmanServiceCases are what a service manager asks of a container: to be told
// that it is ready, and that it takes over sockets.
func podmanServiceCases() []podmanCase {
	return []podmanCase{
		{name: "sdnotify container", run: podmanNotify},
		{name: "sdnotify conmon", run: func(t *testing.T, p *podman) {
			m := newServiceManager(t, p.dir)
			for _, options := range [][]string{nil, p.walled()} {
				id := p.startNotifying(m, append(options, "--sdnotify=conmon", image, "sh", "-c", "echo ${NOTIFY_SOCKET:-none}; exec sleep 1000")...)
				equal(t, "messages", strings.Join(m.untilReady(t), " "), "MAINPID="+p.conmonOf(id)+" READY=1")
				p.wantLog(id, "none")
			}
		}},
		{name: "socket activation", run: podmanActivation},
	}
}

func (p *podman) conmonOf(id string) string {
	p.t.Helper()
	return p.ok("inspect", "--format", "{{.State.ConmonPid}}", id)
}

// startNotifying starts a container for a service manager and returns its id.
func (p *podman) startNotifying(m *serviceManager, args ...string) string {
	p.t.Helper()
	cmd := p.command(p.runArgs(append([]string{"-d"}, args...)...)...)
	cmd.Env = append(cmd.Env, m.env)
	return callProgram(p.t, cmd).must(p.t)
}

// untilReady returns the lines that came up to READY=1.
func (m *serviceManager) untilReady(t *testing.T) (lines []string) {
	t.Helper()
	for len(lines) == 0 || lines[len(lines)-1] != "READY=1" {
		lines = append(lines, strings.Split(strings.TrimSpace(m.next(t)), "\n")...)
	}
	return lines
}

// podmanNotify has the program say when it is ready. Newer conmons pass on its
// status, too, and none what would harm the service manager.
func podmanNotify(t *testing.T, p *podman) {
	m := newServiceManager(t, p.dir)
	program, err := buildNotify()
	if err != nil {
		t.Fatal(err)
	}
	for _, options := range [][]string{nil, p.walled()} {
		id := p.startNotifying(m, append(options, "--sdnotify=container", "-v", program+":/bin/notify:ro", image,
			"sh", "-c", "echo up; until [ -e /go ]; do sleep 0.1; done; notify STATUS=hello MAINPID=1 READY=1; exec sleep 1000")...)
		p.wantLog(id, "up")
		equal(t, "first message", m.next(t), "MAINPID="+p.conmonOf(id))
		if len(m.messages) > 0 {
			t.Errorf("message of a program that has said nothing: %q", m.next(t))
		}
		p.ok("exec", id, "touch", "/go")
		for _, line := range m.untilReady(t) {
			if line != "STATUS=hello" && line != "READY=1" {
				t.Errorf("message %q", line)
			}
		}
	}
}

// podmanActivation hands over a socket, on which the host listens, to a container
// without a network. With a policy that is refused unless the policy has it, for
// the socket could be turned round.
func podmanActivation(t *testing.T, p *podman) {
	start := func(options ...string) (result, string) {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		file, err := listener.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		options = append([]string{"-d", "-v", probePath() + ":/probe:ro"}, options...)
		cmd := p.command(p.runArgs(append(options, image, "sh", "-c", "echo $LISTEN_FDS $LISTEN_PID $LISTEN_FDNAMES; exec /probe serve fd:3")...)...)
		cmd.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh"}, cmd.Args...)
		cmd.Path = "/bin/sh"
		cmd.Env = append(cmd.Env, "LISTEN_FDS=1", "LISTEN_FDNAMES=web")
		cmd.ExtraFiles = []*os.File{file}
		return callProgram(t, cmd), listener.Addr().String()
	}
	wantServed := func(options ...string) {
		t.Helper()
		r, address := start(options...)
		p.wantLog(r.must(t), "1 1 web\nlistening")
		conn, err := net.Dial("tcp4", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "answer", string(answer), "inside\n")
	}
	wantServed()
	if !p.rt.isEggrun() {
		return
	}
	wantServed(p.walled("--annotation", "eggrun.allow-fds=on")...)
	r, _ := start(p.walled()...)
	equal(t, "exit status with a policy", r.code, 126)
	contains(t, "stderr with a policy", r.stderr, "descriptor 3 is a socket of another network namespace; close it, or set eggrun.allow-fds")
}
