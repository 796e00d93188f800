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
	"net/netip"
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

// Policy is what one container may reach, with everything decided: annotations,
// files and defaults are already one. The zero Policy reaches nothing.
type Policy struct {
	// Domains are the entries as they were written, for messages and for the
	// process that parses them again.
	Domains []string
	// Allowlist is Domains, parsed. It is never nil in a Policy from [Resolve].
	Allowlist *Allowlist `json:"-"`
	// NetworkNeed is the least network that covers Domains.
	NetworkNeed sandbox.NetworkNeed
	// LocalPorts are TCP ports of the host's 127.0.0.1 that appear on the
	// container's.
	LocalPorts []uint16
	// Peers is what a locked namespace reaches directly.
	Peers Peers
	// PeerNames are names that are passed to the engine's resolver.
	PeerNames []string
	// Inbound is who may connect to the container.
	Inbound Inbound
	// Deny and DenyWrite are paths in the container that can't be read and
	// written, or only not written.
	Deny, DenyWrite []string
	// AllowSockets are paths of the host on which sockets may be mounted.
	AllowSockets []string
	// MaskSockets mounts nothing where a socket was asked for, instead of
	// refusing the container.
	MaskSockets bool
	// AllowFDs lets descriptors that are sockets into the container.
	AllowFDs bool
	// SNI is how the name in a TLS greeting is compared.
	SNI SNI
	// Observe lets every public name pass and logs what would have been denied.
	Observe bool
	// ProxyEnv and Transparent turn parts of the way out on or off.
	ProxyEnv    ProxyEnv
	Transparent bool
	// KillOnProxyExit ends the container with its sidecar.
	KillOnProxyExit bool
	// HostAddresses are addresses that stand for the host and are never dialled.
	HostAddresses []netip.Prefix
	// UpstreamProxy is the URL of a proxy through which everything is dialled,
	// or empty.
	UpstreamProxy string
	// UpstreamFake accepts answers within 198.18.0.0/15 from the resolver.
	UpstreamFake bool
}

// Peers is what a container reaches without the proxy.
type Peers struct {
	// OnLink is the subnets of the container's veth interfaces, without the
	// host's addresses.
	OnLink bool
	// Prefixes are further networks.
	Prefixes []netip.Prefix
}

// Inbound is who may connect to a container. The zero Inbound is nobody.
type Inbound struct {
	// All is everybody, and OnLink the subnets of the container's interfaces.
	All, OnLink bool
	// Ports are TCP and UDP ports that everybody may connect to.
	Ports []uint16
}

// SNI is how strictly the server name of a TLS greeting is held to the target.
type SNI string

const (
	// SNIMatch demands the name that was asked for.
	SNIMatch SNI = "match"
	// SNIAllowlisted demands a name that is allowed.
	SNIAllowlisted SNI = "allowlisted"
	// SNIOff looks at nothing.
	SNIOff SNI = "off"
)

// ProxyEnv is whether a container's environment names the proxy.
type ProxyEnv string

const (
	// ProxyEnvAuto sets the variables where the namespace is closed.
	ProxyEnvAuto ProxyEnv = "auto"
	// ProxyEnvOn always sets them.
	ProxyEnvOn ProxyEnv = "on"
	// ProxyEnvOff never does.
	ProxyEnvOff ProxyEnv = "off"
)

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
		Peers:       Peers{OnLink: true},
		Inbound:     Inbound{All: true},
		SNI:         SNIMatch,
		ProxyEnv:    ProxyEnvAuto,
		Transparent: true,
	}, nil
}

func isSeparator(r rune) bool { return r == ',' || unicode.IsSpace(r) }

// Decide says whether t may be reached: the verdict of the allowlist, softened
// where the policy only observes. A nil Policy denies everything.
func (p *Policy) Decide(t Target) Decision {
	if p == nil {
		return Decision{Reason: ReasonNotListed}
	}
	return p.Allowlist.Decide(t)
}
