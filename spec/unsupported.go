package spec

// check is one field of config.json that this release doesn't apply: used
// tells whether config.json asks for it.
type check struct {
	field  string
	reason string
	used   func(*source) bool
}

const otherPlatform = "not supported on Linux"

// checks has every such field that can be told by its presence. The rest is
// refused where it is parsed: mount options.
var checks = [...]check{
	{"process.user.username", otherPlatform, func(s *source) bool { return s.process.User.Username != "" }},
	{"process.commandLine", otherPlatform, func(s *source) bool { return s.process.CommandLine != "" }},

	{"vm", notYet, func(s *source) bool { return s.VM != nil }},
	{"windows", otherPlatform, func(s *source) bool { return s.Windows != nil }},
	{"solaris", otherPlatform, func(s *source) bool { return s.Solaris != nil }},
	{"zos", otherPlatform, func(s *source) bool { return s.ZOS != nil }},
	{"freebsd", otherPlatform, func(s *source) bool { return s.FreeBSD != nil }},
}

func checkUnsupported(src *source, _ *Plan) error {
	for _, c := range checks {
		if c.used(src) {
			return unsupported(c.field, c.reason)
		}
	}
	return nil
}
