package main

import (
	"fmt"
	"strconv"
	"strings"

	"eggrun/container"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
)

var killCommand = &cli.Command{
	Name:      "kill",
	Usage:     "send a signal, by name or number, to a container's init; default TERM",
	ArgsUsage: "ID [SIGNAL]",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "send it to every process of the container"},
	},
	Action: func(c *cli.Context) error {
		if c.NArg() < 1 || c.NArg() > 2 {
			return fmt.Errorf("%d arguments, want a container id and perhaps a signal", c.NArg())
		}
		signal := unix.SIGTERM
		if c.NArg() == 2 {
			var err error
			if signal, err = parseSignal(c.Args().Get(1)); err != nil {
				return err
			}
		}
		return withContainer(c, container.Open, func(ctr *container.Container) error {
			return ctr.Kill(signal, c.Bool("all"))
		})
	},
}

// parseSignal takes a number, TERM or SIGTERM, in any case.
func parseSignal(s string) (unix.Signal, error) {
	const last = 64 // SIGRTMAX, see signal(7)
	if number, err := strconv.Atoi(s); err == nil {
		// 0 only asks whether there is something to signal, see kill(2).
		if number < 0 || number > last {
			return 0, fmt.Errorf("signal %d: want 0 to %d", number, last)
		}
		return unix.Signal(number), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if signal := unix.SignalNum(name); signal != 0 {
		return signal, nil
	}
	return 0, fmt.Errorf("signal %q: unknown", s)
}
