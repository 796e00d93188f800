package integration

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// rootlessNetwork is a network that podman makes for a normal user.
type rootlessNetwork struct {
	name    string
	options []string
	// host are addresses by which the host answers on it.
	host []string
	// pasta is set for one that needs a podman which knows pasta.
	pasta bool
}

func rootlessNetworks() []rootlessNetwork {
	const slirpHost = "10.0.2.2"
	return []rootlessNetwork{
		// By which podman 5 has containers find the host, as host.containers.internal.
		{name: "pasta", options: []string{"--network", "pasta"}, host: []string{"169.254.1.2"}, pasta: true},
		{name: "pasta, the gateway is the host", options: []string{"--network", "pasta:--map-gw"}, host: []string{outsideGateway}, pasta: true},
		{name: "pasta, keep-id", options: []string{"--network", "pasta:--map-gw", "--userns", "keep-id"}, host: []string{outsideGateway}, pasta: true},
		{name: "slirp4netns", options: []string{"--network", "slirp4netns"}},
		{name: "slirp4netns, the host", options: []string{"--network", "slirp4netns:allow_host_loopback=true"}, host: []string{slirpHost}},
		{name: "slirp4netns, keep-id", options: []string{"--network", "slirp4netns:allow_host_loopback=true", "--userns", "keep-id"}, host: []string{slirpHost}},
		{name: "bridge", options: []string{"--network", "bridge"}},
		{name: "bridge, keep-id", options: []string{"--network", "bridge", "--userns", "keep-id"}},
	}
}

// outsideAddress is the suite's own with [outside], and outsideGateway where its
// default route leads, and nobody is.
const outsideAddress, outsideGateway = "10.99.0.2", "10.99.0.1"

// outside gives the suite's network namespace an interface with a default route,
// which pasta copies. Tests with it must not be parallel.
func outside(t *testing.T) {
	t.Helper()
	l := &lab{t: t}
	l.helper("sh", "-c", `ip link add out0 type veth peer name out1 && ip link set out1 up && ip link set out0 up &&
		ip address add `+outsideAddress+`/24 dev out0 && ip route add default via `+outsideGateway)
	t.Cleanup(func() { l.helper("ip", "link", "delete", "out0") })
}

// havePasta tells whether podman knows pasta: since 4.4.
func havePasta() error {
	if _, err := exec.LookPath("pasta"); err != nil {
		return err
	}
	version, err := suite.reaper.output(exec.Command("podman", "--version"))
	if err == nil && strings.Contains(version, " 4.3.") {
		err = errors.New("podman 4.3")
	}
	return err
}

// TestRootlessWall has a normal user give a policy to containers on each of the
// networks that podman makes without root. Without one, they get out.
func TestRootlessWall(t *testing.T) {
	eggrunOnly(t)
	user := loggedIn(cgroupfs)
	need(t, "a user with a service manager", user.isThere)
	store := newPodmanStore(t, user)
	t.Cleanup(func() { // ends the process that keeps podman's user namespace
		(&podman{t: t, store: store, rt: suite.runtime, dir: store.dir}).ok("system", "migrate")
	})
	outside(t)
	c, s := newCanary(t), newServer(t)
	c.stream(t, "tcp4", net.JoinHostPort(outsideAddress, c.port))
	each := func(name string, test func(n *rootlessNetwork, t *testing.T, p *podman)) {
		t.Run(name, func(t *testing.T) {
			for _, n := range rootlessNetworks() {
				t.Run(n.name, func(t *testing.T) {
					t.Parallel()
					if n.pasta {
						need(t, "podman with pasta", havePasta)
					}
					store.each(t, func(t *testing.T, p *podman) { test(&n, t, p) })
				})
			}
		})
	}
	each("open", func(n *rootlessNetwork, t *testing.T, p *podman) {
		n.each(t, p, nil, func(options []string) { n.wantOpen(t, p, c, options) })
	})
	c.visits.Store(0)
	each("walled", func(n *rootlessNetwork, t *testing.T, p *podman) {
		if p.rt.isEggrun() {
			n.each(t, p, []string{"--annotation", "eggrun.domains=" + s.domains()}, func(options []string) { n.wantWalled(t, p, c, s, options) })
		}
	})
	equal(t, "visits", c.visits.Load(), 0)
	t.Run("ports of the host", func(t *testing.T) {
		need(t, "podman with pasta", havePasta)
		store.each(t, func(t *testing.T, p *podman) {
			if p.rt.isEggrun() {
				podmanPastaPorts(t, p, c)
			}
		})
	})
}

// podmanPastaPorts has pasta listen on the container's loopback for the host's.
func podmanPastaPorts(t *testing.T, p *podman, c *canary) {
	reach := []string{image, "/probe", "dial", "127.0.0.1:" + c.port}
	policy := []string{"--annotation", "eggrun.domains=" + allowedName}
	probe := []string{"--no-hosts", "-v", probePath() + ":/probe:ro"}
	for _, options := range [][]string{
		{"--network", "pasta:-T," + c.port}, {"--network", "pasta:-T,auto"}, {"--network", "pasta:-T," + c.port, "--userns", "keep-id"},
	} {
		open := slices.Concat(probe, options)
		contains(t, fmt.Sprintf("control, %q", options), p.run(append(open, reach...)...).stdout, "dial ok")
		c.visits.Store(0)
		for name, walled := range map[string][]string{
			"alone":  slices.Concat(policy, open, reach),
			"joined": slices.Concat(policy, probe, []string{"--network", "container:" + p.detach(slices.Concat(options[:2], []string{image, "sleep", "1000"})...)}, reach),
		} {
			r := p.run(walled...)
			equal(t, fmt.Sprintf("%s, %q: exit status", name, options), r.code, 126)
			contains(t, fmt.Sprintf("%s, %q", name, options), r.stderr, "cannot enforce domains: pasta brings ports of the host")
		}
		equal(t, "visits", c.visits.Load(), 0)
	}
}

// each calls try with the options of a container on the network, of one that
// shares that of another, and of one in a pod. The first one there gets those of
// a policy.
func (n *rootlessNetwork) each(t *testing.T, p *podman, policy []string, try func(options []string)) {
	probe, sleeper := []string{"--no-hosts", "-v", probePath() + ":/probe:ro"}, []string{image, "sleep", "1000"}
	try(slices.Concat(policy, probe, n.options))

	other := "container:" + p.detach(slices.Concat(policy, n.options, sleeper)...)
	joined := append(slices.Clone(probe), "--network", other)
	if slices.Contains(n.options, "--userns") {
		// Also from a user namespace of its own, to which the network is not.
		try(append(slices.Clone(joined), "--userns", "keep-id"))
		joined = append(joined, "--userns", other)
	}
	try(joined)

	if haveCatatonit() != nil {
		return
	}
	pod := p.ok(slices.Concat([]string{"pod", "create", "--no-hosts", "--infra-command", "/catatonit -P"}, n.options)...)
	t.Cleanup(func() { p.ok("pod", "rm", "-f", "-t", "0", pod) })
	member := []string{"--pod", pod, "-v", probePath() + ":/probe:ro"}
	p.detach(slices.Concat(policy, member, sleeper)...)
	try(member)
}

// ways is a script that tries the ways out.
func (n *rootlessNetwork) ways(c *canary) string {
	script := "/probe out " + canaryIPv4 + " " + canaryIPv6 + " " + c.port + " " + c.unixName + " /none"
	for _, host := range n.host {
		script += "; /probe dial " + net.JoinHostPort(host, c.port)
	}
	return script
}

func (n *rootlessNetwork) wantOpen(t *testing.T, p *podman, c *canary, options []string) {
	t.Helper()
	got := p.output(n.ways(c), options...)
	for _, way := range []string{"tcp4 ok\n", "udp4 ok\n", "dns-udp ok\n"} {
		contains(t, fmt.Sprintf("control, %q", options), got, way)
	}
	equal(t, "control, the host", strings.Count(got, "dial ok"), len(n.host))
}

func (n *rootlessNetwork) wantWalled(t *testing.T, p *podman, c *canary, s *server, options []string) {
	t.Helper()
	// A connection is accepted by the sidecar before it is refused.
	got := strings.Replace(p.output(n.ways(c), options...), "mapped ok\n", "", 1)
	if strings.Contains(got, " ok") || !strings.Contains(got, "tcp4 fail") {
		t.Errorf("%q: %s", options, got)
	}
	url := func(name string) string { return "http://" + name + ":" + s.httpPort + "/" }
	got = p.output(fmt.Sprintf("/probe fetch %s; /probe fetch %s 2>&1; true", url(allowedName), url(evilName)), options...)
	contains(t, fmt.Sprintf("%q, allowed name", options), got, "200 OK this is allowed.test")
	contains(t, fmt.Sprintf("%q, another name", options), got, "no such host")
}
