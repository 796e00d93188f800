package initproc

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"eggrun/sandbox"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// wrapperArgs are the arguments of the stand-alone wrapper.
type wrapperArgs struct {
	uid, gid        uint32
	log             string
	deny, denyWrite []string
	home            home
	command         []string
}

// parseArgs parses them. Nothing is guessed: an unknown option, a number that
// is none or a missing value would each weaken the sandbox.
func parseArgs(args []string) (*wrapperArgs, error) {
	separator := slices.Index(args, "--")
	if separator < 0 || separator+1 == len(args) {
		return nil, errors.New("no command; end the options with -- CMD ARGS")
	}
	w := &wrapperArgs{command: args[separator+1:]}
	seen := make(map[string]bool)
	for options := args[:separator]; len(options) > 0; options = options[2:] {
		name := options[0]
		if len(options) == 1 || options[1] == "" {
			return nil, fmt.Errorf("option %s: no value before --", name)
		}
		if err := w.set(name, options[1]); err != nil {
			return nil, err
		}
		seen[name] = true
	}
	for _, name := range []string{"--uid", "--gid"} {
		if !seen[name] {
			return nil, fmt.Errorf("option %s is missing", name)
		}
	}
	if len(w.home.writable) > 0 && w.home.dir == "" {
		return nil, errors.New("option --writable: opens a hole in --home, which is missing")
	}
	return w, nil
}

func (w *wrapperArgs) set(name, value string) error {
	var err error
	switch name {
	case "--uid":
		w.uid, err = parseID(value)
	case "--gid":
		w.gid, err = parseID(value)
	case "--log":
		w.log = value
	case "--home":
		w.home.dir, err = absolute(value)
	case "--deny":
		err = appendAbsolute(&w.deny, value)
	case "--deny-write":
		err = appendAbsolute(&w.denyWrite, value)
	case "--writable":
		err = appendAbsolute(&w.home.writable, value)
	default:
		return fmt.Errorf("unknown option %q", name)
	}
	if err != nil {
		return fmt.Errorf("option %s: %w", name, err)
	}
	return nil
}

func parseID(value string) (uint32, error) {
	id, err := strconv.ParseUint(value, 10, 32)
	if err != nil || id == 1<<32-1 {
		return 0, fmt.Errorf("%q is not an id; use a number from 0 to 4294967294", value)
	}
	return uint32(id), nil
}

func appendAbsolute(list *[]string, value string) error {
	value, err := absolute(value)
	*list = append(*list, value)
	return err
}

// absolute returns value cleaned. What ".." means depends on the links before
// it, so it is not accepted.
func absolute(value string) (string, error) {
	if value[0] != '/' {
		return "", fmt.Errorf("%q is not absolute", value)
	}
	if slices.Contains(strings.Split(value, "/"), "..") {
		return "", fmt.Errorf("%q goes up by \"..\"; name the path itself", value)
	}
	return path.Clean(value), nil
}

// plan returns the wrapper's arguments as the plan that the steps apply.
func (w *wrapperArgs) plan(cwd string, env []string) *spec.Plan {
	return &spec.Plan{
		Config: sandbox.Config{Deny: w.deny, DenyWrite: w.denyWrite, NetworkNeed: sandbox.NetworkFull},
		Process: &spec.Process{
			Args: w.command,
			Env:  env,
			Cwd:  cwd,
			User: specs.User{UID: w.uid, GID: w.gid},
		},
	}
}
