// Go's container-aware GOMAXPROCS would keep files of the caller's cgroup open.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command eggrun is an OCI runtime with the command line of runc that can keep a
// container to a list of domains.
//
// One file a verb: flags in, one call into package container, text out.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"eggrun/egress"
	"eggrun/init"
	"eggrun/internal/linux"

	"github.com/urfave/cli/v2"
)

func init() {
	// The thread that runs main is the one that becomes a container's
	// program; only here is it sure to be the process's first, whose
	// namespaces and ids others see in /proc/PID.
	runtime.LockOSThread()
}

func main() {
	// The two that are started for every container are told apart before
	// anything else is made.
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "init":
			initproc.DenyInit(os.Args[2:])
		case "sidecar":
			runtime.UnlockOSThread()
			if err := egress.Sidecar(os.Args[2:]); err != nil {
				os.Exit(1)
			}
			return
		}
	}
	os.Exit(run(os.Args))
}

// memoryLimit is from where on memory is collected after all.
const memoryLimit = 128 << 20

// run is the command line; it returns the exit status.
func run(args []string) int {
	// No verb lives long enough to need a collector, but those that wait: events
	// for its container, start for the word of a program that may say others.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimit)
	// What the caller left open is not the container's, unless it says so.
	if err := linux.CloseOnExecFrom(3); err != nil {
		fmt.Fprintf(os.Stderr, "eggrun: %v\n", err)
		return 1
	}
	cli.VersionPrinter = printVersion
	log := &errorLog{}
	app := newApp(log)
	err := app.Run(flagsFirst(app, args))
	var status exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	log.fatal(err)
	if errors.As(err, new(execFailure)) {
		return exitExecFailed
	}
	return 1
}

// exitStatus is the status of a foreground program, passed on as ours.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

func newApp(log *errorLog) *cli.App {
	usage := func(_ *cli.Context, err error, _ bool) error { return fmt.Errorf("%w; see eggrun --help", err) }
	app := &cli.App{
		Name:        "eggrun",
		Usage:       "run containers that reach only the domains on a list",
		Description: description,
		Version:     version,
		Flags:       globalFlags,
		Before:      func(c *cli.Context) error { return log.open(c) },
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return fmt.Errorf("unknown command %q; see eggrun --help", c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
		OnUsageError:    usage,
		HideHelpCommand: true,
		// For contrib/eggrun.bash, which asks this program itself.
		EnableBashCompletion: true,
		// The value of a variable may have commas in it.
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {}, // run decides
		Commands: []*cli.Command{
			checkCommand, checkpointCommand, createCommand, deleteCommand, egressCommand, eventsCommand, execCommand, featuresCommand, killCommand, listCommand,
			mountsCommand, pauseCommand, policyCommand, psCommand, restoreCommand, resumeCommand, runCommand, specCommand, startCommand, stateCommand, updateCommand,
		},
	}
	complete(app.Commands, "", usage)
	checkpointCommand.OnUsageError = helpOfCheckpoint(usage)
	execCommand.OnUsageError = func(c *cli.Context, err error, sub bool) error { return execFailure{usage(c, err, sub)} }
	return app
}

// complete gives verbs, and the verbs below them, what all have in common.
func complete(commands []*cli.Command, prefix string, usage cli.OnUsageErrorFunc) {
	for _, command := range commands {
		name := prefix + command.Name
		complete(command.Subcommands, name+" ", usage)
		command.OnUsageError = usage
		command.HideHelpCommand = true
		if command.Action == nil {
			command.Action = func(c *cli.Context) error { return needSubcommand(c, command) }
		}
		command.Action = withSubject(name, command.Action)
	}
}

// needSubcommand is the action of a verb that does nothing by itself.
func needSubcommand(c *cli.Context, command *cli.Command) error {
	var names []string
	for _, sub := range command.Subcommands {
		names = append(names, sub.Name)
	}
	want := "want " + strings.Join(names, " or ")
	if c.NArg() > 0 {
		want = fmt.Sprintf("%q: %s", c.Args().First(), want)
	}
	return errors.New(want)
}

// withSubject prefixes a verb's error with the verb and the container id.
func withSubject(name string, action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		err := action(c)
		var status exitStatus
		if err == nil || errors.As(err, &status) {
			return err
		}
		subject := name
		if id := c.Args().First(); id != "" {
			subject += " " + id
		}
		return fmt.Errorf("%s: %w", subject, err)
	}
}
