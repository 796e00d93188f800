package resolver

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// Ledger is where a [Pool] writes down which name has which address, before it
// gives that out: the sidecar of a namespace may be killed, and its successor has
// to go on where it was. It has a name a line, in the order of the addresses.
// [os.File] is one.
type Ledger interface {
	io.ReaderAt
	io.WriterAt
}

// maxLedger is the size of one that is full, in bytes.
const maxLedger = (lastFake + 1) * (maxName + 1)

// recall gives the names of the ledger the addresses that they have had. A line
// that was not written whole was never given out.
func (p *Pool) recall() error {
	text, err := io.ReadAll(io.NewSectionReader(p.ledger, 0, maxLedger))
	if err != nil {
		return err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	p.written = int64(len(text))
	for line := range strings.Lines(string(text)) {
		name := strings.TrimSuffix(line, "\n")
		if len(name) == 0 || len(name) > maxName || len(p.names) > lastFake-firstFake {
			return fmt.Errorf("ledger of fake addresses: line %d is none of ours", len(p.names)+1)
		}
		p.addrs[name] = addrAt(len(p.names))
		p.names = append(p.names, name)
	}
	return nil
}

// enter writes names into the ledger.
func (p *Pool) enter(names []string) error {
	if p.ledger == nil || len(names) == 0 {
		return nil
	}
	// What a write that failed has left is overwritten by the next one.
	n, err := p.ledger.WriteAt([]byte(strings.Join(names, "\n")+"\n"), p.written)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPoolUnwritten, err)
	}
	p.written += int64(n)
	return nil
}
