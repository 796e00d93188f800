package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"eggrun/container"

	"github.com/urfave/cli/v2"
)

var psCommand = &cli.Command{
	Name:      "ps",
	Usage:     "show the processes of a container",
	ArgsUsage: "ID [OPTION OF ps(1)]...",
	Flags: []cli.Flag{
		&cli.StringFlag{Name: "format", Aliases: []string{"f"}, Value: "table", Usage: "table, by the host's ps(1), or json, the pids"},
	},
	Action: func(c *cli.Context) error {
		if c.NArg() < 1 {
			return errors.New("no arguments, want a container id and perhaps options of ps")
		}
		format := c.String("format")
		if format != "table" && format != "json" {
			return fmt.Errorf("option --format %q: want table or json", format)
		}
		return withContainer(c, container.Open, func(ctr *container.Container) error {
			pids, err := ctr.Processes()
			if err != nil {
				return err
			}
			if format == "json" {
				return json.NewEncoder(c.App.Writer).Encode(pids)
			}
			output, err := hostPS(c.Args().Tail())
			if err != nil {
				return err
			}
			table, err := rowsOf(output, pids)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(c.App.Writer, table)
			return err
		})
	},
}

// hostPS runs ps(1), by default with -ef. That ps exits with 1 where it finds no
// process is no error.
func hostPS(options []string) (string, error) {
	if len(options) == 0 {
		options = []string{"-ef"}
	}
	output, err := exec.Command("ps", options...).Output()
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("program ps: not on this host; install it or use --format json")
	case errors.As(err, &exit) && len(exit.Stderr) > 0:
		return "", fmt.Errorf("program ps: %s", strings.Join(strings.Fields(string(exit.Stderr)), " "))
	case err != nil && len(output) == 0:
		return "", fmt.Errorf("program ps: %w", err)
	}
	return string(output), nil
}

// rowsOf returns the head of a table and its rows with one of the pids in the
// column PID.
func rowsOf(table string, pids []int) (string, error) {
	head, rest, _ := strings.Cut(table, "\n")
	column := slices.Index(strings.Fields(head), "PID")
	if column < 0 {
		return "", fmt.Errorf("program ps: no column PID in %q; ask ps for it", head)
	}
	var kept strings.Builder
	kept.WriteString(head + "\n")
	for line := range strings.Lines(rest) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) <= column {
			return "", fmt.Errorf("program ps: no column PID in %q", strings.TrimSpace(line))
		}
		pid, err := strconv.Atoi(fields[column])
		if err != nil {
			return "", fmt.Errorf("program ps: column PID of %q: not a number; ask ps for it first", strings.TrimSpace(line))
		}
		if slices.Contains(pids, pid) {
			kept.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	return kept.String(), nil
}
