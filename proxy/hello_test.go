package proxy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
)

// scanHello reads a greeting that is all there.
func scanHello(b []byte) (hello, error) {
	var r helloReader
	done, err := r.scan(b)
	if err == nil && !done {
		err = errSilent
	}
	if err != nil {
		return hello{}, err
	}
	return parseHello(r.message)
}

// resplit puts the message of a greeting of one record into records of size.
func resplit(b []byte, size int) []byte {
	var records []byte
	for piece := range slices.Chunk(b[recordHeader:], size) {
		records = append(records, recordHandshake, 3, 1, byte(len(piece)>>8), byte(len(piece)))
		records = append(records, piece...)
	}
	return records
}

// makeHello makes a greeting with the given extensions alone.
func makeHello(extensions func(*cryptobyte.Builder)) []byte {
	b := cryptobyte.NewBuilder([]byte{recordHandshake, 3, 1})
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		b.AddUint8(typeClientHello)
		b.AddUint24LengthPrefixed(func(b *cryptobyte.Builder) {
			b.AddUint16(0x0303)
			b.AddBytes(make([]byte, 32))
			b.AddUint8(0)
			b.AddBytes([]byte{0, 2, 0x13, 0x01})
			b.AddBytes([]byte{1, 0})
			if extensions != nil {
				b.AddUint16LengthPrefixed(extensions)
			}
		})
	})
	return b.BytesOrPanic()
}

func addServerName(kind uint8, names ...string) func(*cryptobyte.Builder) {
	return func(b *cryptobyte.Builder) {
		b.AddUint16(extensionServerName)
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
				for _, name := range names {
					b.AddUint8(kind)
					b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(name)) })
				}
			})
		})
	}
}

func addExtension(id uint16, size int) func(*cryptobyte.Builder) {
	return func(b *cryptobyte.Builder) {
		b.AddUint16(id)
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(make([]byte, size)) })
	}
}

func all(parts ...func(*cryptobyte.Builder)) func(*cryptobyte.Builder) {
	return func(b *cryptobyte.Builder) {
		for _, part := range parts {
			part(b)
		}
	}
}

func TestHello(t *testing.T) {
	t.Parallel()
	good := clientHello(t, "good.test")
	big := makeHello(all(addExtension(21, 12<<10), addServerName(0, "good.test")))
	for _, tt := range []struct {
		name string
		in   []byte
		want hello
		err  error
	}{
		{"Go's", good, hello{serverName: "good.test"}, nil},
		{"without a name", clientHello(t, ""), hello{}, nil},
		{"records of one byte", resplit(good, 1), hello{serverName: "good.test"}, nil},
		{"split at 511", resplit(good, 511), hello{serverName: "good.test"}, nil},
		{"12 KiB", big, hello{serverName: "good.test"}, nil},
		{"12 KiB in small records", resplit(big, 100), hello{serverName: "good.test"}, nil},
		{"bytes behind it", append(slices.Clone(good), "\x14\x03\x03\x00\x01\x01"...), hello{serverName: "good.test"}, nil},
		{"no extensions", makeHello(nil), hello{}, nil},
		{"ECH", makeHello(all(addExtension(extensionECH, 10), addServerName(0, "cover.test"))), hello{serverName: "cover.test", ech: true}, nil},
		{"early data", makeHello(all(addServerName(0, "good.test"), addExtension(extensionEarlyData, 0))), hello{serverName: "good.test", earlyData: true}, nil},
		{"half", good[:100], hello{}, errSilent},
		{"nothing", nil, hello{}, errSilent},
		{"two names", makeHello(addServerName(0, "good.test", "evil.test")), hello{}, errBadHello},
		{"two name extensions", makeHello(all(addServerName(0, "good.test"), addServerName(0, "evil.test"))), hello{}, errBadHello},
		{"two of another kind", makeHello(all(addExtension(21, 0), addExtension(21, 0))), hello{}, errBadHello},
		{"name of another type", makeHello(addServerName(1, "good.test")), hello{}, errBadHello},
		{"empty name", makeHello(addServerName(0, "")), hello{}, errBadHello},
		{"no list", makeHello(addExtension(extensionServerName, 0)), hello{}, errBadHello},
		{"HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), hello{}, errNotTLS},
		{"SSH", []byte("S"), hello{}, errNotTLS},
		{"SSL 2", []byte{0x80, 0x2e, 1, 3, 1}, hello{}, errNotTLS},
		{"alert", []byte{recordAlert}, hello{}, errNotTLS},
		{"version 2", []byte{recordHandshake, 2}, hello{}, errNotTLS},
		{"empty record", []byte{recordHandshake, 3, 1, 0, 0}, hello{}, errNotTLS},
		{"huge record", []byte{recordHandshake, 3, 1, 0x40, 1}, hello{}, errNotTLS},
		{"ServerHello", []byte{recordHandshake, 3, 1, 0, 10, 2}, hello{}, errNotTLS},
		{"another record in between", append(resplit(good, 100)[:105], 20, 3, 1, 0, 1), hello{}, errBadHello},
		{"another message in the record", slices.Concat([]byte{recordHandshake, 3, 1, 0, 8}, []byte{1, 0, 0, 1, 9, 9, 9, 9}), hello{}, errBadHello},
		{"too long", []byte{recordHandshake, 3, 1, 0, 4, 1, 1, 0, 0}, hello{}, errBadHello},
		{"empty message", []byte{recordHandshake, 3, 1, 0, 4, 1, 0, 0, 0}, hello{}, errBadHello},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := scanHello(tt.in)
			if !errors.Is(err, tt.err) || err == nil && got != tt.want {
				t.Errorf("%+v, %v, want %+v, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

// FuzzClientHello compares with crypto/tls: a name that its server sees in a
// greeting that passes here is the name that was seen here.
func FuzzClientHello(f *testing.F) {
	good := clientHello(f, "good.test")
	f.Add(good)
	f.Add(resplit(good, 7))
	f.Add(makeHello(addServerName(0, "good.test")))
	f.Add(makeHello(all(addServerName(0, "good.test"), addServerName(0, "evil.test"))))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := scanHello(b)
		var r helloReader
		done := false
		for i := 0; i <= len(b) && !done; i++ {
			var pieceErr error
			if done, pieceErr = r.scan(b[:i]); pieceErr != nil {
				if err == nil {
					t.Fatalf("% x: in pieces %v, at once nothing", b, pieceErr)
				}
				return
			}
		}
		if err != nil {
			return
		}
		if !done || len(r.message) > maxHello || bytes.Count(b, []byte(h.serverName)) == 0 && !strings.Contains(string(r.message), h.serverName) {
			t.Fatalf("% x: done %v, %d bytes, name %q", b, done, len(r.message), h.serverName)
		}
		seen := ""
		here, there := net.Pipe()
		go func() {
			_, _ = there.Write(b)
			_ = there.Close()
		}()
		// The server's alert must not wait for a client that still writes.
		_ = here.SetWriteDeadline(time.Unix(0, 0))
		_ = tls.Server(here, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			seen = info.ServerName
			return nil, errGone
		}}).Handshake()
		_ = here.Close()
		if seen != "" && seen != strings.TrimSuffix(h.serverName, ".") && seen != h.serverName {
			t.Fatalf("% x: %q, crypto/tls sees %q", b, h.serverName, seen)
		}
	})
}
