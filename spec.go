package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"eggrun/spec"

	"github.com/opencontainers/cgroups"
	"github.com/urfave/cli/v2"
)

var specCommand = &cli.Command{
	Name:  "spec",
	Usage: "write a config.json to start from",
	Flags: []cli.Flag{
		&cli.StringFlag{Name: "bundle", Aliases: []string{"b"}, Usage: "write it to `DIR`; default the working directory"},
		&cli.BoolFlag{Name: "rootless", Usage: "for a user without privileges"},
	},
	Action: func(c *cli.Context) error {
		if c.NArg() > 0 {
			return fmt.Errorf("unexpected argument %q", c.Args().First())
		}
		unified := cgroups.IsCgroup2UnifiedMode()
		config := spec.Example(unified)
		if c.Bool("rootless") {
			config = spec.ExampleRootless(unified, uint32(os.Geteuid()), uint32(os.Getegid()))
		}
		path := filepath.Join(c.String("bundle"), "config.json")
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, os.ErrExist) {
			return fmt.Errorf("%q: exists; remove it first", path)
		}
		if err != nil {
			return err
		}
		return errors.Join(printJSON(f, config), f.Close())
	},
}
