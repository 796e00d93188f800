package seccomp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// maxArgs is how many arguments a system call has at most.
const maxArgs = 6

// ruleset is a checked profile.
type ruleset struct {
	action  uint32 // SECCOMP_RET_* of a call that no rule matches
	badArch uint32 // SECCOMP_RET_* of an ABI outside abis; 0 kills the thread
	abis    []abi  // besides the machine's own
	rules   []rule
	flags   []specs.LinuxSeccompFlag // nil: not in the profile, unlike empty
	// newest is the highest call number that the author of the rules knew, the
	// same for all ABIs. 0: it is derived from the names in rules.
	newest uint32
}

// rule is the action on one system call.
type rule struct {
	name   string
	action uint32
	args   []specs.LinuxSeccompArg
}

// parse checks everything in profile that does not depend on the machine.
func parse(profile *specs.LinuxSeccomp) (*ruleset, error) {
	const at = "linux.seccomp."
	rs := &ruleset{flags: profile.Flags}
	var err error
	if rs.action, err = parseAction(at+"defaultAction", profile.DefaultAction, profile.DefaultErrnoRet); err != nil {
		return nil, err
	}
	for i, name := range profile.Architectures {
		a := slices.IndexFunc(abis, func(a abi) bool { return a.name == name })
		if a < 0 {
			return nil, fmt.Errorf("%sarchitectures[%d] %q: unknown architecture", at, i, name)
		}
		rs.abis = append(rs.abis, abis[a])
	}
	for i, flag := range profile.Flags {
		if !slices.Contains(flagNames, flag) {
			return nil, fmt.Errorf("%sflags[%d] %q: unknown flag", at, i, flag)
		}
	}
	for i := range profile.Syscalls {
		rules, err := parseSyscall(fmt.Sprintf("%ssyscalls[%d].", at, i), &profile.Syscalls[i])
		if err != nil {
			return nil, err
		}
		rs.rules = append(rs.rules, rules...)
	}
	return rs, nil
}

// parseSyscall returns a rule for each name of sc. at is the field's path.
func parseSyscall(at string, sc *specs.LinuxSyscall) ([]rule, error) {
	action, err := parseAction(at+"action", sc.Action, sc.ErrnoRet)
	if err != nil {
		return nil, err
	}
	for i, arg := range sc.Args {
		if arg.Index >= maxArgs {
			return nil, fmt.Errorf("%sargs[%d].index: %d, but a system call has arguments 0 to %d", at, i, arg.Index, maxArgs-1)
		}
		if !slices.Contains(operators, arg.Op) {
			return nil, fmt.Errorf("%sargs[%d].op %q: unknown operator", at, i, arg.Op)
		}
	}
	rules := make([]rule, 0, len(sc.Names))
	for i, name := range sc.Names {
		// C would end the name at the NUL and find another call.
		if name == "" || strings.ContainsRune(name, 0) {
			return nil, fmt.Errorf("%snames[%d] %q: not the name of a system call", at, i, name)
		}
		rules = append(rules, rule{name: name, action: action, args: sc.Args})
	}
	return rules, nil
}

// parseAction returns the SECCOMP_RET_* value of an action. As in runc, an errno
// beside an action that has none is ignored; engines write such profiles.
func parseAction(at string, name specs.LinuxSeccompAction, errnoRet *uint) (uint32, error) {
	i := slices.IndexFunc(actions, func(a struct {
		name specs.LinuxSeccompAction
		ret  uint32
	}) bool {
		return a.name == name
	})
	if i < 0 {
		return 0, fmt.Errorf("%s %q: unknown action", at, name)
	}
	ret := actions[i].ret
	if ret != unix.SECCOMP_RET_ERRNO && ret != unix.SECCOMP_RET_TRACE {
		return ret, nil
	}
	errno := uint(unix.EPERM)
	if errnoRet != nil {
		errno = *errnoRet
	}
	// A value that is cut off could become 0, and 0 tells the caller that a
	// denied call has succeeded.
	if errno > unix.SECCOMP_RET_DATA {
		return 0, fmt.Errorf("%s %q: errno %d, but the highest is %d", at, name, errno, unix.SECCOMP_RET_DATA)
	}
	return ret | uint32(errno), nil
}

// notifies says whether a call may be handed to an agent, which takes a
// listener to load the filter with.
func (rs *ruleset) notifies() bool {
	return rs.action == unix.SECCOMP_RET_USER_NOTIF ||
		slices.ContainsFunc(rs.rules, func(r rule) bool { return r.action == unix.SECCOMP_RET_USER_NOTIF })
}

// permits says whether a call with this answer is carried out, or left to a
// tracer or an agent that can answer ENOSYS itself.
func permits(ret uint32) bool {
	switch ret & unix.SECCOMP_RET_ACTION_FULL {
	case unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_LOG, unix.SECCOMP_RET_TRACE, unix.SECCOMP_RET_USER_NOTIF:
		return true
	}
	return false
}
