package main

import (
	"eggrun/container"

	"github.com/urfave/cli/v2"
)

var startCommand = &cli.Command{
	Name:      "start",
	Usage:     "run the program of a created container",
	ArgsUsage: "ID",
	Action: func(c *cli.Context) error {
		if _, err := oneID(c); err != nil {
			return err
		}
		return withContainer(c, container.Lock, (*container.Container).Start)
	},
}
