package egress

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"eggrun/egress/inside"
	"eggrun/egress/resolver"
	"eggrun/internal/linux"
	"eggrun/internal/need"
	"eggrun/policy"

	"golang.org/x/sys/unix"
)

// TestAgree is who may share a network namespace.
func TestAgree(t *testing.T) {
	t.Parallel()
	parse := func(list string) *policy.Policy {
		p, err := policyOf(list)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	here, same, other, narrower := parse("a.example b.example:8443"), parse("b.example:8443,a.example"), parse("c.example"), parse("a.example")
	nothing := parse("")
	open, err := policy.Resolve(policy.Request{Annotations: map[string]string{"eggrun.network": "full"}})
	if err != nil {
		t.Fatal(err)
	}
	served := func(asked bool) *Network { return &Network{policy: here, asked: asked, container: "web1"} }
	for name, tt := range map[string]struct {
		network *Network
		own     *policy.Policy
		asked   bool
		want    *policy.Policy // nil for an error, where the namespace has a policy
	}{
		"nobody has one":                {&Network{}, nil, false, nil},
		"the first one":                 {&Network{}, other, true, other},
		"no request":                    {served(true), nil, false, here},
		"only a default":                {served(true), other, false, here},
		"the same":                      {served(true), same, true, same},
		"another":                       {served(true), other, true, nil},
		"a narrower one":                {served(true), narrower, true, nil},
		"the first request of all":      {served(false), other, true, other},
		"no wall, the first one":        {&Network{}, open, true, open},
		"no wall":                       {served(true), open, true, nil},
		"no wall where a default is":    {served(false), open, true, nil},
		"no wall where nothing is":      {&Network{policy: nothing, asked: true, container: "web1"}, open, true, nil},
		"a default where a default is":  {served(false), other, false, here},
		"no request where a default is": {served(false), nil, false, here},
	} {
		got, err := tt.network.Agree(tt.own, tt.asked)
		if (got == nil) != (tt.want == nil) || got != nil && !slices.Equal(rules(got), rules(tt.want)) || (err != nil) != (tt.want == nil && tt.network.policy != nil) {
			t.Errorf("%s: %v, error %v", name, got, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "has ["+strings.Join(rules(tt.network.policy), " ")+"]") || !strings.Contains(err.Error(), "container web1")) {
			t.Errorf("%s: error %q does not say what is there", name, err)
		}
	}
}

// TestEntry is an entry that is locked, read by others, and removed while
// somebody waits for it.
func TestEntry(t *testing.T) {
	t.Parallel()
	registry := t.TempDir()
	dir := filepath.Join(registry, "boot-1")
	if r, err := loadRecord(dir); r != nil || err != nil {
		t.Errorf("no entry: %v, %v", r, err)
	}
	e, err := lockEntry(dir)
	if err != nil {
		t.Fatal(err)
	}
	self, err := linux.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p, err := policyOf("a.example")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.save(&record{Sidecar: self, Container: "web1", Policy: p, Asked: true}); err != nil {
		t.Fatal(err)
	}
	r, err := loadRecord(dir)
	if err != nil || r.Sidecar != self || r.Container != "web1" || !r.Asked || !r.Policy.Allowlist.Decide(policy.Target{Host: "a.example", Port: 443}).Allow {
		t.Errorf("record %+v, error %v", r, err)
	}
	waiting := make(chan error, 1)
	go func() {
		later, err := lockExisting(dir)
		if err == nil {
			later.close()
		}
		waiting <- err
	}()
	prune(registry) // waits for nobody who lives
	if err := e.remove(); err != nil {
		t.Fatal(err)
	}
	e.close()
	if err := <-waiting; !errors.Is(err, os.ErrNotExist) {
		t.Errorf("lock of a removed entry: %v", err)
	}
}

// TestPrune removes the entries of sidecars that have ended, and no others.
func TestPrune(t *testing.T) {
	t.Parallel()
	registry := t.TempDir()
	self, err := linux.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	dead := self
	dead.Start++ // the pid belongs to another process by now
	for name, sidecar := range map[string]linux.Process{"alive": self, "dead": dead} {
		e, err := lockEntry(filepath.Join(registry, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := e.save(&record{Sidecar: sidecar}); err != nil {
			t.Fatal(err)
		}
		e.close()
	}
	prune(registry)
	_, aliveErr := os.Stat(filepath.Join(registry, "alive"))
	_, deadErr := os.Stat(filepath.Join(registry, "dead"))
	if aliveErr != nil || !errors.Is(deadErr, os.ErrNotExist) {
		t.Errorf("alive: %v, dead: %v", aliveErr, deadErr)
	}
}

// TestNoTables has a second container join the namespace of one that only its
// sidecar watches over: it must end with that too.
func TestNoTables(t *testing.T) {
	need.Root(t)
	pol, err := policyOf("a.example")
	if err != nil {
		t.Fatal(err)
	}
	self, err := linux.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	pidfd, err := self.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer pidfd.Close()
	for _, noTables := range []bool{false, true} {
		e, err := lockEntry(filepath.Join(t.TempDir(), "entry"))
		if err != nil {
			t.Fatal(err)
		}
		defer e.close()
		enter := func(name string) (*Prepared, *Member) {
			id := fmt.Sprintf("eggrun-test-%d-%s-%v", os.Getpid(), name, noTables)
			testAudit(t, id, false)
			return &Prepared{Network: &Network{entry: e.dir, where: Where{RuntimeRoot: testRoot}}, Policy: pol, conf: &resolver.Conf{}},
				&Member{ID: id, Init: pidfd, Process: self, Launch: func() (*Launched, error) { return Launch(id) }}
		}
		listener, file := listen(t)
		defer listener.Close()
		first, m := enter("first")
		sidecar, err := first.serve(e, m, nil, &inside.Sockets{NoTables: noTables, All: []inside.Socket{{Name: inside.Proxy4, File: file}}})
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = unix.Kill(sidecar.PID, unix.SIGKILL)
			_, _ = unix.Wait4(sidecar.PID, nil, 0, nil)
		})
		r, err := e.load()
		if err != nil {
			t.Fatal(err)
		}
		second, m := enter("second")
		if err := second.join(e, r, m); err != nil {
			t.Fatal(err)
		}
		if first.NoTables != noTables || second.NoTables != noTables {
			t.Errorf("the first has NoTables %v, the second %v, want %v", first.NoTables, second.NoTables, noTables)
		}
	}
}
