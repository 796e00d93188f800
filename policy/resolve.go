package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Request is all that decides what one container may reach.
type Request struct {
	// Annotations are those of config.json. They ask, and never allow: whoever
	// wrote the image or the job may have written them.
	Annotations map[string]string
	// Profile is the profile that the caller picks, from --egress-profile; empty
	// for none.
	Profile string
	// Caller is who makes the container.
	Caller Caller
	// Admin and User are the files of the administrator and of the caller; nil
	// for those that there are not.
	Admin, User *File
}

// Caller is who makes a container, as far as nothing inside it can say so.
type Caller struct {
	// UID is the caller's outside of its user namespace.
	UID uint32
	// Engine is podman, buildah, docker, containerd or cri-o; empty where none is
	// known.
	Engine string
	// Argv0 is the base name under which the runtime was called.
	Argv0 string
}

// argv0Prefix begins the name of a link to the runtime that picks a profile.
const argv0Prefix = "eggrun-"

// Resolve returns what the container may reach, or nil without an error where
// neither a file nor an annotation says anything: such a container is an ordinary
// one.
//
// What nobody asks for is the [default] of the files, and what the annotations
// ask for must lie within each limit that binds them; the error lists what does
// not. See [ParseFile] for how the parts of a file act together. A policy that
// has no wall says so in its NetworkNeed; see [Policy.Wall].
func Resolve(r Request) (*Policy, error) {
	asked, err := parseAnnotations(r.Annotations)
	if err != nil {
		return nil, err
	}
	if asked == nil {
		if r.Admin == nil && r.User == nil && r.Profile == "" {
			return nil, nil
		}
		asked = &request{section: section{}}
	}
	var known []groups
	for _, file := range []*File{r.Admin, r.User} {
		if file != nil {
			known = append(known, file.groups)
		}
	}
	if err := asked.expand(known...); err != nil {
		return nil, err
	}
	c := &choosing{Request: r}
	if err := c.applyFiles(); err != nil {
		return nil, err
	}
	if err := c.applyProfiles(asked.profile); err != nil {
		return nil, err
	}
	if len(asked.section) > 0 {
		if err := c.apply("annotations", asked.section, c.bounds); err != nil {
			return nil, err
		}
	}
	p, err := c.base.build()
	if err != nil {
		return nil, err
	}
	c.finish(p)
	return p, nil
}

// choosing is a policy in the making.
type choosing struct {
	Request
	// base is what holds so far, bounds is what it and all that follows must be
	// within.
	base   section
	bounds []bound
	// profile is the one that was picked last.
	profile string
}

// bound is a policy that binds others.
type bound struct {
	*Policy
	section
	name string
	// general is set for the administrator's limit, which a selectable profile
	// may exceed.
	general bool
}

// apply lays a section over the base, if the result is within bounds.
func (c *choosing) apply(name string, s section, bounds []bound) error {
	next := s.over(c.base)
	for _, b := range bounds {
		next = next.withDenied(b.section)
	}
	p, err := next.build()
	if err != nil {
		return err
	}
	for _, b := range bounds {
		if excess := p.Exceeds(b.Policy); len(excess) > 0 {
			return fmt.Errorf("%s: more than %s allows: %s; ask for less, or have it allowed there", name, b.name, strings.Join(excess, ", "))
		}
	}
	c.base = next
	return nil
}

func (c *choosing) bind(name string, s section, general bool) error {
	p, err := s.build()
	if err != nil {
		return err
	}
	c.bounds = append(c.bounds, bound{p, s, name, general})
	return nil
}

// applyFiles sets what the files give to a container that asks for nothing, and
// what they allow.
func (c *choosing) applyFiles() error {
	for _, file := range []*File{c.Admin, c.User} {
		if file == nil {
			continue
		}
		// What an administrator doesn't allow is not allowed. What a user doesn't
		// speak of is the administrator's to say.
		outermost := file == c.outermost()
		if chosen := file.choose(&c.Request); outermost || chosen.says() {
			if err := c.bind(chosen.limitName, chosen.limit.over(chosen.rules.over(c.base)), outermost); err != nil {
				return err
			}
			if err := c.apply(chosen.name, chosen.rules, c.bounds); err != nil {
				return err
			}
		}
		for _, m := range file.untrusted(&c.Request) {
			if err := c.apply(m.name(), m.allRules(), c.bounds); err != nil {
				return err
			}
			if err := c.bind(m.name(), c.base, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// outermost returns the file that nothing binds: the administrator's, or the
// user's where there is no other.
func (c *choosing) outermost() *File {
	if c.Admin != nil {
		return c.Admin
	}
	return c.User
}

// applyProfiles applies the profiles that the caller and the container picked.
// Each binds what follows.
func (c *choosing) applyProfiles(asked string) error {
	name := c.Profile
	if name == "" && c.Admin != nil {
		name, _ = strings.CutPrefix(c.Caller.Argv0, argv0Prefix)
		if name == c.Caller.Argv0 {
			name = ""
		}
	}
	for _, name := range slices.Compact([]string{name, asked}) {
		if name == "" {
			continue
		}
		p, err := c.findProfile(name)
		if err != nil {
			return err
		}
		bounds := c.bounds
		if p.selectable && p.file == c.outermost() {
			bounds = slices.DeleteFunc(slices.Clone(bounds), func(b bound) bool { return b.general })
		}
		if err := c.apply(p.title(), p.rules, bounds); err != nil {
			return err
		}
		// What follows is bound by the profile in place of what it may exceed.
		c.bounds = bounds
		if err := c.bind(p.title(), c.base, false); err != nil {
			return err
		}
		c.profile = name
	}
	return nil
}

func (c *choosing) findProfile(name string) (*profile, error) {
	var known []string
	for _, file := range []*File{c.Admin, c.User} {
		if file == nil {
			continue
		}
		if p, ok := file.profiles[name]; ok {
			return p, nil
		}
		known = append(known, file.profileNames()...)
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("profile %s: no policy.toml has one; see eggrun(8)", quoted(name))
	}
	return nil, fmt.Errorf("profile %s: unknown; the profiles are %s", quoted(name), strings.Join(known, ", "))
}

// finish sets what is the same for every container of these files.
func (c *choosing) finish(p *Policy) {
	p.Profile = c.profile
	for _, file := range []*File{c.Admin, c.User} {
		if file == nil {
			continue
		}
		p.HostAddresses = append(p.HostAddresses, file.hostAddresses...)
		// These two let pass what is not vetted here, so a user can't say them to
		// an administrator.
		heard := file == c.outermost()
		if heard {
			p.UpstreamProxy, p.UpstreamFake = file.upstreamProxy, file.upstreamFake
		}
		for _, origin := range file.origins {
			if heard || origin.Key != keyUpstreamProxy && origin.Key != keyUpstreamFake {
				p.Origins = append(p.Origins, origin)
			}
		}
	}
	p.UnnamedAddrs = c.unnamed(p)
}

// unnamed returns the addresses that p names and one of its bounds doesn't: a
// limit of 10.0.0.0/8 lets a container ask for the host's own 10.0.0.5, but it
// is for the limit to say that the host may be reached.
func (c *choosing) unnamed(p *Policy) []netip.Addr {
	var out []netip.Addr
	for _, r := range p.Allowlist.addrs {
		addr := r.prefix.Addr()
		if !r.prefix.IsSingleIP() || slices.Contains(out, addr) {
			continue
		}
		if slices.ContainsFunc(c.bounds, func(b bound) bool { return b.Wall() != nil && !b.Allowlist.namesAddr(addr) }) {
			out = append(out, addr)
		}
	}
	return out
}
