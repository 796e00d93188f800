package resolver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

func newLedger(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "ledger"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestLedger ends a pool without a word and has another go on, with another
// policy: every address stands for whom it stood for, and new names get new ones.
// The control has no ledger.
func TestLedger(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{true, false} {
		var ledger Ledger
		if kept {
			ledger = newLedger(t)
		}
		addrOf := func(p *Pool, name string) string {
			addr, err := p.AddrOf(name)
			if err != nil {
				t.Fatal(err)
			}
			return addr.String()
		}
		first := poolOf(t, []string{"a.test", "m.test"}, ledger, newClock())
		before := map[string]string{}
		for _, name := range []string{"a.test", "m.test", "y.wild.test", "x.wild.test"} {
			before[addrOf(first, name)] = name
		}
		second := poolOf(t, []string{"b.test", "m.test"}, ledger, newClock())
		after := map[string]string{}
		for _, name := range []string{"b.test", "m.test", "x.wild.test", "z.wild.test", "y.wild.test", "a.test"} {
			after[addrOf(second, name)] = name
		}
		taken := 0
		for addr, name := range after {
			if was := before[addr]; was != "" && was != name {
				taken++
			}
		}
		if kept && (taken > 0 || len(after) != 6) || !kept && taken == 0 {
			t.Errorf("ledger %v: %d addresses changed hands: %v, then %v", kept, taken, before, after)
		}
		if kept && second.wildcards != 4 {
			t.Errorf("%d names of wildcards, want 4: a.test, x, y and z", second.wildcards)
		}
	}
}

// TestLedgerTorn has the end of a line missing: that name was never answered.
func TestLedgerTorn(t *testing.T) {
	t.Parallel()
	ledger := newLedger(t)
	if _, err := ledger.WriteString("a.test\nb.te"); err != nil {
		t.Fatal(err)
	}
	poolOf(t, []string{"c.test"}, ledger, newClock())
	text, err := os.ReadFile(ledger.Name())
	if err != nil || string(text) != "a.test\nc.test\n" {
		t.Errorf("ledger %q, %v", text, err)
	}
	for _, bad := range []string{"a.test\n\nb.test\n", strings.Repeat("a", maxName+1) + "\n", strings.Repeat("a\n", lastFake)} {
		if _, err := newPool(nil, bytesLedger{bytes.NewReader([]byte(bad))}, newClock().Now); err == nil {
			t.Errorf("ledger %.20q: no error", bad)
		}
	}
}

// bytesLedger can only be read.
type bytesLedger struct{ *bytes.Reader }

func (bytesLedger) WriteAt([]byte, int64) (int, error) { return 0, unix.ENOSPC }

// TestLedgerFull: a name that can't be written down gets no address.
func TestLedgerFull(t *testing.T) {
	t.Parallel()
	full := bytesLedger{bytes.NewReader([]byte("x.wild.test\n"))}
	if _, err := newPool([]string{"a.test"}, full, newClock().Now); !errors.Is(err, ErrPoolUnwritten) || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("an exact name: %v", err)
	}
	var told []string
	s := newServer(t, Options{Policy: rules(t, "*.wild.test"), Ledger: full, Exhausted: func(name string, cause error) {
		told = append(told, fmt.Sprint(name, " ", errors.Is(cause, ErrPoolUnwritten)))
	}})
	if got := lookup(t, s, "x.wild.test", dnsmessage.TypeA); got != "Success 198.18.0.2" {
		t.Errorf("a name of before: %s", got)
	}
	if got := lookup(t, s, "y.wild.test", dnsmessage.TypeA); got != "ServerFailure" {
		t.Errorf("a new name: %s", got)
	}
	s.SetPolicy(rules(t, "y.wild.test"))
	if got := lookup(t, s, "y.wild.test", dnsmessage.TypeA); got != "ServerFailure" {
		t.Errorf("a new name in full: %s", got)
	}
	if fmt.Sprint(told) != "[y.wild.test true]" {
		t.Errorf("told of %v", told)
	}
}
