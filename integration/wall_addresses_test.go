package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// underFile has a file of the suite's /etc hold more, or something else, until the
// test ends. Such tests must not be parallel.
func underFile(t *testing.T, path, text string) {
	t.Helper()
	before := readFile(t, path)
	writeFile(t, path, text, 0o644)
	t.Cleanup(func() { writeFile(t, path, before, 0o644) })
}

// status is the number in the first line of an answer.
func status(answer string) string {
	_, rest, _ := strings.Cut(answer, " ")
	number, _, _ := strings.Cut(rest, " ")
	return number
}

func connectTo(target string) string { return "CONNECT " + target + " HTTP/1.1\r\n\r\n" }

// TestSpecialAddresses has names of the list stand for addresses that are not of
// the Internet, in every form. The control is a rule that names one of them.
func TestSpecialAddresses(t *testing.T) {
	l, c := newLab(t, eggrunOnly(t)), newCanary(t)
	hosts := readFile(t, "/etc/hosts")
	var requests, names []string
	for i, address := range []string{
		"127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "10.1.2.3", "172.16.1.2", "192.168.1.2", "169.254.169.254", "100.64.1.2", "192.0.0.8",
		canaryIPv4, "198.51.100.1", "203.0.113.1", "198.18.1.2", "224.0.0.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::ffff:" + canaryIPv4, "::" + canaryIPv4, "64:ff9b::" + canaryIPv4, "64:ff9b:1::1", "100::1", "2001::1", canaryIPv6, "2002:c000:201::1",
		"fd00::1", "fe80::1", "fec0::1", "ff02::1",
	} {
		name := fmt.Sprintf("s%d.%s", i, allowedName)
		hosts += address + " " + name + "\n"
		names = append(names, name+" at "+address)
		requests = append(requests, connectTo(name+":"+c.port))
	}
	underFile(t, "/etc/hosts", hosts)
	list := "*." + allowedName + ":" + c.port
	for i, answer := range l.answers(requests, domains(list)) {
		equal(t, names[i]+" ("+answer+")", status(answer), "403")
	}
	equal(t, "visits", c.visits.Load(), 0)
	for i, answer := range l.answers([]string{requests[0], requests[10]}, domains(list+" 127.0.0.1:"+c.port+" "+canaryIPv4+":"+c.port)) {
		equal(t, fmt.Sprintf("control %d (%s)", i, answer), status(answer), "200")
	}
}

// TestRebinding has a name server change its mind: an address that was vetted is
// dialled, and nobody is asked in between. In the second connection the other
// address is seen, and refused.
func TestRebinding(t *testing.T) {
	l, c := newLab(t, eggrunOnly(t)), newCanary(t)
	questions := new(atomic.Int32)
	const server = "127.0.0.53"
	conn, err := net.ListenPacket("udp4", server+":53")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		message := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(message)
			if err != nil {
				return // closed
			}
			_, _ = conn.WriteTo(flipped(message[:n], questions), from)
		}
	}()
	underFile(t, "/etc/resolv.conf", "nameserver "+server+"\noptions timeout:1\n")
	flip := connectTo("flip.example.com:" + c.port)
	// One after the other: the sidecar answers a connection before it takes the next.
	got := l.answers([]string{flip, flip}, domains("flip.example.com:"+c.port+" "+canaryIPv4+":"+c.port))
	equal(t, "first ("+got[0]+")", status(got[0]), "200")
	equal(t, "second ("+got[1]+")", status(got[1]), "403")
	equal(t, "questions", questions.Load(), 2)
	equal(t, "visits", c.visits.Load(), 1)
	// The control: at the other address there is somebody, if a rule has it.
	questions.Store(1)
	got = l.answers([]string{flip}, domains("flip.example.com:"+c.port+" 127.0.0.1:"+c.port))
	equal(t, "control ("+got[0]+")", status(got[0]), "200")
}

// flipped answers a question for A: the canary's address the first time, and the
// loopback's from then on.
func flipped(question []byte, count *atomic.Int32) []byte {
	end := 12 + slices.Index(question[12:], 0) + 5
	answer := append([]byte{}, question[:end]...)
	answer[2], answer[3] = 0x81, 0x80
	copy(answer[6:12], make([]byte, 6))
	if question[end-3] != 1 { // not A
		return answer
	}
	address := net.ParseIP("127.0.0.1").To4()
	if count.Add(1) == 1 {
		address = net.ParseIP(canaryIPv4).To4()
	}
	answer[7] = 1
	return append(append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4), address...)
}

// TestDeadAddress has a name with an address that swallows everything before one
// that answers. The control has the first one alone.
func TestDeadAddress(t *testing.T) {
	l, c := newLab(t, eggrunOnly(t)), newCanary(t)
	const dead = "192.0.2.77"
	l.helper("ip", "route", "add", dead+"/32", "dev", "lo")
	t.Cleanup(func() { l.helper("ip", "route", "delete", dead+"/32", "dev", "lo") })
	underFile(t, "/etc/hosts", readFile(t, "/etc/hosts")+dead+" two.test dead.test\n"+canaryIPv4+" two.test\n")
	got := l.answers([]string{connectTo("two.test:" + c.port), connectTo("dead.test:" + c.port)},
		domains(dead+":"+c.port+" "+canaryIPv4+":"+c.port+" two.test:"+c.port+" dead.test:"+c.port))
	equal(t, "two addresses ("+got[0]+")", status(got[0]), "200")
	if status(got[1]) == "200" {
		t.Errorf("control: %q", got[1])
	}
}

// TestSidecarIsNotToBeReached gives a container the whole loopback: there is
// nothing of the sidecar's on it, for its requests come by a socket that is its
// owner's alone.
func TestSidecarIsNotToBeReached(t *testing.T) {
	l := newLab(t, eggrunOnly(t))
	before := listeners(t)
	c := l.sleeper(domains("127.0.0.0/8:* [::1]:*"))
	for _, address := range listeners(t) {
		if !slices.Contains(before, address) {
			t.Errorf("something listens at %s since", address)
		}
	}
	control, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = control.Close() }()
	if len(listeners(t)) != len(before)+1 {
		t.Error("control: a listener is not seen")
	}
	entry := l.entryOf(c.id)
	for path, want := range map[string]os.FileMode{entry: os.ModeDir | 0o700, filepath.Join(entry, "control"): os.ModeSocket | 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, info, err, want)
		}
	}
}

// listeners are the sockets of the suite's network namespace that wait for somebody.
func listeners(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, name := range []string{"tcp", "tcp6", "udp", "udp6"} {
		for line := range strings.Lines(readFile(t, "/proc/thread-self/net/"+name)) {
			fields := strings.Fields(line)
			const listening, unconnected = "0A", "07"
			if fields[3] == listening || fields[3] == unconnected {
				all = append(all, name+" "+fields[1])
			}
		}
	}
	return all
}
