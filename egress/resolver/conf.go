package resolver

import (
	"bytes"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Bounds of what is read of a resolv.conf. It comes from an engine, but may have
// been copied from an image.
const (
	maxConf        = 64 << 10
	maxNameservers = 3 // MAXNS of resolv.h: nobody asks a fourth
	maxSearch      = 32
	maxNdots       = 15 // RES_MAXNDOTS
)

// Conf is what a resolv.conf says.
type Conf struct {
	// Nameservers are at most three, in order.
	Nameservers []netip.Addr
	// Search are the domains that a libc appends to short names, in lower case
	// and without a dot at the end.
	Search []string
	// Ndots is how many dots a name needs to be asked as it is first.
	Ndots int
}

// ParseConf reads a resolv.conf the way glibc does, see resolv.conf(5): what it
// doesn't know is skipped, the last "search" or "domain" counts. A search list
// of only the root, ".", is an empty one.
func ParseConf(data []byte) Conf {
	conf := Conf{Ndots: 1}
	for line := range bytes.Lines(data[:min(len(data), maxConf)]) {
		// A comment is one only in the first column.
		if line[0] == '#' || line[0] == ';' {
			continue
		}
		fields := strings.Fields(string(line))
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			addr, err := netip.ParseAddr(fields[1])
			if err == nil && len(conf.Nameservers) < maxNameservers {
				conf.Nameservers = append(conf.Nameservers, addr)
			}
		case "domain":
			conf.Search = searchList(fields[1:2])
		case "search":
			conf.Search = searchList(fields[1:])
		case "options":
			for _, option := range fields[1:] {
				conf.setOption(option)
			}
		}
	}
	return conf
}

func (c *Conf) setOption(option string) {
	digits, ok := strings.CutPrefix(option, "ndots:")
	if n, err := strconv.Atoi(digits); ok && err == nil && n >= 0 {
		c.Ndots = min(n, maxNdots)
	}
}

// searchList returns the usable ones of domains, canonical.
func searchList(domains []string) []string {
	var list []string
	for _, domain := range domains {
		domain = canonical(domain)
		if isHostName(domain) && !slices.Contains(list, domain) && len(list) < maxSearch {
			list = append(list, domain)
		}
	}
	return list
}

// canonical returns name in lower case and without one dot at its end.
func canonical(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

// isHostName reports whether a canonical name has only labels that can be a
// host's.
func isHostName(name string) bool {
	if len(name) > maxName {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel || strings.IndexFunc(label, notHostRune) >= 0 {
			return false
		}
	}
	return true
}

func notHostRune(r rune) bool {
	return !('a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '_')
}
