package inside

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"eggrun/sandbox"

	"golang.org/x/sys/unix"
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func addresses(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func text(ranges []Range) string {
	var all []string
	for _, r := range ranges {
		all = append(all, r.First.String()+"-"+r.Last.String())
	}
	return strings.Join(all, " ")
}

func TestNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   []netip.Prefix
		want string
	}{
		{nil, ""},
		{prefixes("10.0.0.5/8"), "10.0.0.0-10.255.255.255"},
		{prefixes("10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16"), "10.0.0.0-10.255.255.255"},
		{prefixes("10.0.2.0/24", "10.0.0.0/24"), "10.0.0.0-10.0.0.255 10.0.2.0-10.0.2.255"},
		{prefixes("127.0.0.0/8", "198.18.4.0/24", "::1/128"), ""},
		{prefixes("192.0.0.0/4"), "192.0.0.0-198.17.255.255 198.20.0.0-207.255.255.255"},
		{prefixes("255.255.255.255/32", "::/128"), "255.255.255.255-255.255.255.255 ::-::"},
		{prefixes("ffff::/16", "255.0.0.0/8"), "255.0.0.0-255.255.255.255 ffff::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{prefixes("fd00::1/127"), "fd00::-fd00::1"},
	} {
		if got := text(merge(named(tt.in))); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestNeighbourRanges(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		networks []netip.Prefix
		host     []netip.Addr
		want     string
	}{
		{prefixes("10.77.0.0/29"), nil, "10.77.0.2-10.77.0.6"},
		{prefixes("10.77.0.0/29"), addresses("10.77.0.4", "10.77.0.6", "192.0.2.1"), "10.77.0.2-10.77.0.3 10.77.0.5-10.77.0.5"},
		{prefixes("10.77.0.0/29"), addresses("::ffff:10.77.0.4"), "10.77.0.2-10.77.0.3 10.77.0.5-10.77.0.6"},
		{prefixes("10.77.0.0/31"), nil, ""},
		{prefixes("10.77.0.9/32"), nil, ""},
		{prefixes("10.77.0.0/29", "10.77.0.8/29"), nil, "10.77.0.2-10.77.0.6 10.77.0.10-10.77.0.14"},
		// The smaller network's gateway is in the larger one.
		{prefixes("10.77.0.0/24", "10.77.0.128/25"), nil, "10.77.0.2-10.77.0.127 10.77.0.130-10.77.0.254"},
		{prefixes("fd77::/125"), addresses("fd77::3", "fe80::1%eth0"), "fd77::2-fd77::2 fd77::4-fd77::6"},
		{prefixes("169.254.0.0/16", "fe80::/64", "224.0.0.0/24", "ff02::/64", "127.0.0.0/24"), nil, ""},
	} {
		if got := text(neighbourRanges(tt.networks, tt.host)); got != tt.want {
			t.Errorf("%v without %v: %s, want %s", tt.networks, tt.host, got, tt.want)
		}
	}
}

func TestSubnets(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		link link
		want string
	}{
		{link{kind: "veth", prefixes: prefixes("10.77.0.2/24", "fd77::2/64", "fe80::2/64")}, "[10.77.0.0/24 fd77::/64] <nil>"},
		{link{kind: "tun", prefixes: prefixes("10.0.2.100/24", "fd00::2/64")}, "[] <nil>"},
		{link{kind: "macvlan", prefixes: prefixes("192.0.2.7/24")}, "[] <nil>"},
		{link{kind: "ipvlan", prefixes: prefixes("192.0.2.7/24")}, "[] <nil>"},
		{link{kind: "", prefixes: prefixes("192.0.2.7/24")}, "[] <nil>"},
		{link{kind: "veth", prefixes: prefixes("169.254.1.2/16", "127.1.2.3/8")}, "[] <nil>"},
		{link{kind: "veth", prefixes: prefixes("10.16.1.2/12", "fd77::2/48")}, "[10.16.0.0/12 fd77::/48] <nil>"},
		{link{name: "eth0", kind: "veth", prefixes: prefixes("10.16.1.2/11")}, "[] cannot enforce peers: the network 10.0.0.0/11 of interface eth0 " +
			"is too large to be one of containers; name the networks in eggrun.peers instead of on-link"},
		{link{name: "eth0", kind: "veth", prefixes: prefixes("fd77::2/47")}, "[] cannot enforce peers: the network fd77::/47 of interface eth0 " +
			"is too large to be one of containers; name the networks in eggrun.peers instead of on-link"},
	} {
		networks, err := subnets([]link{tt.link})
		if got := fmt.Sprint(networks, err); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.link, got, tt.want)
		}
		var enforcement *sandbox.EnforcementError
		if err != nil && !errors.As(err, &enforcement) {
			t.Errorf("%+v: a plain error: %v", tt.link, err)
		}
	}
}

// attr is a struct rtattr with its value.
func attr(kind uint16, value []byte) []byte {
	out := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	out = append(binary.NativeEndian.AppendUint16(out, kind), value...)
	return append(out, make([]byte, -len(out)&3)...)
}

func TestGateways(t *testing.T) {
	t.Parallel()
	hop := func(attributes ...[]byte) []byte {
		out := []byte{0, 0, 0, 0, 2, 0, 0, 0}
		for _, a := range attributes {
			out = append(out, a...)
		}
		binary.NativeEndian.PutUint16(out, uint16(len(out)))
		return out
	}
	one, two := gateway4.AsSlice(), gateway6.AsSlice()
	via := append([]byte{unix.AF_INET6, 0}, two...)
	for _, tt := range []struct {
		what  string
		kind  uint16
		value []byte
		want  string
	}{
		{"a gateway", unix.RTA_GATEWAY, one, "[10.77.0.1]"},
		{"of IPv6", unix.RTA_GATEWAY, two, "[fd77::1]"},
		{"of another family", unix.RTA_VIA, via, "[fd77::1]"},
		{"several", unix.RTA_MULTIPATH, append(hop(attr(unix.RTA_GATEWAY, one)), hop(attr(unix.RTA_FLOW, one), attr(unix.RTA_VIA, via))...), "[10.77.0.1 fd77::1]"},
		{"a destination", unix.RTA_DST, one, "[]"},
		{"broken", unix.RTA_MULTIPATH, []byte{255, 255, 0, 0, 0, 0, 0, 0}, "[]"},
		{"broken inside", unix.RTA_MULTIPATH, hop([]byte{255, 255, 0, 0}), "[]"},
		{"endless", unix.RTA_MULTIPATH, []byte{0, 0, 0, 0, 0, 0, 0, 0}, "[]"},
		{"short", unix.RTA_GATEWAY, one[:3], "[]"},
		{"empty", unix.RTA_VIA, nil, "[]"},
	} {
		if got := fmt.Sprint(gateways(tt.kind, tt.value)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
}

func TestParseAddress(t *testing.T) {
	t.Parallel()
	header := []byte{unix.AF_INET, 24, 0, 0, 7, 0, 0, 0}
	binary.NativeEndian.PutUint32(header[4:], 7)
	for _, tt := range []struct{ data, want string }{
		{string(header) + string(attr(unix.IFA_ADDRESS, own4.AsSlice())), "7 10.77.0.2/24 <nil>"},
		{string(header) + string(attr(unix.IFA_LOCAL, own4.AsSlice())), "7 invalid Prefix <nil>"},
		{string(header[:7]), "0 invalid Prefix invalid argument"},
		{string(header) + "\xff\xff\x01\x00", "0 invalid Prefix invalid argument"},
	} {
		index, prefix, err := parseAddress(&syscall.NetlinkMessage{Data: []byte(tt.data), Header: syscall.NlMsghdr{Type: unix.RTM_NEWADDR}})
		if got := fmt.Sprint(index, prefix, err); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.data, got, tt.want)
		}
	}
}

// TestListings has a container's interfaces, addresses and routes.
func TestListings(t *testing.T) {
	t.Parallel()
	if !isolated(t) {
		return
	}
	w := newWorld(t, true)
	w.inside(func() error {
		ip(t, "route", "add", "192.0.2.0/24", "nexthop", "via", "10.77.0.5", "nexthop", "via", "10.77.0.6")
		hops, err := nextHops()
		if got := fmt.Sprint(hops); err != nil || got != "[10.77.0.1 10.77.0.5 10.77.0.6 fd77::1]" {
			t.Errorf("next hops %s, %v", got, err)
		}
		links, err := listLinks()
		if err != nil {
			return err
		}
		if err := listAddresses(links); err != nil {
			return err
		}
		networks, err := subnets(links)
		if got := fmt.Sprint(networks); err != nil || got != "[10.77.0.0/24 fd77::/64]" {
			t.Errorf("networks %s, %v", got, err)
		}
		own, err := Addresses()
		if err != nil {
			return err
		}
		for _, want := range []netip.Addr{localhost4, localhost6, own4, own6} {
			if !strings.Contains(fmt.Sprint(own), want.String()) {
				t.Errorf("addresses %s lack %s", own, want)
			}
		}
		peers, inbound, err := w.wall().onLink()
		if want := "10.77.0.2-10.77.0.4 10.77.0.7-10.77.0.254 fd77::2-fd77::ffff:ffff:ffff:fffe"; err != nil || text(peers) != want || inbound != nil {
			t.Errorf("peers %s, inbound %s, %v; want %s", text(peers), text(inbound), err, want)
		}
		return nil
	})
}
