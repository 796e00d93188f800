package main

import (
	"encoding/json"
	"io"

	"eggrun/container"

	"github.com/urfave/cli/v2"
)

var stateCommand = &cli.Command{
	Name:      "state",
	Usage:     "print a container's state as JSON",
	ArgsUsage: "ID",
	Action: func(c *cli.Context) error {
		if _, err := oneID(c); err != nil {
			return err
		}
		return withContainer(c, container.Open, func(ctr *container.Container) error {
			return printJSON(c.App.Writer, ctr.Info())
		})
	},
}

func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
