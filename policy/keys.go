package policy

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"eggrun/sandbox"
)

// Names of the keys that are also spoken of elsewhere.
const (
	keyDomains    = "domains"
	keyNetwork    = "network"
	keyLocalPorts = "local-ports"
	keyDeny       = "deny"
	keyDenyWrite  = "deny-write"
	keyProfile    = "profile"

	keyUpstreamProxy = "upstream-proxy"
	keyUpstreamFake  = "upstream-fake"
)

// key is one thing that a policy says, in an annotation eggrun.NAME or in a
// section of policy.toml.
type key struct {
	name string
	// onlyFile is set for a key that is no annotation.
	onlyFile bool
	// single is set for a key with exactly one value. The others are lists.
	single bool
	// byDefault is what it is where nobody says anything.
	byDefault []string
	set       func(p *Policy, words []word) error
}

// keys are in the order in which they are shown.
var keys = sync.OnceValue(func() []key {
	return []key{
		{name: keyNetwork, single: true, set: func(*Policy, []word) error { return nil }}, // see settleNetwork
		{name: keyDomains, set: setDomains},
		{name: keyLocalPorts, set: func(p *Policy, words []word) (err error) {
			p.LocalPorts, err = parseWords(words, parsePort)
			return err
		}},
		{name: "peers", byDefault: []string{"on-link"}, set: setPeers},
		{name: "peer-names", onlyFile: true, set: func(p *Policy, words []word) (err error) {
			p.PeerNames, err = parseWords(words, parsePeerName)
			return err
		}},
		{name: "inbound", byDefault: []string{"all"}, set: setInbound},
		{name: keyDeny, set: func(p *Policy, words []word) (err error) { p.Deny, err = parseWords(words, parsePath); return err }},
		{name: keyDenyWrite, set: func(p *Policy, words []word) (err error) { p.DenyWrite, err = parseWords(words, parsePath); return err }},
		{name: "sockets", onlyFile: true, single: true, byDefault: []string{"refuse"}, set: choice(func(p *Policy, v string) { p.MaskSockets = v == "mask" }, "refuse", "mask")},
		{name: "allow-sockets", set: func(p *Policy, words []word) (err error) {
			p.AllowSockets, err = parseWords(words, parsePath)
			return err
		}},
		{name: "allow-fds", single: true, byDefault: []string{"off"}, set: choice(func(p *Policy, v string) { p.AllowFDs = v == "on" }, "on", "off")},
		{name: "sni", single: true, byDefault: []string{"match"}, set: choice(func(p *Policy, v string) { p.SNI = SNI(v) }, "match", "allowlisted", "off")},
		{name: "mode", single: true, byDefault: []string{"enforce"}, set: choice(func(p *Policy, v string) { p.Observe = v == "observe" }, "enforce", "observe")},
		{name: "proxy-env", single: true, byDefault: []string{"auto"}, set: choice(func(p *Policy, v string) { p.ProxyEnv = ProxyEnv(v) }, "auto", "on", "off")},
		{name: "transparent", single: true, byDefault: []string{"on"}, set: choice(func(p *Policy, v string) { p.Transparent = v == "on" }, "on", "off")},
		{name: "on-proxy-exit", single: true, byDefault: []string{"deny"}, set: choice(func(p *Policy, v string) { p.KillOnProxyExit = v == "kill" }, "deny", "kill")},
	}
})

// containerKeys are those that say nothing about the network, which several
// containers may share, but about one of them.
var containerKeys = []string{keyDeny, keyDenyWrite, "sockets", "allow-sockets", "allow-fds", "proxy-env", "on-proxy-exit"}

func keyNamed(name string) (key, bool) {
	i := slices.IndexFunc(keys(), func(k key) bool { return k.name == name })
	if i < 0 {
		return key{}, false
	}
	return keys()[i], true
}

// choice returns the set function of a key whose value is one of names.
func choice(set func(p *Policy, value string), names ...string) func(*Policy, []word) error {
	return func(p *Policy, words []word) error {
		w, err := one(words)
		if err != nil {
			return err
		}
		if !slices.Contains(names, w.text) {
			return w.errorf("value %s; want %s", quoted(w.text), strings.Join(names, ", "))
		}
		set(p, w.text)
		return nil
	}
}

// one returns the only word of a key that has one value; the readers of
// annotations and files see to that.
func one(words []word) (word, error) {
	if len(words) != 1 {
		return word{}, fmt.Errorf("%d values, want one", len(words))
	}
	return words[0], nil
}

func parseNetwork(words []word) (sandbox.NetworkNeed, error) {
	w, err := one(words)
	if err != nil {
		return 0, err
	}
	for need := sandbox.NetworkNone; need <= sandbox.NetworkFull; need++ {
		if w.text == need.String() {
			return need, nil
		}
	}
	return 0, w.errorf("value %s; want none, local, https, full", quoted(w.text))
}

func setDomains(p *Policy, words []word) error {
	p.Allowlist = newAllowlist()
	for _, w := range words {
		e, err := parseEntry(w.text)
		if err != nil {
			return w.errorf("%w", err)
		}
		p.Domains = append(p.Domains, w.text)
		p.Allowlist.add(e)
	}
	return nil
}

func setPeers(p *Policy, words []word) error {
	for _, w := range words {
		switch w.text {
		case "on-link":
			p.Peers.OnLink = true
		case "none":
			if len(words) > 1 {
				return w.errorf("none beside other values; drop one of them")
			}
		default:
			prefix, err := parseNet(w.text)
			if err != nil {
				return w.errorf("value %s: %w; or write on-link or none", quoted(w.text), err)
			}
			p.Peers.Prefixes = append(p.Peers.Prefixes, prefix)
		}
	}
	return nil
}

func setInbound(p *Policy, words []word) error {
	for _, w := range words {
		switch w.text {
		case "all", "none":
			if len(words) > 1 {
				return w.errorf("%s beside other values; drop one of them", w.text)
			}
			p.Inbound.All = w.text == "all"
		case "on-link":
			p.Inbound.OnLink = true
		default:
			port, err := parsePort(w.text)
			if err != nil {
				return w.errorf("%w, or all, on-link or none", err)
			}
			p.Inbound.Ports = append(p.Inbound.Ports, port)
		}
	}
	return nil
}

// parseWords parses the values of a list.
func parseWords[T any](words []word, parse func(string) (T, error)) ([]T, error) {
	var out []T
	for _, w := range words {
		value, err := parse(w.text)
		if err != nil {
			return nil, w.errorf("%w", err)
		}
		out = append(out, value)
	}
	return out, nil
}

// parseNet parses an address or a prefix.
func parseNet(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
		return addrEntry(addr.Unmap()).prefix, nil
	}
	e, err := parsePrefix(s)
	return e.prefix, err
}

// parsePath parses an absolute path.
func parsePath(s string) (string, error) {
	if !path.IsAbs(s) || strings.ContainsRune(s, 0) {
		return "", fmt.Errorf("path %s: not absolute; begin it with a slash", quoted(s))
	}
	return path.Clean(s), nil
}

// parsePeerName parses a name without port.
func parsePeerName(s string) (string, error) {
	e, err := parseName(s)
	if err == nil && (e.name == "" || e.wildcard) {
		err = strconv.ErrSyntax
	}
	if err != nil {
		return "", fmt.Errorf("name %s; write the whole name of a peer, without star and port", quoted(s))
	}
	return e.name, nil
}
