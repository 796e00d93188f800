package resolver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"eggrun/policy"
)

const (
	// maxWildcards is how many names below "*.x" one namespace gets: far more
	// than a program has, far fewer than the range.
	maxWildcards = 16384
	// wildcardsPerSecond is how fast it gets them.
	wildcardsPerSecond = 100
)

var (
	// ErrPoolFull says that the namespace has used up its fake addresses.
	ErrPoolFull = fmt.Errorf("fake addresses: %d names of wildcards are in use; name the hosts one by one, or restart the container", maxWildcards)
	// ErrPoolBusy says that names are asked for faster than a program needs.
	ErrPoolBusy = fmt.Errorf("fake addresses: more than %d new names of wildcards a second; ask again", wildcardsPerSecond)
	// ErrPoolUnwritten: what is not in the ledger is not given out.
	ErrPoolUnwritten = errors.New("fake addresses: the ledger cannot be written; make room in the registry's file system")
)

// Addr returns 198.18.0.1, the address that stands for the resolver itself.
func Addr() netip.Addr { return netip.AddrFrom4([4]byte{198, 18, 0, 1}) }

// Pool gives each name a fake address that stands for it, and knows the way back.
//
// An address is given once and never changes hands as long as the namespace has
// members, also when a new policy no longer has the name, and when another sidecar
// goes on with its ledger: programs keep addresses for ever (JVM, nginx), and one
// that was used again would carry what is meant for one host to another. Any
// number of goroutines may use a Pool.
type Pool struct {
	now    func() time.Time
	ledger Ledger // or nil

	mu    sync.RWMutex
	addrs map[string]netip.Addr
	names []string // by offset from firstFake
	// wildcards counts the names that were given an address on demand; credit is
	// how many may be now, as of paid.
	wildcards int
	credit    float64
	paid      time.Time
	written   int64 // bytes of the ledger
}

// The range without its first address, the resolver's and its last one.
const (
	firstFake = 2
	lastFake  = 1<<17 - 2
)

// newPool returns a pool that goes on with a ledger, nil for none, in which each
// of names has an address, in their order.
func newPool(names []string, ledger Ledger, now func() time.Time) (*Pool, error) {
	p := &Pool{now: now, ledger: ledger, addrs: make(map[string]netip.Addr), credit: wildcardsPerSecond, paid: now()}
	if ledger != nil {
		if err := p.recall(); err != nil {
			return nil, err
		}
	}
	p.wildcards = len(p.names)
	for _, name := range names {
		if _, ok := p.addrs[name]; ok {
			p.wildcards--
		}
	}
	return p, p.addExact(names)
}

// addExact gives those of names that have none an address. The wildcards keep
// their room; exact names that no longer fit (after 114,000) are treated as theirs.
func (p *Pool) addExact(names []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	room := lastFake - firstFake + 1 - len(p.names) - (maxWildcards - p.wildcards)
	var added []string
	for _, name := range names {
		if _, ok := p.addrs[name]; !ok && len(added) < room {
			added = append(added, name)
		}
	}
	return p.give(added...)
}

// give gives names that have none their addresses.
func (p *Pool) give(names ...string) error {
	if err := p.enter(names); err != nil {
		return err
	}
	for _, name := range names {
		p.addrs[name] = addrAt(len(p.names))
		p.names = append(p.names, name)
	}
	return nil
}

// addrAt returns the fake address at an offset from firstFake.
func addrAt(offset int) netip.Addr {
	base := policy.FakeRange.Addr().As4()
	var fake [4]byte
	binary.BigEndian.PutUint32(fake[:], binary.BigEndian.Uint32(base[:])+firstFake+uint32(offset))
	return netip.AddrFrom4(fake)
}

// AddrOf returns the fake address of name, which is canonical (lower case, no dot
// at its end) and allowed: the pool asks no policy. A name that has none is given
// one. The error is [ErrPoolFull], [ErrPoolBusy] or [ErrPoolUnwritten].
func (p *Pool) AddrOf(name string) (netip.Addr, error) {
	p.mu.RLock()
	addr, ok := p.addrs[name]
	p.mu.RUnlock()
	if ok {
		return addr, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if addr, ok := p.addrs[name]; ok {
		return addr, nil
	}
	if p.wildcards >= maxWildcards {
		return netip.Addr{}, ErrPoolFull
	}
	now := p.now()
	p.credit = min(wildcardsPerSecond, p.credit+max(0, now.Sub(p.paid).Seconds())*wildcardsPerSecond)
	p.paid = now
	if p.credit < 1 {
		return netip.Addr{}, ErrPoolBusy
	}
	p.credit--
	if err := p.give(name); err != nil {
		return netip.Addr{}, err
	}
	p.wildcards++
	return p.addrs[name], nil
}

// NameOf returns the name that a fake address stands for, and false for an
// address that was given to no name.
func (p *Pool) NameOf(addr netip.Addr) (string, bool) {
	addr = addr.Unmap()
	if !policy.FakeRange.Contains(addr) {
		return "", false
	}
	base, fake := policy.FakeRange.Addr().As4(), addr.As4()
	offset := int(binary.BigEndian.Uint32(fake[:])-binary.BigEndian.Uint32(base[:])) - firstFake
	p.mu.RLock()
	defer p.mu.RUnlock()
	if offset < 0 || offset >= len(p.names) {
		return "", false
	}
	return p.names[offset], true
}
