package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// File is a policy.toml, parsed and checked. It is immutable.
type File struct {
	path          string
	rules         section // [default]
	limit         section // nil where there is no [limit]
	groups        groups
	profiles      map[string]*profile
	matches       []*match
	trusted       []string // annotations
	hostAddresses []netip.Prefix
	upstreamProxy string
	upstreamFake  bool
	origins       []Origin // of what is no section
}

// ParseFile parses and checks a policy.toml. path is only for messages, which
// begin with it and the line.
//
//	trusted-annotations = ["ci.example.com/trust"]
//	host-addresses = ["203.0.113.7"]
//	upstream-proxy = "http://proxy.example.com:3128"
//	upstream-fake = false
//
//	[groups]
//	go = ["proxy.golang.org", "sum.golang.org"]
//
//	[default]
//	domains = ["@go"]
//
//	[limit]
//	domains = ["@go", "*.example.com:443"]
//
//	[profile.ci]
//	selectable = true
//	domains = ["*"]
//
//	[[match]]
//	uid = [1000]
//	profile = "ci"
//
//	[match.limit]
//	domains = ["*:*"]
//
// [default] is what a container has that asks for nothing; without it that is no
// network at all. [limit] is the most that any may ask for; what it doesn't speak
// of is limited to [default], and so is everything without it. Both, and each
// profile and match, have the keys of the annotations without their prefix, and
// peer-names and sockets. What a profile or a match doesn't speak of is taken
// from [default]. Paths that are denied add up.
//
// A profile is picked by eggrun.profile, --egress-profile or the name eggrun-NAME
// of the runtime. It must be within the limit, unless it is selectable. What the
// container asks for beside it must be within it.
//
// A match has conditions (uid, engine, argv0, image, annotation), of which all
// must hold. The first one that fits takes the place of [default] and [limit],
// its own limit being [match.limit] or the section itself. image and annotation
// are what a container says of itself: such a match only takes away from what
// the rest gives, unless the annotation is one of trusted-annotations. Then it is
// like the others.
//
// In a user's file [default] is laid over the administrator's and must be within
// his limit, the limits of both bind, no profile is selectable beyond the
// administrator's limit, and upstream-proxy and upstream-fake are not heard where
// the administrator has a file.
//
// The whole file is checked: a key that is not known, or twice there, a value
// without a meaning, an unknown or cyclic group is an error even where nothing
// would use it.
func ParseFile(path string, data []byte) (*File, error) {
	if err := checkTOML(path, data); err != nil {
		return nil, err
	}
	r := &fileReader{file: &File{path: path, groups: groups{}, profiles: map[string]*profile{}}}
	r.set = r.setTop
	r.parser.Reset(data)
	for r.parser.NextExpression() {
		if err := r.expression(r.parser.Expression()); err != nil {
			return nil, fmt.Errorf("%s: %w", r.from(r.line), err)
		}
	}
	if err := r.parser.Error(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := r.file.check(); err != nil {
		return nil, err
	}
	return r.file, nil
}

// profile is a section that is picked by name.
type profile struct {
	file       *File
	name       string
	line       int
	selectable bool
	rules      section
}

func (p *profile) title() string {
	return fmt.Sprintf("profile %s of %s:%d", p.name, p.file.path, p.line)
}

// match is a section for certain containers.
type match struct {
	file *File
	line int
	// Conditions: each that is there must hold, by one of its values.
	uids                                 []uint32
	engines, images, argv0s, annotations []string
	profile                              string
	rules                                section
	limit                                section // nil for none
}

func (m *match) name() string { return fmt.Sprintf("[[match]] of %s:%d", m.file.path, m.line) }

// allRules returns the section's rules over those of its profile.
func (m *match) allRules() section {
	if m.profile == "" {
		return m.rules
	}
	return m.rules.over(m.file.profiles[m.profile].rules)
}

// imageAnnotations are those in which engines say what image a container is of.
var imageAnnotations = []string{"io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName"}

// holds reports whether a container fits the conditions, of its annotations only
// those that are believed taken into account.
func (m *match) holds(r *Request, believed func(annotation string) bool) bool {
	c := &r.Caller
	return (len(m.uids) == 0 || slices.Contains(m.uids, c.UID)) &&
		(len(m.engines) == 0 || slices.Contains(m.engines, c.Engine)) &&
		(len(m.argv0s) == 0 || slices.Contains(m.argv0s, c.Argv0)) &&
		(len(m.images) == 0 || slices.ContainsFunc(imageAnnotations, func(key string) bool {
			image, ok := r.Annotations[key]
			return ok && believed(key) && slices.ContainsFunc(m.images, func(pattern string) bool { return fits(pattern, image) })
		})) &&
		(len(m.annotations) == 0 || slices.ContainsFunc(m.annotations, func(condition string) bool {
			key, pattern, hasValue := strings.Cut(condition, "=")
			value, ok := r.Annotations[key]
			return ok && believed(key) && (!hasValue || fits(pattern, value))
		}))
}

// fits compares a value with a pattern that may end in a star.
func fits(pattern, value string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(value, prefix)
	}
	return pattern == value
}

// trusts reports whether the file believes an annotation.
func (f *File) trusts(annotation string) bool { return slices.Contains(f.trusted, annotation) }

// chosen is what a file has for one container.
type chosen struct {
	name, limitName string
	rules, limit    section
}

func (c *chosen) says() bool { return c.rules != nil || c.limit != nil }

// choose returns what the first section has that fits the container by nothing
// that the container says itself, or [default] and [limit].
func (f *File) choose(r *Request) chosen {
	for _, m := range f.matches {
		if m.holds(r, f.trusts) {
			c := chosen{m.name(), m.name(), m.allRules().over(f.rules), m.limit}
			if m.limit != nil {
				c.limitName = "the limit of " + c.limitName
			}
			return c
		}
	}
	c := chosen{"[default] of " + f.path, "[default] of " + f.path, f.rules, f.limit}
	if f.limit != nil {
		c.limitName = "[limit] of " + f.path
	}
	return c
}

// untrusted returns the sections that fit the container only by what it says
// itself. They may only take away.
func (f *File) untrusted(r *Request) []*match {
	var out []*match
	for _, m := range f.matches {
		if m.holds(r, func(string) bool { return true }) && !m.holds(r, f.trusts) {
			out = append(out, m)
		}
	}
	return out
}

func (f *File) profileNames() []string { return slices.Sorted(maps.Keys(f.profiles)) }

// check expands the groups and builds everything that the file can be asked for.
func (f *File) check() error {
	for _, name := range slices.Sorted(maps.Keys(f.groups)) {
		words, err := expand([]word{{text: "@" + name, from: f.groups[name].from}}, []groups{f.groups})
		if err == nil {
			err = setDomains(&Policy{}, words)
		}
		if err != nil {
			return err
		}
	}
	written := []section{f.rules, f.limit}
	for _, name := range f.profileNames() {
		written = append(written, f.profiles[name].rules)
	}
	for _, m := range f.matches {
		written = append(written, m.rules, m.limit)
	}
	for _, s := range written {
		if err := s.expand(f.groups); err != nil {
			return err
		}
	}
	return f.checkTogether()
}

// checkTogether builds the sections as they are laid over each other.
func (f *File) checkTogether() error {
	all := []section{f.rules, f.limit.over(f.rules)}
	for _, name := range f.profileNames() {
		all = append(all, f.profiles[name].rules.over(f.rules))
	}
	for _, m := range f.matches {
		if err := m.check(); err != nil {
			return fmt.Errorf("%s:%d: %w", f.path, m.line, err)
		}
		rules := m.allRules().over(f.rules)
		all = append(all, rules, m.limit.over(rules))
	}
	for _, s := range all {
		if _, err := s.build(); err != nil {
			return err
		}
	}
	return nil
}

func (m *match) check() error {
	if len(m.uids)+len(m.engines)+len(m.argv0s)+len(m.images)+len(m.annotations) == 0 {
		return errors.New("[[match]] without a condition; write it as [default]")
	}
	if _, ok := m.file.profiles[m.profile]; m.profile != "" && !ok {
		return fmt.Errorf("profile %s: unknown", quoted(m.profile))
	}
	return nil
}

// engines are the names that [Caller] knows.
var engines = []string{"buildah", "containerd", "cri-o", "docker", "podman"}

// parseUpstream checks the URL of a proxy.
func parseUpstream(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" || u.Port() == "" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("value %s; write http://host:port", strconv.Quote(u.Redacted()))
	}
	return s, nil
}
