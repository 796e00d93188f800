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
		name, err := withoutContainer(annotations, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
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

// maxKubeValue is where podman generate kube cuts off the value of an annotation.
const maxKubeValue = 63

// withoutContainer returns the key in a name KEY/CONTAINER, which podman generate
// kube makes of one container's key. podman kube play gives those of a whole pod
// to each of its containers, and tells none which it is: so they must agree. What
// may have been cut off could be another, shorter name.
func withoutContainer(annotations map[string]string, name string) (string, error) {
	key, _, ok := strings.Cut(name, "/")
	if !ok {
		return name, nil
	}
	if len(annotations[name]) >= maxKubeValue {
		return "", fmt.Errorf("podman generate kube cuts values off after %d bytes; write %s, with the whole value", maxKubeValue, key)
	}
	for other, value := range annotations {
		if otherKey, _, _ := strings.Cut(other, "/"); otherKey == key && value != annotations[name] {
			return "", fmt.Errorf("the pod's containers have different values, and none is told which is its own; write %s", key)
		}
	}
	return key, nil
}

func isSeparator(r rune) bool { return r == ',' || unicode.IsSpace(r) }
