package main

import (
	"io"
	"slices"

	"eggrun/container"

	"github.com/urfave/cli/v2"
)

var restoreCommand = &cli.Command{
	Name:      "restore",
	Usage:     "make a container again from what checkpoint wrote, and wait for it",
	ArgsUsage: "ID",
	Flags: slices.Concat([]cli.Flag{
		&cli.BoolFlag{Name: "detach", Aliases: []string{"d"}, Usage: "do not wait"},
		&cli.BoolFlag{Name: "no-subreaper", Usage: "leave the container's orphans to the host's init"},
		&cli.BoolFlag{Name: "tcp-close", Usage: "restore TCP connections as closed ones"},
		&cli.StringFlag{Name: "lsm-profile", Usage: "AppArmor profile or SELinux label to restore with, as `TYPE:NAME`"},
		&cli.StringFlag{Name: "lsm-mount-context", Usage: "SELinux `LABEL` of the mounts to restore with"},
	}, restoredFlags(), criuFlags),
	Action: func(c *cli.Context) error {
		if _, err := oneID(c); err != nil {
			return err
		}
		criu, err := criuOptions(c)
		if err != nil {
			return err
		}
		options, err := createOptions(c)
		if err != nil {
			return err
		}
		if c.Bool("detach") {
			ctr, err := container.Restore(options, criu)
			if err != nil {
				return err
			}
			return ctr.Close()
		}
		// Even without it for the container's orphans: the restored init is
		// one at first.
		if err := container.BecomeSubreaper(); err != nil {
			return err
		}
		return runForeground(options, false, io.Discard, func() (*container.Container, error) {
			ctr, err := container.Restore(options, criu)
			if err == nil && c.Bool("no-subreaper") {
				err = container.StopSubreaping()
			}
			return ctr, err
		})
	},
}

// restoredFlags are those of create that mean something for restore, and those
// that engines pass alike to both.
func restoredFlags() []cli.Flag {
	return slices.DeleteFunc(slices.Clone(createFlags), func(flag cli.Flag) bool {
		return slices.Contains(flag.Names(), "preserve-fds")
	})
}
