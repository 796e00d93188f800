package main

import (
	"os"

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
		var notifier *container.Notifier
		err := withContainer(c, container.Lock, func(ctr *container.Container) (err error) {
			if notifier, err = ctr.ListenNotify(os.Getenv("NOTIFY_SOCKET")); err != nil {
				return err
			}
			return ctr.Start()
		})
		if err != nil {
			notifier.Close()
			return err
		}
		// Others may lock the container meanwhile.
		return notifier.Relay(0)
	},
}
