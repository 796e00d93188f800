package policy

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseTarget(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr
	longest := strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c", 63) + "." + strings.Repeat("d", 61)
	for _, tt := range []struct {
		authority string
		want      Target
	}{
		{"good.test:443", Target{Host: "good.test", Port: 443}},
		{"GOOD.Test.:443", Target{Host: "good.test", Port: 443}},
		{"good.test:1", Target{Host: "good.test", Port: 1}},
		{"good.test:65535", Target{Host: "good.test", Port: 65535}},
		{"r3---sn-x_y.good.test:443", Target{Host: "r3---sn-x_y.good.test", Port: 443}},
		{"xn--bcher-kva.test:443", Target{Host: "xn--bcher-kva.test", Port: 443}},
		{"localhost:80", Target{Host: "localhost", Port: 80}},
		{longest + ".:65535", Target{Host: longest, Port: 65535}},
		{"192.0.2.1:80", Target{"192.0.2.1", addr("192.0.2.1"), 80}},
		{"169.254.169.254.:80", Target{"169.254.169.254", addr("169.254.169.254"), 80}},
		{"[2001:DB8:0::1]:443", Target{"2001:db8::1", addr("2001:db8::1"), 443}},
		{"[::ffff:169.254.169.254]:80", Target{"169.254.169.254", addr("169.254.169.254"), 80}},
		{"[::ffff:a9fe:a9fe]:80", Target{"169.254.169.254", addr("169.254.169.254"), 80}},
	} {
		t.Run(tt.authority, func(t *testing.T) {
			t.Parallel()
			got, err := ParseTarget(tt.authority)
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("ParseTarget = %+v, want %+v", got, tt.want)
			}
			if again, err := ParseTarget(got.String()); err != nil || again != got {
				t.Errorf("ParseTarget(%q) = %+v, %v, want %+v", got.String(), again, err, got)
			}
		})
	}
}

func TestParseTargetRefuses(t *testing.T) {
	t.Parallel()
	const (
		noPort    = "no port; write host:port"
		oneColon  = "more than one colon; write [IPv6]:port or host:port"
		encoded   = "encoded IPv4 address; write four decimal numbers, as in 127.0.0.1"
		emptyPart = "empty label; write names without doubled or leading dots"
		brackets  = "brackets around what is no IPv6 address; use them as in [2001:db8::1]:443"
		afterwd   = "no port after the bracket; write [IPv6]:port"
	)
	badByte := func(b string) string { return "byte " + b + " in the host; use letters, digits, '.', '-' and '_'" }
	badPort := func(p string) string { return "port " + p + "; write 1 to 65535 without leading zeros" }
	for _, tt := range []struct{ authority, wantErr string }{
		{"", noPort},
		{":443", "no host; write a name"},
		{"good.test", noPort},
		{"good.test:", badPort(`""`)},
		{"good.test:0", badPort(`"0"`)},
		{"good.test:0443", badPort(`"0443"`)},
		{"good.test:+443", badPort(`"+443"`)},
		{"good.test:-1", badPort(`"-1"`)},
		{"good.test: 443", badPort(`" 443"`)},
		{"good.test:65536", badPort(`"65536"`)},
		{"good.test:65979", badPort(`"65979"`)},
		{"good.test:4_43", badPort(`"4_43"`)},
		{"good.test:99999999999999999999", badPort(`"99999999999999999999"`)},
		{"good.test:443:443", oneColon},
		{"good.test:443@evil.test:443", oneColon},
		{"user@good.test:443", badByte(`"@"`)},
		{"https://good.test:443", oneColon},
		{"//good.test:443", badByte(`"/"`)},
		{"good.test/x:443", badByte(`"/"`)},
		{"/good.test:443", badByte(`"/"`)},
		{"good.test?:443", badByte(`"?"`)},
		{"good.test#:443", badByte(`"#"`)},
		{"good%2etest:443", badByte(`"%"`)},
		{"good.test\x00.evil.test:443", badByte(`"\x00"`)},
		{"good.test\r\n:443", badByte(`"\r"`)},
		{"good.test :443", badByte(`" "`)},
		{"*.good.test:443", badByte(`"*"`)},
		{"bücher.test:443", badByte(`"\xc3"`)},
		{"\u212aey.test:443", badByte(`"\xe2"`)},
		{"１２７.0.0.1:443", badByte(`"\xef"`)},
		{"good.test..:443", emptyPart},
		{".good.test:443", emptyPart},
		{"good..test:443", emptyPart},
		{".:443", "no host; write a name"},
		{"127.1:443", encoded},
		{"127.0.0.1..:443", emptyPart},
		{"127.0.0.01:443", encoded},
		{"0177.0.0.1:443", encoded},
		{"0x7f.0.0.0x1:443", encoded},
		{"0x7f000001:443", encoded},
		{"0X7F000001:443", encoded},
		{"2130706433:443", encoded},
		{"017700000001:443", encoded},
		{"0:443", encoded},
		{"1.2.3:443", encoded},
		{"1.2.3.4.5:443", encoded},
		{"256.1.1.1:443", encoded},
		{"good.test.0x:443", encoded},
		{"::1:443", oneColon},
		{"2001:db8::1:443", oneColon},
		{"[::1]", afterwd},
		{"[::1]443", afterwd},
		{"[::1].:443", afterwd},
		{"[::1]:", badPort(`""`)},
		{"[::1]:443:443", badPort(`"443:443"`)},
		{"[::1", "bracket not closed; write [IPv6]:port"},
		{"[[::1]]:443", brackets},
		{"[good.test]:443", brackets},
		{"[127.0.0.1]:443", brackets},
		{"[]:443", brackets},
		{"[fe80::1%lo]:443", "IPv6 zone; write the address without it"},
		{"[::1%25lo]:443", "IPv6 zone; write the address without it"},
		{strings.Repeat("a", 64) + ":443", "label of 64 bytes; DNS has at most 63"},
		{strings.Repeat("a.", 127) + "a:443", "name of 255 bytes; DNS has at most 253"},
		{strings.Repeat("a", 1<<16), "authority of 65536 bytes; names have at most 253"},
	} {
		t.Run(clip(tt.authority), func(t *testing.T) {
			t.Parallel()
			got, err := ParseTarget(tt.authority)
			if err == nil {
				t.Fatalf("ParseTarget took it as %+v", got)
			}
			if got != (Target{}) {
				t.Errorf("a target came with the error: %+v", got)
			}
			_, cause, ok := strings.Cut(err.Error(), `": `)
			if !ok || !strings.HasPrefix(err.Error(), `target "`) {
				t.Fatalf("error %q does not name the target", err)
			}
			if cause != tt.wantErr {
				t.Errorf("cause %q, want %q", cause, tt.wantErr)
			}
			if strings.ContainsAny(err.Error(), "\r\n\x00") {
				t.Errorf("error %q carries control bytes", err)
			}
		})
	}
}
