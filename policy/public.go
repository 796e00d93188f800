package policy

import (
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// isPublicName reports whether the entry * covers name: whether it lies in a
// zone of the public DNS, which is what the public suffix list says. Names of
// one label, localhost, and those that only a host or a local network knows
// (RFC 6762, RFC 8375, ICANN's .internal) or that no resolver may be asked for
// (RFC 7686) are not public. A top-level domain that is newer than the list that
// was linked in is not either.
//
// Whatever is below a public name is public.
func isPublicName(name string) bool {
	_, suffix, ok := strings.Cut(name, ".")
	if !ok || !isCanonicalName(name) {
		return false
	}
	top := suffix[strings.LastIndexByte(suffix, '.')+1:]
	if slices.Contains([]string{"arpa", "internal", "local", "localhost", "onion"}, top) {
		return false
	}
	return isListed(publicsuffix.PublicSuffix(name))
}

// isListed says of what publicsuffix.PublicSuffix returned whether the list has
// it: for a name that matches no line it makes up a suffix of one label.
func isListed(suffix string, icann bool) bool { return icann || strings.Contains(suffix, ".") }

// isBelow reports whether name is parent or below it.
func isBelow(name, parent string) bool {
	return name == parent || strings.HasSuffix(name, "."+parent)
}
