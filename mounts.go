package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"eggrun/container"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v2"
)

var mountsCommand = &cli.Command{
	Name:  "mounts",
	Usage: "change the mounts of a container that exists",
	Subcommands: []*cli.Command{
		changeMounts("add", "make the mounts of a file, as create does", (*container.Container).AddMounts),
		changeMounts("remove", "remove the mounts on the destinations in a file", (*container.Container).RemoveMounts),
	},
}

func changeMounts(name, usage string, change func(*container.Container, []specs.Mount) error) *cli.Command {
	return &cli.Command{
		Name:        name,
		Usage:       usage,
		ArgsUsage:   "ID FILE",
		Description: "FILE is JSON: an array like \"mounts\" of config.json.",
		Action: func(c *cli.Context) error {
			if c.NArg() != 2 {
				return fmt.Errorf("%d arguments, want a container id and a file", c.NArg())
			}
			mounts, err := readMounts(c.Args().Get(1))
			if err != nil {
				return err
			}
			return withContainer(c, container.Open, func(ctr *container.Container) error {
				if done, err := asRootOf(ctr, nil); done || err != nil {
					return err
				}
				return change(ctr, mounts)
			})
		},
	}
}

func readMounts(path string) ([]specs.Mount, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var mounts []specs.Mount
	if err := json.Unmarshal(data, &mounts); err != nil {
		return nil, fmt.Errorf("mounts %q: %w; want an array as in config.json", path, err)
	}
	if len(mounts) == 0 {
		return nil, errors.New("mounts: empty, want at least one")
	}
	return mounts, nil
}
