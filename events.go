package main

import (
	"encoding/json"
	"fmt"
	"time"

	"eggrun/container"

	"github.com/urfave/cli/v2"
)

var eventsCommand = &cli.Command{
	Name:      "events",
	Usage:     "print what a container uses and when it runs out of memory, one JSON object a line",
	ArgsUsage: "ID",
	Flags: []cli.Flag{
		&cli.DurationFlag{Name: "interval", Value: 5 * time.Second, Usage: "time between two statistics"},
		&cli.BoolFlag{Name: "stats", Usage: "print statistics once, now"},
	},
	Action: func(c *cli.Context) error {
		if _, err := oneID(c); err != nil {
			return err
		}
		interval := c.Duration("interval")
		if interval <= 0 {
			return fmt.Errorf("option --interval %v: want more than 0", interval)
		}
		lines := json.NewEncoder(c.App.Writer)
		emit := func(event *container.Event) error { return lines.Encode(event) }
		return withContainer(c, container.Open, func(ctr *container.Container) error {
			if !c.Bool("stats") {
				return ctr.Events(interval, emit)
			}
			event, err := ctr.Stats()
			if err != nil {
				return err
			}
			return emit(event)
		})
	},
}
