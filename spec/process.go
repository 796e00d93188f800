package spec

import (
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// noID is (uid_t)-1, which no user has.
const noID = math.MaxUint32

func translateProcess(src *source, plan *Plan) (err error) {
	if src.Process != nil {
		plan.Process, err = processOf(src.Process, plan)
	}
	return err
}

// TranslateProcess translates the process of an exec for the container of a
// plan, by the rules of [Translate]. The plan's namespaces and mappings tell
// which ids there are; it isn't changed.
func TranslateProcess(from *specs.Process, plan *Plan) (*Process, error) {
	if from == nil {
		return nil, errors.New("process: must be set")
	}
	src := &source{Spec: &specs.Spec{}, linux: &specs.Linux{}, process: from}
	process, err := (*Process)(nil), checkUnsupported(src, plan)
	if err == nil {
		process, err = processOf(from, plan)
	}
	var fieldErr *FieldError
	if errors.As(err, &fieldErr) {
		fieldErr.File = "process"
		fieldErr.Field = strings.TrimPrefix(fieldErr.Field, "process.")
	}
	return process, err
}

func processOf(from *specs.Process, plan *Plan) (*Process, error) {
	process := &Process{
		Args: from.Args, Cwd: from.Cwd, Terminal: from.Terminal, User: from.User,
		NoNewPrivileges: from.NoNewPrivileges, ApparmorProfile: from.ApparmorProfile, OOMScoreAdj: from.OOMScoreAdj,
		SelinuxLabel: from.SelinuxLabel,
		Capabilities: normalizeCapabilities(from.Capabilities),
	}
	if err := checkArgs("process.args", from.Args); err != nil {
		return nil, err
	}
	if err := absolute("process.cwd", from.Cwd); err != nil {
		return nil, err
	}
	if err := noNUL("process.selinuxLabel", from.SelinuxLabel); err != nil {
		return nil, err
	}
	if err := checkUser(&from.User, plan); err != nil {
		return nil, err
	}
	if adj := from.OOMScoreAdj; adj != nil && (*adj < -1000 || *adj > 1000) {
		return nil, invalidValue("process.oomScoreAdj", *adj, "must be from -1000 to 1000")
	}
	var err error
	if process.Env, err = environment("process.env", from.Env); err != nil {
		return nil, err
	}
	if process.Console, err = consoleSize(from); err != nil {
		return nil, err
	}
	if process.Rlimits, err = rlimits("process.rlimits", from.Rlimits); err != nil {
		return nil, err
	}
	if process.Scheduler, err = schedulerOf(from.Scheduler); err != nil {
		return nil, err
	}
	if process.IOPriority, err = ioPriorityOf(from.IOPriority); err != nil {
		return nil, err
	}
	if process.ExecCPUAffinity, err = affinityOf(from.ExecCPUAffinity); err != nil {
		return nil, err
	}
	return process, nil
}

func checkArgs(field string, args []string) error {
	if len(args) == 0 {
		return invalid(field, "must not be empty")
	}
	for i, arg := range args {
		if err := noNUL(at(field, i), arg); err != nil {
			return err
		}
	}
	return nil
}

// environment checks the variables and leaves, of those of the same name, only
// the last: C programs would see the first, shells either, and runc keeps the
// last.
func environment(field string, variables []string) ([]string, error) {
	var env []string
	seen := make(map[string]bool, len(variables))
	for i, variable := range slices.Backward(variables) {
		name, _, ok := strings.Cut(variable, "=")
		if !ok {
			return nil, invalidValue(at(field, i), variable, "must be NAME=VALUE")
		}
		if name == "" {
			return nil, invalidValue(at(field, i), variable, "must have a name before =")
		}
		if err := noNUL(at(field, i), variable); err != nil {
			return nil, err
		}
		if !seen[name] {
			seen[name] = true
			env = append(env, variable)
		}
	}
	slices.Reverse(env)
	return env, nil
}

// consoleSize returns nil without a terminal, as the specification demands.
func consoleSize(from *specs.Process) (*specs.Box, error) {
	if !from.Terminal || from.ConsoleSize == nil {
		return nil, nil
	}
	// The fields of struct winsize have 16 bits; see ioctl_tty(2).
	if from.ConsoleSize.Height > math.MaxUint16 || from.ConsoleSize.Width > math.MaxUint16 {
		return nil, invalid("process.consoleSize", "must be at most %d", math.MaxUint16)
	}
	return from.ConsoleSize, nil
}

func checkUser(user *specs.User, plan *Plan) error {
	if err := checkID("process.user.uid", user.UID, "linux.uidMappings", plan.UIDMappings, plan); err != nil {
		return err
	}
	if err := checkID("process.user.gid", user.GID, "linux.gidMappings", plan.GIDMappings, plan); err != nil {
		return err
	}
	for i, gid := range user.AdditionalGids {
		field := at("process.user.additionalGids", i)
		if err := checkID(field, gid, "linux.gidMappings", plan.GIDMappings, plan); err != nil {
			return err
		}
	}
	if user.Umask != nil && *user.Umask > 0o777 {
		return invalidValue("process.user.umask", *user.Umask, "must be at most 511, octal 777")
	}
	return nil
}

// checkID refuses an id that setuid(2) and its like would refuse with EINVAL.
// The mappings of a joined user namespace are the kernel's to judge.
func checkID(field string, id uint32, list string, mappings []specs.LinuxIDMapping, plan *Plan) error {
	if id == noID {
		return invalidValue(field, id, "not an id")
	}
	path, hasUser := plan.HasNamespace(specs.UserNamespace)
	if hasUser && path == "" && !isMapped(mappings, id) {
		return invalidValue(field, id, "not mapped by %s", list)
	}
	return nil
}
