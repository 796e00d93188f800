package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"eggrun/check"
	"eggrun/container"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
)

var checkCommand = &cli.Command{
	Name:  "check",
	Usage: "find out what this machine lacks, and try the wall in a container that is thrown away",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "json", Usage: "print JSON"},
		&cli.BoolFlag{Name: "quick", Usage: "only look: make no namespace and no container"},
	},
	Action: func(c *cli.Context) error {
		// What it starts of itself is told by an argument.
		switch args := c.Args().Slice(); {
		case len(args) == 2 && args[0] == check.TryArgument:
			return printJSON(c.App.Writer, check.Try(args[1]))
		case len(args) == 2 && args[0] == check.InsideArgument:
			found, err := check.Attempt(args[1])
			if err != nil {
				return err
			}
			return printJSON(c.App.Writer, found)
		case len(args) > 0:
			return fmt.Errorf("unexpected argument %q", args[0])
		}
		options, err := checkOptions(c)
		if err != nil {
			return err
		}
		return runChecks(c, options)
	},
}

func checkOptions(c *cli.Context) (*check.Options, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	manager, err := cgroupManager(c)
	if err != nil {
		return nil, err
	}
	if _, err := rootless(c); err != nil {
		return nil, err
	}
	root, rootErr := runtimeRoot(c)
	return &check.Options{
		Exe:         exe,
		Globals:     []string{"--cgroup-manager", manager, "--rootless", c.String("rootless")},
		RuntimeRoot: root,
		RootErr:     rootErr,
		Systemd:     manager == container.ManagerSystemd,
		Rootless:    isRootless(),
		Quick:       c.Bool("quick"),
	}, nil
}

func runChecks(c *cli.Context, options *check.Options) error {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	results, err := check.Run(ctx, options)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = printJSON(c.App.Writer, results)
	} else {
		err = printChecks(c.App.Writer, results)
	}
	for _, r := range results {
		if r.Status == check.Bad && err == nil {
			err = exitStatus(1)
		}
	}
	return err
}

// printChecks prints a table, with the fix below each line that has one.
func printChecks(out io.Writer, results []check.Result) error {
	var group, name int
	for _, r := range results {
		group, name = max(group, len(r.Group)), max(name, len(r.Name))
	}
	for _, r := range results {
		line := fmt.Sprintf("%-7s  %-*s  %-*s  %s", r.Status, group, r.Group, name, r.Name, r.Cause)
		if r.Fix != "" {
			line += "\n         fix: " + r.Fix
		}
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}
