package policy

import (
	"net/netip"
	"testing"
)

func TestVetAddrSpecial(t *testing.T) {
	t.Parallel()
	none := mustList(t, "good.test")
	for _, tt := range []struct{ addr, wantRule string }{
		{"0.0.0.0", "0.0.0.0/8 this network"},
		{"0.0.0.1", "0.0.0.0/8 this network"},
		{"10.0.0.1", "10.0.0.0/8 private use"},
		{"10.255.255.255", "10.0.0.0/8 private use"},
		{"100.64.0.1", "100.64.0.0/10 shared address space (CGNAT)"},
		{"100.100.100.200", "100.64.0.0/10 shared address space (CGNAT)"},
		{"100.127.255.255", "100.64.0.0/10 shared address space (CGNAT)"},
		{"127.0.0.1", "127.0.0.0/8 loopback"},
		{"127.255.255.254", "127.0.0.0/8 loopback"},
		{"168.63.129.16", "168.63.129.16/32 Azure platform service"},
		{"169.254.169.254", "169.254.0.0/16 link-local and cloud metadata"},
		{"172.16.0.1", "172.16.0.0/12 private use"},
		{"172.31.255.255", "172.16.0.0/12 private use"},
		{"192.0.0.8", "192.0.0.0/24 IETF protocol assignments"},
		{"192.0.0.192", "192.0.0.0/24 IETF protocol assignments"},
		{"192.0.2.1", "192.0.2.0/24 documentation"},
		{"192.88.99.1", "192.88.99.0/24 6to4 relay anycast"},
		{"192.168.1.1", "192.168.0.0/16 private use"},
		{"198.18.0.7", "198.18.0.0/15 benchmarking"},
		{"198.19.255.255", "198.18.0.0/15 benchmarking"},
		{"198.51.100.1", "198.51.100.0/24 documentation"},
		{"203.0.113.1", "203.0.113.0/24 documentation"},
		{"224.0.0.1", "224.0.0.0/4 multicast"},
		{"239.255.255.250", "224.0.0.0/4 multicast"},
		{"240.0.0.1", "240.0.0.0/4 reserved"},
		{"255.255.255.255", "255.255.255.255/32 broadcast"},

		{"::", "::/128 unspecified"},
		{"::1", "::1/128 loopback"},
		{"::7f00:1", "::/96 IPv4-compatible"},
		{"::808:808", "::/96 IPv4-compatible"},
		{"::ffff:127.0.0.1", "127.0.0.0/8 loopback"},
		{"::ffff:169.254.169.254", "169.254.0.0/16 link-local and cloud metadata"},
		{"::ffff:0:7f00:1", "::ffff:0:0:0/96 IPv4-translated"},
		{"64:ff9b::7f00:1", "64:ff9b::/96 NAT64 of 127.0.0.0/8 loopback"},
		{"64:ff9b::169.254.169.254", "64:ff9b::/96 NAT64 of 169.254.0.0/16 link-local and cloud metadata"},
		{"64:ff9b::10.0.0.1", "64:ff9b::/96 NAT64 of 10.0.0.0/8 private use"},
		{"64:ff9b:1::a00:1", "64:ff9b:1::/48 local-use NAT64"},
		{"64:ff9b:1:ffff::808:808", "64:ff9b:1::/48 local-use NAT64"},
		{"64:ff9b::1:0:0", "::/3 not global unicast"},
		{"100::1", "100::/64 discard-only"},
		{"100:0:0:1::1", "100:0:0:1::/64 dummy prefix"},
		{"2001::1", "2001::/32 Teredo"},
		{"2001:0:7f00:1::", "2001::/32 Teredo"},
		{"2001:2::1", "2001:2::/48 benchmarking"},
		{"2001:10::1", "2001:10::/28 ORCHID"},
		{"2001:2f:ffff::1", "2001:20::/28 ORCHIDv2"},
		{"2001:1::1", "2001::/23 IETF protocol assignments"},
		{"2001:db8::1", "2001:db8::/32 documentation"},
		{"2002:7f00:1::", "2002::/16 6to4"},
		{"2002:a9fe:a9fe::1", "2002::/16 6to4"},
		{"2002:808:808::1", "2002::/16 6to4"},
		{"3fff:fff::1", "3fff::/20 documentation"},
		{"5f00::1", "5f00::/16 segment routing"},
		{"fc00::1", "fc00::/7 unique local"},
		{"fd00:ec2::254", "fc00::/7 unique local"},
		{"fe80::1", "fe80::/10 link-local"},
		{"fec0::1", "fec0::/10 site-local"},
		{"ff02::1", "ff00::/8 multicast"},
		{"1000::1", "::/3 not global unicast"},
		{"4000::1", "4000::/2 not global unicast"},
		{"9000::1", "8000::/1 not global unicast"},
	} {
		t.Run(tt.addr, func(t *testing.T) {
			t.Parallel()
			addr := netip.MustParseAddr(tt.addr)
			if got, want := VetAddr(none, addr, 443), (Decision{Allow: false, Reason: ReasonNotPublic, Rule: tt.wantRule}); got != want {
				t.Errorf("VetAddr = %+v, want %+v", got, want)
			}
			// The same address where a rule names it, and only on its port.
			named := mustList(t, Target{Addr: addr, Port: 8443}.String())
			if got := VetAddr(named, addr, 8443); !got.Allow || got.Rule == "" {
				t.Errorf("VetAddr with a rule for it = %+v, want it allowed", got)
			}
			if got := VetAddr(named, addr, 443); got.Allow {
				t.Errorf("VetAddr with a rule for another port = %+v, want a refusal", got)
			}
		})
	}
}

func TestVetAddrPublic(t *testing.T) {
	t.Parallel()
	list := mustList(t, "good.test")
	for _, addr := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1",
		"169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.0.3.0", "192.167.255.255", "192.169.0.0",
		"168.63.129.15", "198.17.255.255", "198.20.0.0", "223.255.255.255", "192.31.196.1", "192.175.48.1",
		"2600::1", "2001:200::1", "2001:4860:4860::8888", "2606:4700::1111", "2620:4f:8000::1", "2a00::1", "2003::1", "3ffe::1",
		"::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
	} {
		if got, want := VetAddr(list, netip.MustParseAddr(addr), 443), (Decision{Allow: true, Reason: ReasonAllowed}); got != want {
			t.Errorf("VetAddr(%s) = %+v, want %+v", addr, got, want)
		}
	}
}

func TestVetAddrRules(t *testing.T) {
	t.Parallel()
	own := []netip.Addr{
		netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"),
		netip.MustParseAddr("8.8.4.4"), netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fe80::5%eth0"),
	}
	for _, tt := range []struct {
		name, rule, addr string
		port             uint16
		want             bool
	}{
		{"prefix of the whole range", "10.0.0.0/8", "10.1.2.3", 443, true},
		{"prefix inside the range", "10.1.0.0/16:22", "10.1.2.3", 22, true},
		{"other port", "10.1.0.0/16:22", "10.1.2.3", 443, false},
		{"other prefix", "10.2.0.0/16", "10.1.2.3", 443, false},
		{"wider than the range", "8.0.0.0/5", "10.1.2.3", 443, false},
		{"wider than the range, public part", "8.0.0.0/5", "8.8.8.8", 443, true},
		{"a name is no address rule", "ten.test", "10.1.2.3", 443, false},
		{"mapped", "10.1.2.3", "::ffff:10.1.2.3", 443, true},
		{"IPv4 rule does not open NAT64", "10.1.2.3", "64:ff9b::10.1.2.3", 443, false},
		{"NAT64 rule", "64:ff9b::/96", "64:ff9b::10.1.2.3", 443, true},
		{"localhost opens loopback", "localhost:11434", "127.0.0.1", 11434, true},
		{"localhost opens IPv6 loopback", "localhost:11434", "::1", 11434, true},
		{"localhost opens no other port", "localhost:11434", "127.0.0.1", 22, false},
		{"localhost opens no other address", "localhost:11434", "127.0.0.53", 11434, false},
		{"loopback prefix", "127.0.0.0/8:53", "127.0.0.1", 53, true},
		{"own public address", "good.test", "8.8.4.4", 443, false},
		{"own public address named", "8.8.4.4", "8.8.4.4", 443, true},
		{"own public address by prefix", "8.8.4.0/24", "8.8.4.4", 443, false},
		{"neighbour of an own address", "good.test", "8.8.4.5", 443, true},
		{"own private address by prefix", "10.0.0.0/8", "10.0.0.5", 443, false},
		{"own private address named", "10.0.0.5", "10.0.0.5", 443, true},
		{"own address through NAT64", "good.test", "64:ff9b::8.8.4.4", 443, false},
		{"own address through NAT64 by prefix", "64:ff9b::/96", "64:ff9b::10.0.0.5", 443, false},
		{"own address through NAT64 named", "64:ff9b::10.0.0.5", "64:ff9b::10.0.0.5", 443, true},
		{"zone", "fe80::1", "fe80::1%eth0", 443, false},
		{"the same without zone", "fe80::1", "fe80::1", 443, true},
		{"own address listed with a zone", "fe80::/10", "fe80::5", 443, false},
		{"port 0", "good.test", "1.1.1.1", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := VetAddr(mustList(t, tt.rule), netip.MustParseAddr(tt.addr), tt.port, own...)
			if got.Allow != tt.want {
				t.Errorf("VetAddr(%s, %s, %d) = %+v, want allow %v", tt.rule, tt.addr, tt.port, got, tt.want)
			}
		})
	}
	if got := VetAddr(mustList(t, "good.test"), netip.Addr{}, 443); got.Allow {
		t.Errorf("VetAddr of no address = %+v, want a refusal", got)
	}
}
