package proxy

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// FuzzRequest sends whatever it likes to a proxy that allows good.test and all
// below *.wild.test. However the bytes are read: nothing else may be looked up,
// nothing but the answer dialled, and no name that the request does not contain.
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
	} {
		f.Add(s)
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
	_, addr := serve(f, Options{
		Policy: allow(f, "good.test", "*.wild.test"), Lookup: lookup, Dial: dial,
		OwnAddrs: func() ([]netip.Addr, error) { return nil, nil },
	}, nil)
	f.Fuzz(func(t *testing.T, request string) {
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
			if !strings.Contains(strings.ToLower(request), host) {
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
