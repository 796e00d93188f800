package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Warnings returns what is allowed in a file but hardly meant, one line each: the
// file's path and line first.
func (f *File) Warnings() []string {
	w := &warnings{file: f}
	if f.rules == nil {
		w.add(f.path, "no [default]: a container that asks for nothing has no network")
	}
	w.section(f.rules)
	w.section(f.limit)
	w.within("[default]", f.rules, f.limit.over(f.rules))
	for _, name := range f.profileNames() {
		p := f.profiles[name]
		w.section(p.rules)
		w.profile(p)
	}
	for i, m := range f.matches {
		w.section(m.rules)
		w.section(m.limit)
		w.match(m, f.matches[:i])
	}
	for _, name := range slices.Sorted(maps.Keys(f.groups)) {
		w.entries(f.groups[name].words)
	}
	return w.lines
}

type warnings struct {
	file  *File
	lines []string
}

func (w *warnings) add(from, format string, args ...any) {
	if line := from + ": " + fmt.Sprintf(format, args...); !slices.Contains(w.lines, line) {
		w.lines = append(w.lines, line)
	}
}

// section warns of what a section says by itself.
func (w *warnings) section(s section) {
	w.entries(slices.DeleteFunc(slices.Clone(s[keyDomains].words), func(w word) bool { return w.group != "" }))
	w.shadowed(s[keyDomains].words)
	for _, open := range [][2]string{{keyNetwork, "full"}, {"mode", "observe"}} {
		for _, word := range s[open[0]].words {
			if word.text == open[1] {
				w.add(word.from, "%s %s: nothing is refused", open[0], open[1])
			}
		}
	}
}

// entries warns of wildcards below which anybody can have a name.
func (w *warnings) entries(words []word) {
	for _, word := range words {
		e, err := parseEntry(word.text)
		if err != nil || !e.wildcard {
			continue
		}
		if suffix, icann := publicsuffix.PublicSuffix(e.name); suffix == e.name && isListed(suffix, icann) {
			w.add(word.from, "%s: anybody can register a name below %s", clip(word.text), e.name)
		}
	}
}

// shadowed warns of entries that another one of the list covers.
func (w *warnings) shadowed(words []word) {
	var list []entry
	for _, word := range words {
		e, err := parseEntry(word.text)
		if err != nil {
			return
		}
		list = append(list, e)
	}
	for i, e := range list {
		for j, other := range list {
			// Of two that cover each other the later one is the one too many.
			if i == j || !other.coversAll(e) || e.coversAll(other) && i < j {
				continue
			}
			w.add(words[i].origin(), "%s: %s at %s covers it", clip(e.text), clip(other.text), words[j].origin())
			break
		}
	}
}

// coversAll reports whether e covers r on each of its ports.
func (e entry) coversAll(r entry) bool {
	return !slices.ContainsFunc(r.ports.each(), func(port uint16) bool { return !e.covers(r, port, false) })
}

// within warns of a section that is more than its limit: nothing gets it.
func (w *warnings) within(name string, rules, limit section) {
	if excess := w.excess(rules, limit); len(excess) > 0 {
		w.add(w.file.path, "%s: more than its limit: %s; no container can be created with it", name, strings.Join(excess, ", "))
	}
}

func (w *warnings) excess(rules, limit section) []string {
	p, err := rules.withDenied(limit).build()
	l, limitErr := limit.build()
	if err != nil || limitErr != nil {
		return nil // ParseFile has said so
	}
	return p.Exceeds(l)
}

// profile warns of one that nobody can pick.
func (w *warnings) profile(p *profile) {
	f := w.file
	from := fmt.Sprintf("%s:%d", f.path, p.line)
	if p.selectable {
		return
	}
	if excess := w.excess(p.rules.over(f.rules), f.limit.over(f.rules)); len(excess) > 0 {
		w.add(from, "profile %s: neither selectable nor within [limit]: %s", p.name, strings.Join(excess, ", "))
	}
}

// match warns of one that is never used.
func (w *warnings) match(m *match, before []*match) {
	f := w.file
	from := fmt.Sprintf("%s:%d", f.path, m.line)
	for _, other := range before {
		if sameConditions(m, other) {
			w.add(from, "[[match]]: that of line %d has the same conditions and comes first", other.line)
		}
	}
	rules := m.allRules().over(f.rules)
	if m.limit != nil {
		w.within(fmt.Sprintf("[[match]] of line %d", m.line), rules, m.limit.over(rules))
	}
	untrusted := len(m.images) > 0 && !slices.ContainsFunc(imageAnnotations, f.trusts) ||
		len(m.annotations) > 0 && !slices.ContainsFunc(m.annotations, func(condition string) bool {
			key, _, _ := strings.Cut(condition, "=")
			return f.trusts(key)
		})
	if !untrusted {
		return
	}
	if m.limit != nil {
		w.add(from, "[[match]]: fits by what a container says itself, so its limit is not used; see trusted-annotations")
	}
	if excess := w.excess(rules, f.limit.over(f.rules)); len(excess) > 0 {
		w.add(from, "[[match]]: fits by what a container says itself, so it can't allow more than [limit]: %s", strings.Join(excess, ", "))
	}
}

func sameConditions(a, b *match) bool {
	conditions := func(m *match) string {
		return fmt.Sprintf("%d %q %q %q %q", m.uids, m.engines, m.argv0s, m.images, m.annotations)
	}
	return conditions(a) == conditions(b)
}
