package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// keyPrefix begins every annotation that is meant for eggrun.
const keyPrefix = "eggrun."

// IsKey tells whether an annotation is meant for eggrun, in whatever case it is
// written.
func IsKey(annotation string) bool {
	return strings.HasPrefix(strings.ToLower(strings.TrimSpace(annotation)), keyPrefix)
}

// KeyDomains is the annotation that lists what a container may reach, its
// entries separated by white space or commas.
const KeyDomains = keyPrefix + keyDomains

// AnnotationKeys returns the annotations that are known, in the order in which
// the manual has them.
func AnnotationKeys() []string {
	var names []string
	for _, k := range keys() {
		if !k.onlyFile {
			names = append(names, keyPrefix+k.name)
		}
	}
	return append(names, keyPrefix+keyProfile)
}

// request is what the annotations of one container ask for.
type request struct {
	section
	profile string // empty for none
}

// parseAnnotations reads the annotations that are meant for eggrun; nil when
// there is none.
//
// A list that is present but empty is an empty one. A key that begins with
// "eggrun." and is not known is an error, in whatever case it is written and
// with whatever white space around it: a misspelt policy must not become no
// policy.
func parseAnnotations(annotations map[string]string) (*request, error) {
	var r *request
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if !IsKey(name) {
			continue
		}
		if r == nil {
			r = &request{section: section{}}
		}
		from := fmt.Sprintf("annotation %s", quoted(name))
		value := annotations[name]
		short := strings.TrimPrefix(name, keyPrefix)
		k, ok := keyNamed(short)
		switch {
		case name == keyPrefix+keyProfile:
			if r.profile = strings.TrimSpace(value); r.profile == "" {
				return nil, fmt.Errorf("%s: empty; name a profile of policy.toml", from)
			}
			continue
		case short == name || !ok || k.onlyFile:
			return nil, fmt.Errorf("%s: unknown key; those that are known are %s", from, strings.Join(AnnotationKeys(), ", "))
		}
		s := setting{from: from}
		fields := strings.FieldsFunc(value, isSeparator)
		if k.single {
			fields = []string{strings.TrimSpace(value)}
		}
		for _, field := range fields {
			s.words = append(s.words, word{text: field, from: from})
		}
		r.section[short] = s
	}
	return r, nil
}

func isSeparator(r rune) bool { return r == ',' || unicode.IsSpace(r) }
