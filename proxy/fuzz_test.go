package proxy

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"eggrun/policy"
)

// ways are the proxy itself, and redirected connections to a fake and to a real
// address, each for ports 80 and 443.
const ways = byte(5)

// FuzzRequest sends whatever it likes to a proxy that allows good.test and all
// below *.wild.test, by every way in. However the bytes are read: nothing else
// may be looked up, nothing but the answer dialled, and no name that the request
// does not contain.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		"CONNECT good.test:443 HTTP/1.1\r\n\r\nhello",
		"CONNECT a.wild.test:80 HTTP/1.0\r\nHost: evil.test\r\n\r\n",
		"CONNECT evil.test:443 HTTP/1.1\r\n\r\n",
		"CONNECT good.test:443@evil.test:443 HTTP/1.1\r\n\r\n",
		"CONNECT GOOD.test.:65979 HTTP/1.1\r\n\r\n",
		"CONNECT [::ffff:127.0.0.1]:80 HTTP/1.1\r\n\r\n",
		"CONNECT / HTTP/1.1\r\nHost: good.test:443\r\n\r\n",
		"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"GET http://good.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"POST http://a.wild.test:80/x HTTP/1.1\r\nHost: a.wild.test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nGET http://evil.test/ HTTP/1.1\r\n\r\n",
		"GET http://good.test:443\\@evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "OPTIONS * HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\nHost: good.test\n\n", "\x16\x03\x01\x00\x05hello",
		"\x05\x01\x00\x05\x01\x00\x03\x09good.test\x01\xbb", "\x05\x01\x00\x05\x01\x00\x03\x09evil.test\x01\xbb",
		"CONNECT good.test:80 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
	} {
		for way := range ways {
			f.Add(s, way)
		}
	}
	for way := range ways {
		f.Add(string(clientHello(f, "a.wild.test")), way)
		f.Add(string(clientHello(f, "evil.test")), way)
		f.Add("CONNECT good.test:443 HTTP/1.1\r\n\r\n"+string(clientHello(f, "evil.test")), way)
	}
	var mu sync.Mutex
	var asked, dialled []string
	lookup := func(_ context.Context, host string) ([]netip.Addr, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, host)
		return []netip.Addr{public}, nil
	}
	dial := func(_ context.Context, _, address string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		dialled = append(dialled, address)
		here, there := net.Pipe()
		go func() {
			_, _ = there.Read(make([]byte, 1<<16))
			_ = there.Close()
		}()
		return here, nil
	}
	_, at := enter(f, Options{
		Policy: matching(f, policy.SNIMatch, "good.test", "*.wild.test"), Lookup: lookup, Dial: dial,
		OwnAddrs: func() ([]netip.Addr, error) { return nil, nil },
	}, nil)
	f.Fuzz(func(t *testing.T, request string, way byte) {
		addr, named := at.redirected, false
		switch way % ways {
		case 0:
			addr, named = at.proxied, true
		case 1, 2:
			at.lead("good.test", netip.AddrPortFrom(fake, []uint16{httpPort, tlsPort}[way%ways-1]))
		default:
			at.lead("", netip.AddrPortFrom(elsewhere, []uint16{httpPort, tlsPort}[way%ways-3]))
		}
		mu.Lock()
		asked, dialled = nil, nil
		mu.Unlock()
		c := dialProxy(t, addr)
		_, _ = io.WriteString(c, request)
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c.in)
		mu.Lock()
		defer mu.Unlock()
		for _, host := range asked {
			if host != "good.test" && !strings.HasSuffix(host, ".wild.test") {
				t.Fatalf("%q: looked up %q", request, host)
			}
			if way%ways == 1 || way%ways == 2 {
				if host != "good.test" {
					t.Fatalf("%q: looked up %q for the address of good.test", request, host)
				}
			} else if named && !strings.Contains(strings.ToLower(request), host) {
				t.Fatalf("%q: looked up %q, which it does not name", request, host)
			}
		}
		for _, address := range dialled {
			if address != "9.9.9.9:80" && address != "9.9.9.9:443" {
				t.Fatalf("%q: dialled %q", request, address)
			}
		}
		if len(asked) > 1 || len(dialled) > 1 {
			t.Fatalf("%q: %d lookups and %d dials for one connection", request, len(asked), len(dialled))
		}
	})
}
