package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

var fakeAddress = regexp.MustCompile(`Address:? *(198\.(?:18|19)\.\d+\.\d+)\n`)

// fakeOf returns the address that the container gets for a name.
func (c *container) fakeOf(name string) string {
	c.lab.t.Helper()
	out := c.execOutput("nslookup " + name + " 2>&1; true")
	found := ""
	for _, match := range fakeAddress.FindAllStringSubmatch(out+"\n", -1) {
		if match[1] != "198.18.0.1" {
			found = match[1]
		}
	}
	return found
}

// entryOf returns the directory that the registry has for a container's network
// namespace.
func (l *lab) entryOf(id string) string {
	l.t.Helper()
	var state struct{ Network string }
	if err := json.Unmarshal([]byte(readFile(l.t, filepath.Join(l.root, id, "state.json"))), &state); err != nil {
		l.t.Fatal(err)
	}
	return state.Network
}

// TestSuccessor kills the sidecar of a namespace and has a container join, which
// brings another one: an address that a program has kept stands for whom it stood
// for, and nobody else gets it. Then there are no addresses left, which the audit
// says once.
func TestSuccessor(t *testing.T) {
	l := newLab(t, eggrunOnly(t))
	const list = allowedName + " *.wild.test"
	first := l.sleeper(withProbe, domains(list))
	kept := first.fakeOf("x.wild.test")
	if kept == "" {
		t.Fatal("no address for x.wild.test")
	}
	sidecar := l.oneSidecar(first)
	if err := unix.Kill(sidecar.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the sidecar's end", func() bool { return hasEnded(sidecar.pid) })
	network := withNamespace(specs.NetworkNamespace, "/proc/"+itoa(first.pid)+"/ns/net")
	second := l.sleeper(withProbe, domains(list), network)
	fresh := second.fakeOf("y.wild.test")
	if fresh == "" || fresh == kept {
		t.Errorf("y.wild.test has %q, and x.wild.test had %q", fresh, kept)
	}
	equal(t, "x.wild.test", second.fakeOf("x.wild.test"), kept)
	first.execOutput("/probe dial " + kept + ":22; /probe dial " + fresh + ":22")
	audit := l.call("egress", "log", second.id).stdout
	contains(t, "audit", audit, "deny  transparent x.wild.test:22")
	contains(t, "audit, control", audit, "deny  transparent y.wild.test:22")

	ledger := filepath.Join(l.entryOf(first.id), "ledger")
	if err := unix.Kill(l.oneSidecar(second).pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var full strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&full, "z%d.wild.test\n", i)
	}
	f, err := os.OpenFile(ledger, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(full.String()); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	third := l.sleeper(withProbe, domains(list), network)
	for _, name := range []string{"new1.wild.test", "new2.wild.test", "new3.wild.test"} {
		equal(t, name, third.fakeOf(name), "")
	}
	equal(t, "control", third.fakeOf("z19999.wild.test"), "198.18.78.36")
	lines := strings.Count(l.call("egress", "log", third.id).stdout, "no_address")
	equal(t, "lines of the audit about it", lines, 1)
	for _, c := range []*container{first, second, third} {
		l.wantSilent(l.call("delete", "--force", c.id))
	}
	equal(t, "ledger that is left", readIfThere(t, ledger), "")
}
