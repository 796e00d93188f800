package main

import (
	"errors"
	"fmt"
	"os"

	"eggrun/container"
	"eggrun/internal/state"

	"github.com/urfave/cli/v2"
)

var deleteCommand = &cli.Command{
	Name:      "delete",
	Usage:     "remove a container and everything it has on the host",
	ArgsUsage: "ID",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "kill it first if it runs; no error if it does not exist"},
	},
	Action: func(c *cli.Context) error {
		if _, err := oneID(c); err != nil {
			return err
		}
		force := c.Bool("force")
		err := withContainer(c, container.Lock, func(ctr *container.Container) error { return remove(ctr, force) })
		if force && errors.Is(err, state.ErrNotExist) {
			return nil
		}
		return err
	},
}

// remove deletes a container; a poststop hook that failed is told, not an error.
func remove(ctr *container.Container, force bool) error {
	warnings, err := ctr.Delete(force)
	for _, warning := range warnings {
		fmt.Fprintf(os.Stderr, "eggrun: delete: %s\n", printable(warning.Error()))
	}
	return err
}
