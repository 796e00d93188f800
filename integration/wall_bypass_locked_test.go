package integration

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// wayNeedsHelp are ways that a kernel may lack, for the control.
var wayNeedsHelp = []string{"sctp", "mptcp", "udplite"}

// TestLockedWays sends by every odd socket that a program can have out of a
// namespace with an interface. By it only what goes to peers may leave. The
// control is the same without a policy.
func TestLockedWays(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	ways := both(probe("ways"), addCapabilities("CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_SYS_ADMIN"))
	outcomes := func(r result) []string {
		lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
		if r.code != 0 || len(lines) < 30 {
			t.Fatalf("probe: exit %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
		}
		return lines
	}
	open := l.newWorld(true)
	open.watch()
	control := outcomes(l.run(ways, open.network()))
	left := open.left()
	var peers []string
	for i, line := range control {
		name, outcome, _ := strings.Cut(line, " ")
		port := ":" + itoa(7000+i)
		at := slices.IndexFunc(left, func(packet string) bool { return strings.HasSuffix(packet, port) })
		if name == "ping" {
			at = slices.Index(left, "protocol 1 203.0.113.9")
		}
		switch {
		case at >= 0 && strings.HasPrefix(name, "peer"):
			peers = append(peers, left[at])
		case at < 0 && !slices.Contains(wayNeedsHelp, name):
			t.Errorf("control: %s (%s) is not on the wire: %q", name, outcome, left)
		}
	}
	for what, edits := range map[string][]edit{
		"root":                               {domains(allowedName)},
		"nobody":                             {domains(allowedName), asUser(1000, 1000)},
		"without peers":                      {domains(allowedName), annotate("eggrun.peers", "none")},
		"a program that asks for names only": {domains(allowedName), annotate("eggrun.transparent", "off")},
	} {
		w := l.newWorld(true)
		w.watch()
		tried := outcomes(l.run(append(edits, ways, w.network())...))
		want := peers
		if what == "without peers" {
			want = nil
		}
		if got := w.left(); !slices.Equal(got, want) {
			t.Errorf("%s: on the wire: %q, want %q; %q", what, got, want, tried)
		}
	}
	bare := l.newWorld(false)
	bare.watch()
	outcomes(l.run(ways, bare.network(), domains(allowedName)))
	if got := bare.left(); !slices.Equal(got, peers) {
		t.Errorf("without routes: on the wire: %q, want %q", got, peers)
	}
}

// TestLockedRules tries to change what the wall is made of.
func TestLockedRules(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	const script = `/probe table mine; ip route add 203.0.113.0/24 dev eth0 && echo route ok; ip link set lo down && echo link ok
		ip address add 10.77.0.9/24 dev eth0 && echo address ok; ip link add x type veth peer name y && echo device ok
		unshare -n /probe table mine; true`
	rights := addCapabilities("CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_SYS_ADMIN")
	open, walled := l.newWorld(true), l.newWorld(true)
	tampered := func(w *world, edits ...edit) string {
		return l.output(script, append(edits, quiet, withProbe, rights, w.network())...)
	}
	equal(t, "control", tampered(open), "table ok\nroute ok\nlink ok\naddress ok\ndevice ok\ntable ok")
	got := tampered(walled, domains(allowedName))
	if strings.Contains(got, " ok") || !strings.HasPrefix(got, "table fail: operation not permitted") {
		t.Errorf("with a policy: %q", got)
	}
	sleeper := l.sleeper(withProbe, walled.network(), domains(allowedName))
	got = sleeper.processOutput(sh(script), quiet, privileged)
	if strings.Contains(got, " ok") {
		t.Errorf("exec --privileged: %q", got)
	}
}

// TestLockedNames asks for names by which data could get out by way of the
// engine's resolver, which would ask the world. Those of peers, and no others,
// may come to it.
func TestLockedNames(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	resolv := filepath.Join(l.dir, "resolv.conf")
	writeFile(t, resolv, "search dns.engine\nnameserver 10.77.0.1\n", 0o644)
	mount := addMounts(specs.Mount{Destination: "/etc/resolv.conf", Type: "bind", Source: resolv, Options: []string{"bind", "ro"}})
	long := strings.Repeat("a", 63)
	questions := []string{
		"1:leak.evil.test", "28:leak.evil.test", "16:evil.test", "255:evil.test", "1:secret." + allowedName, "16:" + allowedName, "65:" + allowedName,
		"12:5.0.77.10.evil.test", "12:9.113.0.203.in-addr.arpa", "12:1.0.77.10.in-addr.arpa", "12:secret.3.0.77.10.in-addr.arpa",
		"1:a.b.dns.engine", "1:dns.engine", "1:" + long + "." + long, "1:x.local", "1:x\\x00y", "1:\xffz", "48:svc", "1:svc", "1:Web.DNS.engine", "12:3.0.77.10.in-addr.arpa",
	}
	asked := func(edits ...edit) []string {
		w := l.newWorld(true)
		var mu sync.Mutex
		names := []string{}
		w.within(w.outside, func() error {
			conn, err := net.ListenPacket("udp4", "10.77.0.1:53")
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = conn.Close() })
			go func() {
				message := make([]byte, 4096)
				for {
					n, from, err := conn.ReadFrom(message)
					if err != nil {
						return // closed
					}
					if name := questionName(message[:n]); !slices.Contains(names, name) {
						mu.Lock()
						names = append(names, name)
						mu.Unlock()
					}
					message[2], message[3] = 0x81, 0x83 // an answer: there is no such name
					_, _ = conn.WriteTo(message[:n], from)
				}
			}()
			return nil
		})
		ask := args(append([]string{"/probe", "ask", "10.77.0.1:53"}, questions...)...)
		r := l.run(append(edits, withProbe, ask, mount, w.network())...)
		equal(t, "answers ("+r.stderr+")", r.stdout, itoa(len(questions))+" answers\n")
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(names)
		return names
	}
	if got := asked(); len(got) < 15 {
		t.Errorf("control: asked for %q", got)
	}
	got := asked(domains(allowedName))
	want := []string{"3.0.77.10.in-addr.arpa", "svc", "web.dns.engine"}
	if !slices.Equal(got, want) {
		t.Errorf("the engine's resolver was asked for %q, want %q", got, want)
	}
	if got := asked(domains(allowedName), annotate("eggrun.peers", "none")); len(got) > 0 {
		t.Errorf("without peers the engine's resolver was asked for %q", got)
	}
}

// TestLockedResolvConf has a container write into the engine's resolv.conf, which
// says whom the sidecar of the next one asks.
func TestLockedResolvConf(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	w := l.newWorld(true)
	resolv := filepath.Join(l.dir, "resolv.conf")
	const before = "nameserver 10.77.0.1\n"
	attack := func(edits ...edit) string {
		writeFile(t, resolv, before, 0o666)
		mount := addMounts(specs.Mount{Destination: "/etc/resolv.conf", Type: "bind", Source: resolv, Options: []string{"bind"}})
		l.run(append(edits, sh("echo nameserver 203.0.113.9 > /etc/resolv.conf"), mount, w.network())...)
		return readFile(t, resolv)
	}
	if got := attack(); got == before {
		t.Error("control: without a policy nothing was written")
	}
	equal(t, "the engine's file", attack(domains(allowedName)), before)
}

// questionName returns the name that a DNS message asks for.
func questionName(message []byte) string {
	var labels []string
	for at := 12; at < len(message) && message[at] > 0 && at+int(message[at]) < len(message); at += 1 + int(message[at]) {
		labels = append(labels, string(message[at+1:at+1+int(message[at])]))
	}
	return strings.Join(labels, ".")
}

// TestLockedDockersResolver has a socket of docker's resolver in the namespace,
// on a high port of 127.0.0.11, which would ask anybody for anything.
func TestLockedDockersResolver(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	const port = "42222"
	for _, walled := range []bool{false, true} {
		w, c := l.newWorld(true), new(canary)
		w.within(w.inside, func() error {
			c.packets(t, "udp4", "127.0.0.11:"+port)
			c.stream(t, "tcp4", "127.0.0.11:"+port)
			return nil
		})
		edits := []edit{withProbe, sh("/probe ask 127.0.0.11:" + port + " 1:leak.evil.test; /probe dial 127.0.0.11:" + port), w.network()}
		if walled {
			edits = append(edits, domains(allowedName))
		}
		l.wantOK(l.run(edits...))
		equal(t, fmt.Sprintf("visits, policy %v", walled), c.visits.Load(), map[bool]int64{false: 2, true: 0}[walled])
	}
}

// TestLockedOldConnection asks for a policy in a namespace in which there is a
// connection already: it would outlive every rule. One that only listens does no
// harm.
func TestLockedOldConnection(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	for _, connects := range []bool{false, true} {
		w, c := l.newWorld(true), new(canary)
		w.listen(c, "10.77.0.1:7999")
		command := "nc -l -p 7000"
		if connects {
			command = "(echo hello; sleep 1000) | nc 10.77.0.1 7999"
		}
		old := l.sleeper(w.network(), sh(command))
		if connects {
			old.wantOutput("hello")
		}
		id := l.newID()
		r := l.call("create", "--bundle", l.bundle(id, sh("exit 0"), w.network(), domains(allowedName)).dir, id)
		if connects {
			l.wantFail(r, "cannot enforce domains", "open connections")
			l.wantGone(id)
		} else {
			l.wantSilent(r)
		}
		l.wantSilent(l.call("delete", "--force", old.id))
	}
}

// TestLockedInbound connects to a container, where that is wanted, and needs it
// to be able to answer, and not to connect back.
func TestLockedInbound(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	for inbound, want := range map[string]string{"": "inside", "none": "", "8080": "inside", "8081": ""} {
		w, c := l.newWorld(true), new(canary)
		w.listen(c, "10.77.0.1:7999")
		edits := []edit{withProbe, w.network(), domains(allowedName), sh("/probe serve 10.77.0.2:8080")}
		if inbound != "" {
			edits = append(edits, annotate("eggrun.inbound", inbound))
		}
		server := l.runDetached(edits...)
		server.wantOutput("listening")
		got := w.run(w.outside, "busybox nc -w 1 10.77.0.2 8080 </dev/null 2>/dev/null || true")
		equal(t, "inbound "+inbound, strings.TrimSpace(got), want)
		contains(t, "back to who has connected", l.call("exec", server.id, "/probe", "dial", "10.77.0.1:7999").stdout, "dial fail")
		equal(t, "visits", c.visits.Load(), 0)
		l.wantSilent(l.call("delete", "--force", server.id))
	}
}

// TestLockedLateNetwork connects a further network to a container that runs, as
// "podman network connect" does without telling: nobody on it is a peer.
func TestLockedLateNetwork(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	for _, walled := range []bool{false, true} {
		w, c := l.newWorld(true), new(canary)
		edits := []edit{withProbe, w.network()}
		if walled {
			edits = append(edits, domains(allowedName))
		}
		s := l.sleeper(edits...)
		w.run(w.outside, "ip link add h1 type veth peer name eth1 && ip link set eth1 netns "+w.inside+" && ip link set h1 up && ip address add 10.78.0.1/24 dev h1 && ip address add 10.78.0.3/24 dev h1")
		w.run(w.inside, "ip link set eth1 up && ip address add 10.78.0.2/24 dev eth1")
		w.listen(c, "10.78.0.3:7999")
		w.listen(c, "10.77.0.3:7999")
		want := map[bool]string{false: "dial ok", true: "dial fail"}[walled]
		contains(t, fmt.Sprintf("the late network, policy %v", walled), s.exec(nil, "/probe", "dial", "10.78.0.3:7999").stdout, want)
		equal(t, fmt.Sprintf("visits, policy %v", walled), c.visits.Load(), map[bool]int64{false: 1, true: 0}[walled])
		contains(t, "the peer from before", s.exec(nil, "/probe", "dial", "10.77.0.3:7999").stdout, "dial ok")
	}
}

// TestRecycledNamespace makes a network namespace in the place of one that had a
// policy, which then has the same inode: it has neither its wall nor its policy.
func TestRecycledNamespace(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	pinned := l.pinnedNetwork("true")
	network := withNamespace(specs.NetworkNamespace, pinned)
	stale := l.sleeper(network, domains("other.test"))
	stale.kill("KILL") // and is never deleted before the end
	stale.wait()
	for range 5 {
		if err := unix.Unmount(pinned, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		l.helper("unshare", "--net="+pinned, "true")
		equal(t, "without a policy", l.output("cat /proc/net/tcp | wc -l", network), "1")
		equal(t, "with another one", l.output("cat /proc/net/tcp | wc -l", network, domains(allowedName)), "4")
	}
}
