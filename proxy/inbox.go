package proxy

import (
	"errors"
	"net"
	"slices"
)

// inbox is a client's connection with the bytes that were read from it and that
// nothing has used yet. The connection itself stays what the listener returned,
// because a wrapper around it would hide splice(2) from the relay.
type inbox struct {
	net.Conn
	buf []byte
}

var errFull = errors.New("more bytes than are looked at")

// more waits for bytes and appends them to buf, which does not grow beyond limit.
func (in *inbox) more(limit int) error {
	if len(in.buf) >= limit {
		return errFull
	}
	const step = 2048 // a TLS greeting, or a request of a browser
	in.buf = slices.Grow(in.buf, step)
	have := len(in.buf)
	for {
		n, err := in.Read(in.buf[have:min(cap(in.buf), limit)])
		in.buf = in.buf[:have+n]
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// atLeast waits until buf has n bytes.
func (in *inbox) atLeast(n int) error {
	for len(in.buf) < n {
		if err := in.more(n); err != nil {
			return err
		}
	}
	return nil
}

// take removes the first n bytes from buf and returns them.
func (in *inbox) take(n int) []byte {
	taken := in.buf[:n:n]
	in.buf = in.buf[n:]
	return taken
}
