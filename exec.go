package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"eggrun/container"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v2"
)

// exitExecFailed is exec's status for a failure of its own: any other is the
// program's.
const exitExecFailed = 255

// execFailure is such a failure.
type execFailure struct{ error }

func (f execFailure) Unwrap() error { return f.error }

var execCommand = &cli.Command{
	Name:      "exec",
	Usage:     "run a further program in a running container",
	ArgsUsage: "ID PROGRAM [ARG...] | --process FILE ID",
	Flags: []cli.Flag{
		&cli.StringFlag{Name: "process", Aliases: []string{"p"}, Usage: "take the whole process from `FILE`, JSON as in config.json"},
		&cli.StringFlag{Name: "cwd", Usage: "working `DIR` in the container"},
		&cli.StringSliceFlag{Name: "env", Aliases: []string{"e"}, Usage: "set `NAME=VALUE` in the environment"},
		&cli.BoolFlag{Name: "tty", Aliases: []string{"t"}, Usage: "give it a terminal"},
		&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "run it as `UID[:GID]`"},
		&cli.StringSliceFlag{Name: "additional-gids", Aliases: []string{"g"}, Usage: "add `GID` to its groups"},
		&cli.BoolFlag{Name: "detach", Aliases: []string{"d"}, Usage: "do not wait"},
		&cli.StringFlag{Name: "pid-file", Usage: "write its pid to `FILE`"},
		&cli.StringFlag{Name: "console-socket", Usage: "send the master of its terminal to this unix `SOCKET`"},
		&cli.StringFlag{Name: "pidfd-socket", Usage: "send a pidfd of it to this unix `SOCKET`"},
		&cli.StringFlag{Name: "process-label", Usage: "SELinux `LABEL`"},
		&cli.StringFlag{Name: "apparmor", Usage: "AppArmor `PROFILE`"},
		&cli.BoolFlag{Name: "no-new-privs", Usage: "it and what it starts get no further privileges"},
		&cli.StringSliceFlag{Name: "cap", Aliases: []string{"c"}, Usage: "add the capability `NAME`"},
		&cli.IntFlag{Name: "preserve-fds", Usage: "pass `N` further descriptors, from 3 on, to it"},
		&cli.StringSliceFlag{Name: "cgroup", Usage: "put it into `[CONTROLLER:]PATH` below the container's cgroup"},
		&cli.BoolFlag{Name: "ignore-paused", Usage: "also in a paused container"},
	},
	Action: func(c *cli.Context) error {
		err := runExec(c)
		if err != nil && !errors.As(err, new(exitStatus)) {
			return execFailure{err}
		}
		return err
	},
}

func runExec(c *cli.Context) error {
	if c.NArg() < 1 {
		return errors.New("no container id")
	}
	options, err := execOptions(c)
	if err != nil {
		return err
	}
	detach := c.Bool("detach")
	terminal := &foregroundTerminal{}
	if options.Console == nil && !detach {
		options.Console, options.ConsoleOptional, options.ConsoleSize = terminal.attach, true, terminalSize()
	}
	defer terminal.restore()
	where, err := egressWhere(c)
	if err != nil {
		return err
	}
	return withContainer(c, container.Open, func(ctr *container.Container) error {
		if done, err := asRootOf(ctr, slices.Concat(options.Preserve, options.Reads)); done || err != nil {
			return err
		}
		if detach {
			_, err := ctr.Exec(options)
			return err
		}
		signals, begun := container.NotifyAll(), time.Now()
		process, err := ctr.Exec(options)
		if err != nil {
			return err
		}
		status, err := container.WaitExec(process, signals)
		if err != nil {
			return err
		}
		terminal.finish()
		terminal.restore()
		if ctr.HasPolicy() && !byEngine(c) {
			summarise(c.App.ErrWriter, c.Args().First(), where, begun)
		}
		if status != 0 {
			return exitStatus(status)
		}
		return nil
	})
}

func execOptions(c *cli.Context) (*container.ExecOptions, error) {
	count, preserve, err := preservedFDs(c, 0)
	if err != nil {
		return nil, err
	}
	o := &container.ExecOptions{
		Process:      func(base *specs.Process) (*specs.Process, error) { return execProcess(c, base) },
		PIDFile:      c.String("pid-file"),
		PreserveFDs:  count,
		Preserve:     preserve,
		Reads:        descriptorsOf(c.String("process")),
		IgnorePaused: c.Bool("ignore-paused"),
	}
	if o.SubCgroups, err = subCgroups(c.StringSlice("cgroup")); err != nil {
		return nil, err
	}
	if socket := c.String("console-socket"); socket != "" {
		o.Console = func(master *os.File) error { return sendConsole(socket, master) }
	}
	if socket := c.String("pidfd-socket"); socket != "" {
		o.Pidfd = func(pidfd *os.File) error { return sendPidfd(socket, pidfd) }
	}
	return o, nil
}

// execProcess returns the process of --process, or config.json's with what the
// flags change.
func execProcess(c *cli.Context, base *specs.Process) (*specs.Process, error) {
	if path := c.String("process"); path != "" {
		return readProcess(path)
	}
	if base == nil {
		return nil, errors.New("config.json has no process; use --process")
	}
	if c.NArg() < 2 {
		return nil, errors.New("no program; name it after the id or use --process")
	}
	base.Args = c.Args().Tail()
	base.Terminal = c.Bool("tty")
	base.Env = append(base.Env, c.StringSlice("env")...)
	if cwd := c.String("cwd"); cwd != "" {
		base.Cwd = cwd
	}
	if profile := c.String("apparmor"); profile != "" {
		base.ApparmorProfile = profile
	}
	if label := c.String("process-label"); label != "" {
		base.SelinuxLabel = label
	}
	if c.IsSet("no-new-privs") {
		base.NoNewPrivileges = c.Bool("no-new-privs")
	}
	addCapabilities(base, c.StringSlice("cap"))
	return base, setUser(&base.User, c.String("user"), c.StringSlice("additional-gids"))
}

// descriptorsOf returns the number of the open descriptor that a path stands for,
// as of a shell's <(...), if it does.
func descriptorsOf(path string) []int {
	for _, dir := range []string{"/dev/fd/", "/proc/self/fd/"} {
		number, isFD := strings.CutPrefix(path, dir)
		if fd, err := strconv.Atoi(number); isFD && err == nil && fd > 2 {
			return []int{fd}
		}
	}
	return nil
}

func readProcess(path string) (*specs.Process, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const maxBytes = 16 << 20
	data, err := io.ReadAll(io.LimitReader(f, maxBytes))
	if err != nil {
		return nil, err
	}
	return spec.DecodeProcess(path, data)
}

// addCapabilities leaves the inheritable set alone: what is in it survives a
// program that is not the container's own (CVE-2022-29162).
func addCapabilities(p *specs.Process, names []string) {
	if len(names) == 0 {
		return
	}
	if p.Capabilities == nil {
		p.Capabilities = &specs.LinuxCapabilities{}
	}
	sets := p.Capabilities
	sets.Bounding = append(sets.Bounding, names...)
	sets.Effective = append(sets.Effective, names...)
	sets.Permitted = append(sets.Permitted, names...)
	// Ambient needs inheritable, so these take effect only where config.json
	// has the same names there.
	if sets.Inheritable != nil {
		sets.Ambient = append(sets.Ambient, names...)
	}
}

// setUser takes UID or UID:GID, in decimal and to the last character: a half
// understood one would run the program as somebody else (CVE-2026-30892).
func setUser(u *specs.User, user string, gids []string) error {
	if user != "" {
		uid, gid, hasGID := strings.Cut(user, ":")
		var err error
		if u.UID, err = parseID(uid); err != nil {
			return fmt.Errorf("option --user %q: %w", user, err)
		}
		if hasGID {
			if u.GID, err = parseID(gid); err != nil {
				return fmt.Errorf("option --user %q: %w", user, err)
			}
		}
	}
	for _, gid := range gids {
		id, err := parseID(gid)
		if err != nil {
			return fmt.Errorf("option --additional-gids %q: %w", gid, err)
		}
		u.AdditionalGids = append(u.AdditionalGids, id)
	}
	return nil
}

func parseID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil || id == 1<<32-1 {
		return 0, errors.New("want UID or UID:GID, in numbers")
	}
	return uint32(id), nil
}

// subCgroups takes PATH, for cgroup v2, or CONTROLLER[,CONTROLLER...]:PATH.
func subCgroups(values []string) (map[string]string, error) {
	paths := make(map[string]string)
	for _, value := range values {
		controllers, path, isV1 := strings.Cut(value, ":")
		if !isV1 {
			controllers, path = "", value
		}
		for _, controller := range strings.Split(controllers, ",") {
			_, twice := paths[controller]
			if twice || isV1 && controller == "" || !isV1 && len(values) > 1 {
				return nil, fmt.Errorf("option --cgroup %q: want one PATH, or each CONTROLLER:PATH once", value)
			}
			paths[controller] = path
		}
	}
	return paths, nil
}
