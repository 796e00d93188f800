package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"eggrun/sandbox"
)

// word is one value of a setting and where it was written.
type word struct {
	text string
	from string // for messages and [Origin.From]
	key  string // for messages, where from doesn't say it
	// group is the outermost group through which it came, without @, or empty.
	group string
}

// origin says where the word was written.
func (w word) origin() string {
	if w.group == "" {
		return w.from
	}
	return w.from + ", for @" + w.group
}

// errorf returns an error about the word.
func (w word) errorf(format string, args ...any) error {
	from := w.origin()
	if w.key != "" {
		from += ": " + w.key
	}
	return fmt.Errorf("%s: %w", from, fmt.Errorf(format, args...))
}

// setting is what one place says about one key.
type setting struct {
	words []word
	from  string // of the key
}

// section is what one place says: the annotations of a container, or a table of
// policy.toml. Keys that it doesn't have are left to what it is laid over.
type section map[string]setting

// over lays s over base, key by key. Paths that are denied add up. The network
// belongs to the domains that it was written with: whoever asks for other domains
// or ports gets the network that they need, and whoever asks for a smaller
// network loses what needs a larger one.
func (s section) over(base section) section {
	out := maps.Clone(base)
	if out == nil {
		out = section{}
	}
	network, hasNetwork := s[keyNetwork]
	if hasNetwork {
		switch need, _ := parseNetwork(network.words); need {
		case sandbox.NetworkNone, sandbox.NetworkFull:
			delete(out, keyDomains)
			delete(out, keyLocalPorts)
		case sandbox.NetworkLocal:
			delete(out, keyDomains)
		}
	} else if s.has(keyDomains) || s.has(keyLocalPorts) {
		delete(out, keyNetwork)
	}
	for key, value := range s {
		if key == keyDeny || key == keyDenyWrite {
			value.words = union(out[key].words, value.words)
		}
		out[key] = value
	}
	return out
}

// withDenied returns s with the paths that from denies added to its own.
func (s section) withDenied(from section) section {
	denied := section{}
	for _, key := range []string{keyDeny, keyDenyWrite} {
		if value, ok := from[key]; ok {
			denied[key] = value
		}
	}
	return denied.over(s)
}

func union(a, b []word) []word {
	out := slices.Clone(a)
	for _, w := range b {
		if !slices.ContainsFunc(out, func(o word) bool { return o.text == w.text }) {
			out = append(out, w)
		}
	}
	return out
}

func (s section) has(key string) bool { _, ok := s[key]; return ok }

// groups are lists of entries by name.
type groups map[string]setting

// expand replaces @NAME among the domains by the entries of the first of the
// groups that has that name.
func (s section) expand(all ...groups) error {
	domains, ok := s[keyDomains]
	if !ok {
		return nil
	}
	var err error
	domains.words, err = expand(domains.words, all)
	s[keyDomains] = domains
	return err
}

func expand(words []word, all []groups) ([]word, error) {
	e := &expansion{groups: all, done: map[string]bool{}}
	err := e.add(words, nil)
	return e.words, err
}

// expansion is a list in which groups are being replaced, each once: a group of
// groups of groups would grow beyond all bounds.
type expansion struct {
	groups []groups
	words  []word
	done   map[string]bool
}

// add adds words, which stand in the groups above, the outermost first.
func (e *expansion) add(words []word, above []string) error {
	for _, w := range words {
		name, isGroup := strings.CutPrefix(w.text, "@")
		if !isGroup {
			if len(above) > 0 {
				w.group = above[0]
			}
			e.words = append(e.words, w)
			continue
		}
		if slices.Contains(above, name) {
			return w.errorf("group %s: contains itself", quoted(w.text))
		}
		i := slices.IndexFunc(e.groups, func(g groups) bool { _, ok := g[name]; return ok })
		if i < 0 {
			return w.errorf("group %s: unknown; define it under [groups] of policy.toml", quoted(w.text))
		}
		if e.done[name] {
			continue
		}
		if err := e.add(e.groups[i][name].words, append(slices.Clip(above), name)); err != nil {
			return err
		}
		e.done[name] = true
	}
	return nil
}

// build makes a policy of the section, whose groups have been expanded. Keys that
// it doesn't have get their defaults.
func (s section) build() (*Policy, error) {
	p := &Policy{}
	for _, k := range keys() {
		value, ok := s[k.name]
		if !ok {
			value = setting{from: fromDefault}
			for _, text := range k.byDefault {
				value.words = append(value.words, word{text: text, from: fromDefault})
			}
		}
		if err := k.set(p, value.words); err != nil {
			return nil, err
		}
		p.addOrigins(k.name, value)
	}
	return p, p.settleNetwork(s[keyNetwork])
}

const fromDefault = "default"

func (p *Policy) addOrigins(key string, value setting) {
	if key == keyNetwork {
		return // settleNetwork does
	}
	if len(value.words) == 0 {
		p.Origins = append(p.Origins, Origin{Key: key, From: value.from})
	}
	for _, w := range value.words {
		p.Origins = append(p.Origins, Origin{Key: key, Value: w.text, From: w.origin()})
	}
}

// settleNetwork derives the network from the domains and ports, or makes sure
// that they agree with what was written.
func (p *Policy) settleNetwork(written setting) error {
	need := networkNeed(p.Domains)
	if len(p.LocalPorts) > 0 {
		need = max(need, sandbox.NetworkLocal)
	}
	from := "follows from the domains"
	if len(written.words) > 0 {
		want, err := parseNetwork(written.words)
		if err != nil {
			return err
		}
		w := written.words[0]
		switch {
		case want == sandbox.NetworkFull && need != sandbox.NetworkNone:
			return w.errorf("full means no wall, but domains or ports are listed; drop one of them")
		case want < need:
			return w.errorf("%s, but the domains and ports need %s; drop one of them", want, need)
		}
		need, from = want, w.from
	}
	p.NetworkNeed = need
	p.Origins = slices.Insert(p.Origins, 0, Origin{Key: keyNetwork, Value: need.String(), From: from})
	return nil
}

// networkNeed is [sandbox.NetworkNeedFromDomains], but * needs the wall: it is
// every public name, and not everything.
func networkNeed(domains []string) sandbox.NetworkNeed {
	hosts := make([]string, len(domains))
	for i, entry := range domains {
		hosts[i], _, _ = strings.Cut(entry, "!")
	}
	return min(sandbox.NetworkNeedFromDomains(hosts), sandbox.NetworkHTTPS)
}

func quoted(s string) string { return strconv.Quote(clip(s)) }
