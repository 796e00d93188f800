package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"eggrun/policy"
)

func TestSOCKSRequest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in, want string
		size           int
		reply          byte
	}{
		{"name", "\x05\x01\x00\x03\x09good.test\x01\xbb", "good.test:443", 16, 0},
		{"IPv4", "\x05\x01\x00\x01\x09\x09\x09\x09\x00\x50", "9.9.9.9:80", 10, 0},
		{"IPv6", "\x05\x01\x00\x04\x26\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x50", "[2600::1]:80", 22, 0},
		{"mapped", "\x05\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x09\x09\x09\x09\x00\x50", "9.9.9.9:80", 22, 0},
		{"more behind it", "\x05\x01\x00\x01\x09\x09\x09\x09\x00\x50rest", "9.9.9.9:80", 10, 0},
		{"NUL in the name", "\x05\x01\x00\x03\x0bgood\x00.test.\x01\xbb", "good\x00.test.:443", 18, 0},
		{"nothing", "", "", 5, 0},
		{"half a name", "\x05\x01\x00\x03\x09good", "", 16, 0},
		{"half an address", "\x05\x01\x00\x01\x09", "", 10, 0},
		{"BIND", "\x05\x02", "", 0, socksNoCommand},
		{"UDP", "\x05\x03", "", 0, socksNoCommand},
		{"other type", "\x05\x01\x00\x02\x00", "", 0, socksNoAddressType},
		{"reserved", "\x05\x01\x01", "", 0, socksFailed},
		{"version", "\x04", "", 0, socksFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, size, err := socksRequest([]byte(tt.in))
			var wrong *socksError
			if errors.As(err, &wrong); got != tt.want || size != tt.size || (wrong != nil) != (tt.reply != 0) || wrong != nil && wrong.reply != tt.reply {
				t.Errorf("%q, %d, %v, want %q, %d, reply %d", got, size, err, tt.want, tt.size, tt.reply)
			}
		})
	}
}

func TestSOCKS(t *testing.T) {
	t.Parallel()
	lines := new(sink)
	f := toOrigin(origin(t, echo), 8443)
	f.names = map[string][]netip.Addr{"good.test": {public}, "inside.test": {netip.MustParseAddr("10.0.0.1")}}
	f.lookup = nil
	f.routes["127.0.0.1:9"] = "127.0.0.1:1" // nobody listens there
	_, addr := serve(t, Options{Policy: allow(t, "good.test", "gone.test", "inside.test", "9.9.9.9", "127.0.0.1:9"), Audit: lines}, f)
	const v4, name = "\x05\x01\x00\x01", "\x05\x01\x00\x03"
	for i, tt := range []struct {
		request, reason string
		reply           byte
	}{
		{name + "\x09evil.test\x01\xbb", "not_listed", socksNotAllowed},
		{name + "\x09good.test\x00\x16", "port_not_listed", socksNotAllowed},
		{name + "\x09good.test\x00\x00", "bad_target", socksFailed},
		{name + "\x0agood.test\x00\x01\xbb", "bad_target", socksFailed},
		{name + "\x0dgood.test:443\x01\xbb", "bad_target", socksFailed},
		{name + "\x05127.1\x01\xbb", "bad_target", socksFailed},
		{name + "\x0binside.test\x01\xbb", "not_public", socksNotAllowed},
		{v4 + "\x01\x02\x03\x04\x01\xbb", "not_listed", socksNotAllowed},
		{"\x05\x02\x00\x01\x09\x09\x09\x09\x01\xbb", "bad_socks", socksNoCommand},
		{"\x05\x01\x00\x05\x09\x09\x09\x09\x01\xbb", "bad_socks", socksNoAddressType},
	} {
		c := dialProxy(t, addr)
		c.send(t, "\x05\x02\x00\x02")
		if got := c.socksReply(t, []byte(tt.request)); got != tt.reply {
			t.Errorf("%q: reply %d, want %d", tt.request, got, tt.reply)
		}
		c.mustEnd(t)
		if got := lines.wait(t, i+1)[i]; got["reason"] != tt.reason || got["decision"] != "deny" || got["proto"] != "socks5" {
			t.Errorf("%q: %v, want %s", tt.request, got, tt.reason)
		}
	}
	for request, reply := range map[string]byte{
		name + "\x09gone.test\x01\xbb":        socksHostUnreachable,
		v4 + "\x7f\x00\x00\x01\x00\x09":       socksRefused,
		v4 + "\x09\x09\x09\x09\x01\xbb":       socksGranted,
		name + "\x09GOOD.test\x01\xbb":        socksGranted,
		name + "\x0agood.test.\x01\xbbearly ": socksGranted,
	} {
		c := dialProxy(t, addr)
		c.send(t, "\x05\x01\x00")
		if got := c.socksReply(t, []byte(request)); got != reply {
			t.Errorf("%q: reply %d, want %d", request, got, reply)
		}
		if reply == socksGranted {
			if _, early, _ := strings.Cut(request, "\xbb"); early != "" {
				got := make([]byte, len(early))
				if _, err := io.ReadFull(c.in, got); err != nil || string(got) != early {
					t.Errorf("%q: early bytes came back as %q, %v", request, got, err)
				}
			}
			c.mustEcho(t, "hello")
		}
	}
}

func TestSOCKSWantsNoPassword(t *testing.T) {
	t.Parallel()
	lines := new(sink)
	_, addr := serve(t, Options{Policy: allow(t, "good.test"), Audit: lines}, nil)
	c := dialProxy(t, addr)
	c.send(t, "\x05\x02\x01\x02")
	if got, err := io.ReadAll(c.in); err != nil || string(got) != "\x05\xff" {
		t.Errorf("% x, %v, want 05 ff", got, err)
	}
	if got := lines.wait(t, 1)[0]["reason"]; got != "bad_socks" {
		t.Errorf("reason %v", got)
	}
}

// FuzzSocks feeds both messages. Whatever passes is one target of the one parser
// that all front ends have, and takes no byte that is not its own.
func FuzzSocks(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x03\x09good.test\x01\xbb"))
	f.Add([]byte("\x05\x02\x00\x02\x05\x01\x00\x01\x09\x09\x09\x09\x00\x50"))
	f.Add([]byte("\x05\x00\x05\x01\x00\x04\x26\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x50"))
	f.Fuzz(func(t *testing.T, b []byte) {
		here, there := net.Pipe()
		go func() {
			_, _ = there.Write(b)
			_ = there.Close()
		}()
		in := &inbox{Conn: here}
		defer func() { _ = here.Close() }()
		methods, err := readSOCKS(in, socksMethods)
		if err != nil {
			return
		}
		authority, err := readSOCKS(in, socksRequest)
		if err != nil {
			return
		}
		rest, _ := io.ReadAll(io.MultiReader(strings.NewReader(string(in.buf)), in))
		used := 2 + len(methods) + 6
		switch b[2+len(methods)+3] {
		case socksName:
			used += 1 + int(b[2+len(methods)+4])
		case socksIPv4:
			used += 4
		case socksIPv6:
			used += 16
		}
		if string(rest) != string(b[used:]) {
			t.Fatalf("%q: %q is left, want %q", b, rest, b[used:])
		}
		target, err := policy.ParseTarget(authority)
		if err != nil {
			return
		}
		if port := fmt.Sprint(int(b[used-2])<<8 | int(b[used-1])); !strings.HasSuffix(authority, ":"+port) || fmt.Sprint(target.Port) != port {
			t.Fatalf("%q: target %v of %q, want port %s", b, target, authority, port)
		}
	})
}
