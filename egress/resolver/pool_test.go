package resolver

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"eggrun/policy"
)

func poolOf(t *testing.T, names []string, ledger Ledger, c *clock) *Pool {
	t.Helper()
	p, err := newPool(names, ledger, c.Now)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPoolExact(t *testing.T) {
	t.Parallel()
	names := []string{"a.test", "b.test", "c.test"}
	p := poolOf(t, names, nil, newClock())
	for i, name := range names {
		want := netip.AddrFrom4([4]byte{198, 18, 0, byte(2 + i)})
		if got, err := p.AddrOf(name); err != nil || got != want {
			t.Errorf("AddrOf(%s) = %v, %v, want %v", name, got, err, want)
		}
		if got, ok := p.NameOf(want); !ok || got != name {
			t.Errorf("NameOf(%v) = %q, %v, want %q", want, got, ok, name)
		}
		if got, _ := p.NameOf(netip.AddrFrom16(want.As16())); got != name {
			t.Errorf("NameOf(mapped %v) = %q, want %q", want, got, name)
		}
	}
	for _, addr := range []string{"198.18.0.0", "198.18.0.1", "198.18.0.5", "198.19.255.255", "198.17.255.255", "198.20.0.2", "10.0.0.2", "::2", "::"} {
		if name, ok := p.NameOf(netip.MustParseAddr(addr)); ok {
			t.Errorf("NameOf(%s) = %q, want none", addr, name)
		}
	}
	if name, ok := p.NameOf(netip.Addr{}); ok {
		t.Errorf("NameOf of no address = %q, want none", name)
	}
}

// TestPoolWildcards: 20,000 names below a wildcard are more than a namespace gets,
// faster than it gets them, and no address is given twice.
func TestPoolWildcards(t *testing.T) {
	t.Parallel()
	c := newClock()
	p := poolOf(t, []string{"exact.test"}, nil, c)
	given := map[netip.Addr]string{}
	var busy int
	for i := range 20000 {
		name := fmt.Sprintf("n%d.wild.test", i)
		addr, err := p.AddrOf(name)
		if errors.Is(err, ErrPoolBusy) {
			if busy++; len(given)%wildcardsPerSecond != 0 {
				t.Fatalf("%s: %v after %d names, want one after each %d", name, err, len(given), wildcardsPerSecond)
			}
			c.pass(time.Second)
			addr, err = p.AddrOf(name)
		}
		if i >= maxWildcards {
			if !errors.Is(err, ErrPoolFull) {
				t.Fatalf("%s: %v, %v, want %v", name, addr, err, ErrPoolFull)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if other, ok := given[addr]; ok || !policy.FakeRange.Contains(addr) || addr == Addr() {
			t.Fatalf("%s has %v, which is not its own (%q)", name, addr, other)
		}
		given[addr] = name
	}
	if len(given) != maxWildcards || busy == 0 {
		t.Errorf("%d names given, %d times busy; want %d, and some", len(given), busy, maxWildcards)
	}
	for addr, name := range given {
		if got, ok := p.NameOf(addr); !ok || got != name {
			t.Fatalf("NameOf(%v) = %q, want %q", addr, got, name)
		}
		if got, err := p.AddrOf(name); err != nil || got != addr {
			t.Fatalf("AddrOf(%s) = %v, %v, want %v as before", name, got, err, addr)
		}
	}
	// A full pool still has room for what a reload names.
	if err := p.addExact([]string{"late.test"}); err != nil {
		t.Fatal(err)
	}
	if addr, err := p.AddrOf("late.test"); err != nil || given[addr] != "" {
		t.Errorf("AddrOf(late.test) = %v, %v, want an address of its own", addr, err)
	}
}

// TestPoolRange: more exact names than the range holds leave the wildcards their
// room, and nothing is given beyond the range.
func TestPoolRange(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 1 << 17 {
		names = append(names, fmt.Sprintf("n%d.test", i))
	}
	c := newClock()
	p := poolOf(t, names, nil, c)
	var last netip.Addr
	for i := range maxWildcards {
		c.pass(time.Second)
		addr, err := p.AddrOf(fmt.Sprintf("w%d.test", i))
		if err != nil {
			t.Fatalf("wildcard %d: %v", i, err)
		}
		last = addr
	}
	if want := netip.MustParseAddr("198.19.255.254"); last != want {
		t.Errorf("the last address is %v, want %v", last, want)
	}
	if addr, err := p.AddrOf(names[len(names)-1]); !errors.Is(err, ErrPoolFull) {
		t.Errorf("one more name has %v, %v, want %v", addr, err, ErrPoolFull)
	}
}

func TestPoolConcurrent(t *testing.T) {
	t.Parallel()
	p := poolOf(t, nil, nil, newClock())
	const names = wildcardsPerSecond
	var all sync.WaitGroup
	var got [8][names]netip.Addr
	for i := range got {
		all.Go(func() {
			for j := range names {
				name := fmt.Sprintf("n%d.test", j)
				addr, err := p.AddrOf(name)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if back, _ := p.NameOf(addr); back != name {
					t.Errorf("%v is %q, want %q", addr, back, name)
				}
				got[i][j] = addr
			}
		})
	}
	all.Wait()
	for i := range got {
		if got[i] != got[0] {
			t.Error("two goroutines got different addresses for one name")
		}
	}
}
