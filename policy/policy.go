// Package policy says what a container may reach: it reads the request that
// comes with the container, parses the allowlist, and decides for one target
// whether it is allowed, and why.
//
// The package is pure. It opens no file, resolves no name and knows no clock;
// every front end of the proxy asks the same [Allowlist.Decide].
package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"eggrun/sandbox"
)

// keyPrefix begins every annotation that is meant for eggrun.
const keyPrefix = "eggrun."

// KeyDomains is the annotation that lists what a container may reach, its
// entries separated by white space or commas.
const KeyDomains = "eggrun.domains"

// Policy is what one container may reach.
type Policy struct {
	// Domains are the entries as they were written, for messages and for the
	// process that parses them again.
	Domains []string
	// Allowlist is Domains, parsed. It is never nil in a Policy from [Resolve].
	Allowlist *Allowlist
	// NetworkNeed is the least network that covers Domains.
	NetworkNeed sandbox.NetworkNeed
}

// Resolve returns the policy that the annotations of config.json ask for, or
// nil without an error when no annotation is meant for eggrun: such a container
// is an ordinary one.
//
// A key that is present but empty allows nothing. A key that begins with
// "eggrun." and is not known is an error, in whatever case it is written and
// with whatever white space around it: a misspelt policy must not become no
// policy.
func Resolve(annotations map[string]string) (*Policy, error) {
	asked := false
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !strings.HasPrefix(strings.ToLower(strings.TrimSpace(key)), keyPrefix) {
			continue
		}
		if key != KeyDomains {
			return nil, fmt.Errorf("annotation %q: unknown key; use %s", key, KeyDomains)
		}
		asked = true
	}
	if !asked {
		return nil, nil
	}
	domains := strings.FieldsFunc(annotations[KeyDomains], isSeparator)
	list, err := ParseAllowlist(domains)
	if err != nil {
		return nil, fmt.Errorf("annotation %q: %w", KeyDomains, err)
	}
	return &Policy{
		Domains:     domains,
		Allowlist:   list,
		NetworkNeed: sandbox.NetworkNeedFromDomains(domains),
	}, nil
}

func isSeparator(r rune) bool { return r == ',' || unicode.IsSpace(r) }
