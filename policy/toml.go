package policy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// checkTOML makes sure that data is TOML: what follows looks at one line at a
// time and not at keys that are there twice.
func checkTOML(path string, data []byte) error {
	err := toml.Unmarshal(data, &map[string]any{})
	var decode *toml.DecodeError
	if errors.As(err, &decode) {
		row, _ := decode.Position()
		return fmt.Errorf("%s:%d: %s", path, row, oneLine(strings.TrimPrefix(decode.Error(), "toml: ")))
	}
	if err != nil {
		return fmt.Errorf("%s: %s", path, oneLine(err.Error()))
	}
	return nil
}

// oneLine keeps the bytes of a file from breaking a message into lines.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
}

// fileReader reads a file line by line.
type fileReader struct {
	file   *File
	parser unstable.Parser
	line   int
	// set takes the keys of the table that the reader is in.
	set func(key string, v value) error
}

// value is one value of the file: a string, a number, a boolean, or a list.
type value struct {
	kind  unstable.Kind
	text  string
	line  int
	items []value
}

func (r *fileReader) from(line int) string { return fmt.Sprintf("%s:%d", r.file.path, line) }

func (r *fileReader) expression(node *unstable.Node) error {
	var path []string
	for keys := node.Key(); keys.Next(); {
		key := keys.Node()
		path = append(path, string(key.Data))
		r.line = r.parser.Shape(key.Raw).Start.Line
	}
	if node.Kind != unstable.KeyValue {
		return r.table(path, node.Kind == unstable.ArrayTable)
	}
	if len(path) != 1 {
		return fmt.Errorf("key %s: has a dot; write it below a [section]", quoted(strings.Join(path, ".")))
	}
	v, err := r.value(node.Value())
	if err != nil {
		return fmt.Errorf("key %s: %w", quoted(path[0]), err)
	}
	return r.set(path[0], v)
}

func (r *fileReader) value(node *unstable.Node) (value, error) {
	v := value{kind: node.Kind, text: string(node.Data), line: r.line}
	switch node.Kind {
	case unstable.String, unstable.Integer, unstable.Bool:
		if node.Raw.Length > 0 {
			v.line = r.parser.Shape(node.Raw).Start.Line
		}
	case unstable.Array:
		for items := node.Children(); items.Next(); {
			item, err := r.value(items.Node())
			if err != nil {
				return value{}, err
			}
			if item.kind == unstable.Array {
				return value{}, errors.New("a list in a list")
			}
			v.items = append(v.items, item)
		}
	default:
		return value{}, errors.New("a value of this kind has no meaning here")
	}
	return v, nil
}

// table begins a table.
func (r *fileReader) table(path []string, array bool) error {
	f := r.file
	switch name := oneLine(strings.Join(path, ".")); {
	case array && name == "match":
		m := &match{file: f, line: r.line, rules: section{}}
		f.matches = append(f.matches, m)
		r.set = func(key string, v value) error { return r.setMatch(m, key, v) }
	case array:
		return fmt.Errorf("section [[%s]]: unknown; the only one of this kind is [[match]]", clip(name))
	case name == "default":
		r.set = r.setSection(&f.rules)
	case name == "limit":
		r.set = r.setSection(&f.limit)
	case name == "match.limit" && len(f.matches) > 0:
		r.set = r.setSection(&f.matches[len(f.matches)-1].limit)
	case name == "groups":
		r.set = r.setGroup
	case len(path) == 2 && path[0] == "profile":
		if err := checkWord(path[1]); err != nil {
			return fmt.Errorf("profile %s: %w", quoted(path[1]), err)
		}
		p := &profile{file: f, name: path[1], line: r.line, rules: section{}}
		f.profiles[p.name] = p
		r.set = func(key string, v value) error { return r.setProfile(p, key, v) }
	default:
		return fmt.Errorf("section [%s]: unknown; the sections are default, limit, groups, profile.NAME, [[match]] and match.limit", clip(name))
	}
	return nil
}

// checkWord checks the name of a group or a profile, which has to fit into an
// annotation.
func checkWord(name string) error {
	for i := range len(name) {
		if !isHostByte(name[i]) {
			return errors.New("use letters, digits, '.', '-' and '_'")
		}
	}
	if name == "" {
		return errors.New("empty")
	}
	return nil
}

// setTop takes what stands before the first section.
func (r *fileReader) setTop(key string, v value) (err error) {
	f := r.file
	var words []word
	switch key {
	case "trusted-annotations":
		f.trusted, words, err = readList(r, v, func(s string) (string, error) { return s, nil })
	case "host-addresses":
		if f.hostAddresses, words, err = readList(r, v, parseNet); err != nil {
			err = fmt.Errorf("host-addresses: %w", err)
		}
	case keyUpstreamProxy:
		if v.kind != unstable.String {
			return errors.New("upstream-proxy: want a string")
		}
		words = []word{{text: "set", from: r.from(v.line)}} // it may have a password in it
		if f.upstreamProxy, err = parseUpstream(v.text); err != nil {
			err = fmt.Errorf("upstream-proxy: %w", err)
		}
	case keyUpstreamFake:
		f.upstreamFake, err = boolean(key, v)
		words = []word{{text: v.text, from: r.from(v.line)}}
	default:
		err = fmt.Errorf("key %s: unknown before the first section; the keys are trusted-annotations, host-addresses, upstream-proxy and upstream-fake", quoted(key))
	}
	for _, w := range words {
		f.origins = append(f.origins, Origin{Key: key, Value: w.text, From: w.from})
	}
	return err
}

func boolean(key string, v value) (bool, error) {
	if v.kind != unstable.Bool {
		return false, fmt.Errorf("%s: want true or false", key)
	}
	return v.text == "true", nil
}

// readList parses a list, or its only value.
func readList[T any](r *fileReader, v value, parse func(string) (T, error)) ([]T, []word, error) {
	words, err := r.words(v, false)
	if err != nil {
		return nil, nil, err
	}
	list := make([]T, len(words))
	for i, item := range v.list() {
		if list[i], err = parse(item.text); err != nil {
			r.line = item.line
			return nil, nil, err
		}
	}
	return list, words, nil
}

// list returns the values of a list, or the only value.
func (v value) list() []value {
	if v.kind != unstable.Array {
		return []value{v}
	}
	return v.items
}

// words returns the values of a list, or the only value.
func (r *fileReader) words(v value, booleans bool) ([]word, error) {
	words := []word{}
	for _, item := range v.list() {
		if item.kind == unstable.Bool {
			if !booleans {
				return nil, errors.New("true and false have no meaning here")
			}
			item.text = map[string]string{"true": "on", "false": "off"}[item.text]
		}
		words = append(words, word{text: item.text, from: r.from(item.line)})
	}
	return words, nil
}

// setSection returns what takes the keys of a section, which is there even if it
// is empty.
func (r *fileReader) setSection(s *section) func(string, value) error {
	*s = section{}
	return func(key string, v value) error { return r.setKey(*s, key, v) }
}

func (r *fileReader) setKey(s section, name string, v value) error {
	k, ok := keyNamed(name)
	if !ok {
		return fmt.Errorf("key %s: unknown; the keys of a section are %s", quoted(name), keyNames())
	}
	if k.single && v.kind == unstable.Array {
		return fmt.Errorf("%s: want one value, not a list", name)
	}
	words, err := r.words(v, k.single)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for i := range words {
		words[i].key = name
	}
	s[name] = setting{words, r.from(r.line)}
	return nil
}

func keyNames() string {
	var names []string
	for _, k := range keys() {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

func (r *fileReader) setGroup(name string, v value) error {
	if err := checkWord(name); err != nil {
		return fmt.Errorf("group %s: %w", quoted(name), err)
	}
	words, err := r.words(v, false)
	if err != nil {
		return fmt.Errorf("group %s: %w", quoted(name), err)
	}
	r.file.groups[name] = setting{words, r.from(r.line)}
	return nil
}

func (r *fileReader) setProfile(p *profile, key string, v value) (err error) {
	if key == "selectable" {
		p.selectable, err = boolean(key, v)
		return err
	}
	return r.setKey(p.rules, key, v)
}

func (r *fileReader) setMatch(m *match, key string, v value) (err error) {
	text := func(s string) (string, error) { return s, nil }
	if _, isRule := keyNamed(key); !isRule && len(v.list()) == 0 {
		return fmt.Errorf("%s: an empty list fits nothing; drop it", key)
	}
	switch key {
	case "uid":
		m.uids, _, err = readList(r, v, parseUID)
	case "engine":
		m.engines, _, err = readList(r, v, parseEngine)
	case "argv0":
		m.argv0s, _, err = readList(r, v, text)
	case "image":
		m.images, _, err = readList(r, v, text)
	case "annotation":
		m.annotations, _, err = readList(r, v, text)
	case keyProfile:
		if v.kind != unstable.String {
			return errors.New("profile: want a string")
		}
		m.profile = v.text
	default:
		return r.setKey(m.rules, key, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func parseUID(s string) (uint32, error) {
	uid, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("value %s; write a number", quoted(s))
	}
	return uint32(uid), nil
}

func parseEngine(s string) (string, error) {
	if !slices.Contains(engines, s) {
		return "", fmt.Errorf("value %s; want %s", quoted(s), strings.Join(engines, ", "))
	}
	return s, nil
}
