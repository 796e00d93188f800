package main

import (
	"eggrun/container"

	"github.com/urfave/cli/v2"
)

var pauseCommand = &cli.Command{
	Name:      "pause",
	Usage:     "suspend every process of a container",
	ArgsUsage: "ID",
	Action: func(c *cli.Context) error {
		if _, err := oneID(c); err != nil {
			return err
		}
		return withContainer(c, container.Lock, (*container.Container).Pause)
	},
}

var resumeCommand = &cli.Command{
	Name:      "resume",
	Usage:     "let a paused container go on",
	ArgsUsage: "ID",
	Action: func(c *cli.Context) error {
		if _, err := oneID(c); err != nil {
			return err
		}
		return withContainer(c, container.Lock, (*container.Container).Resume)
	},
}
