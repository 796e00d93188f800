package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"text/tabwriter"
	"time"

	"eggrun/container"

	"github.com/urfave/cli/v2"
)

var listCommand = &cli.Command{
	Name:  "list",
	Usage: "list the containers",
	Flags: []cli.Flag{
		&cli.StringFlag{Name: "format", Aliases: []string{"f"}, Value: "table", Usage: "table or json"},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "only the ids"},
	},
	Action: func(c *cli.Context) error {
		root, err := runtimeRoot(c)
		if err != nil {
			return err
		}
		if c.IsSet("root") {
			if _, err := os.Stat(root); err != nil {
				return fmt.Errorf("option --root: %w", err)
			}
		}
		infos, err := container.List(root)
		if err != nil {
			return err
		}
		if c.Bool("quiet") {
			for _, info := range infos {
				fmt.Fprintln(c.App.Writer, info.ID)
			}
			return nil
		}
		switch format := c.String("format"); format {
		case "table":
			return printTable(c.App.Writer, infos)
		case "json":
			for _, info := range infos {
				info.Owner = userName(info.OwnerUID)
			}
			return json.NewEncoder(c.App.Writer).Encode(infos) // one line, as scripts expect
		default:
			return fmt.Errorf("option --format %q: want table or json", format)
		}
	},
}

func printTable(out io.Writer, infos []*container.Info) error {
	w := tabwriter.NewWriter(out, 12, 1, 3, ' ', 0)
	fmt.Fprint(w, "ID\tPID\tSTATUS\tBUNDLE\tCREATED\tOWNER\n")
	for _, info := range infos {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", info.ID, info.PID, info.Status, info.Bundle,
			info.Created.Format(time.RFC3339Nano), userName(info.OwnerUID))
	}
	return w.Flush()
}

// userName returns a user's name, "#1000" for one without.
func userName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "#" + id
}
