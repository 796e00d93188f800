package inside

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// tableName is that of eggrun's own table; nobody else's is touched.
const tableName = "eggrun"

// errNoTables says that this kernel has no nftables, or not all of what the
// wall needs of them.
var errNoTables = errors.New("the kernel lacks nftables")

// maxElements keeps a message below the 64 KiB that an attribute can have.
const maxElements = 512

// install puts the table into the calling thread's network namespace, in one
// transaction and in the place of an older one: at no time is there none.
func (w *Wall) install(peers, inbound []Range) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	conn.AddTable(table) // so that there is one to delete
	conn.DelTable(table)
	conn.AddTable(table)
	s := newSets(table)
	for _, one := range []struct {
		set    *nftables.Set
		ranges []Range
	}{
		{s.peers4, only(peers, netip.Addr.Is4)}, {s.peers6, only(peers, netip.Addr.Is6)},
		{s.inbound4, only(inbound, netip.Addr.Is4)}, {s.inbound6, only(inbound, netip.Addr.Is6)},
	} {
		if err := addSet(conn, one.set, one.ranges); err != nil {
			return fmt.Errorf("nftables: %w", err)
		}
	}
	if err := conn.AddSet(s.ports, nil); err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	for chunk := range slices.Chunk(ports(w.Inbound.Ports), maxElements) {
		if err := conn.SetAddElements(s.ports, chunk); err != nil {
			return fmt.Errorf("nftables: %w", err)
		}
	}
	for _, c := range w.chains(s) {
		added := conn.AddChain(&nftables.Chain{
			Name: c.name, Table: table, Type: c.kind, Hooknum: c.hook, Priority: &c.priority, Policy: &c.policy,
		})
		for _, r := range c.rules {
			conn.AddRule(&nftables.Rule{Table: table, Chain: added, Exprs: r})
		}
	}
	return tablesError(conn.Flush())
}

// tablesError tells a kernel without nftables from other errors.
func tablesError(err error) error {
	if err == nil {
		return nil
	}
	// The first of them comes without the netlink family, the others without
	// one of the modules behind it.
	for _, errno := range []error{unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EOPNOTSUPP, unix.ENOENT} {
		if errors.Is(err, errno) {
			return errNoTables
		}
	}
	return fmt.Errorf("nftables: %w", err)
}

func newSets(table *nftables.Table) *sets {
	named := func(name string, kind nftables.SetDatatype) *nftables.Set {
		return &nftables.Set{Table: table, Name: name, KeyType: kind, Interval: true}
	}
	return &sets{
		peers4: named("peers4", nftables.TypeIPAddr), peers6: named("peers6", nftables.TypeIP6Addr),
		inbound4: named("inbound4", nftables.TypeIPAddr), inbound6: named("inbound6", nftables.TypeIP6Addr),
		ports: &nftables.Set{Table: table, Name: "ports", KeyType: nftables.TypeInetService},
	}
}

func ports(numbers []uint16) (elements []nftables.SetElement) {
	for _, n := range numbers {
		elements = append(elements, nftables.SetElement{Key: binary.BigEndian.AppendUint16(nil, n)})
	}
	return elements
}

// addSet adds a set with its ranges, which don't touch each other.
func addSet(conn *nftables.Conn, set *nftables.Set, ranges []Range) error {
	if err := conn.AddSet(set, nil); err != nil {
		return err
	}
	var elements []nftables.SetElement
	for _, r := range ranges {
		elements = append(elements, nftables.SetElement{Key: r.First.AsSlice()})
		// Past the last address of all there is no end to name.
		if after := r.Last.Next(); after.IsValid() {
			elements = append(elements, nftables.SetElement{Key: after.AsSlice(), IntervalEnd: true})
		}
	}
	for chunk := range slices.Chunk(elements, maxElements) {
		if err := conn.SetAddElements(set, chunk); err != nil {
			return err
		}
	}
	return nil
}

// isComplete tells whether the table of the calling thread's network namespace
// has every chain and rule of the wall, in order. What is in its sets was
// decided at start. Where that can't be found out it is not; installing the
// table will say why.
func (w *Wall) isComplete() bool {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return false
	}
	defer conn.CloseLasting()
	there, err := conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return false
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	for _, c := range w.chains(newSets(table)) {
		i := slices.IndexFunc(there, func(o *nftables.Chain) bool { return o.Table.Name == tableName && o.Name == c.name })
		if i < 0 || !c.is(there[i]) {
			return false
		}
		rules, err := conn.GetRules(table, there[i])
		if err != nil || !slices.EqualFunc(c.rules, rules, match.is) {
			return false
		}
	}
	return true
}

// is tells whether the kernel has this chain, rules aside.
func (c *chain) is(other *nftables.Chain) bool {
	return other.Type == c.kind && other.Hooknum != nil && *other.Hooknum == *c.hook &&
		other.Priority != nil && *other.Priority == c.priority &&
		other.Policy != nil && *other.Policy == c.policy
}

// is tells whether the kernel has this rule.
func (m match) is(other *nftables.Rule) bool {
	return slices.EqualFunc(m, other.Exprs, func(a, b expr.Any) bool { return reflect.DeepEqual(a, b) })
}
