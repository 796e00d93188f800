package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"eggrun/container"
	"eggrun/policy"
	"eggrun/spec"

	"github.com/urfave/cli/v2"
)

var policyCommand = &cli.Command{
	Name:        "policy",
	Usage:       "check a policy.toml, or explain what a container may reach",
	ArgsUsage:   "check FILE | explain BUNDLE|ID",
	Subcommands: []*cli.Command{policyCheckCommand, policyExplainCommand},
}

// exitWarnings is the status of a check that found nothing wrong, but something
// that is hardly meant.
const exitWarnings exitStatus = 2

var policyCheckCommand = &cli.Command{
	Name:      "check",
	Usage:     "check a policy.toml: status 1 for an error, 2 for warnings, which are printed",
	ArgsUsage: "FILE",
	Action: func(c *cli.Context) error {
		if c.NArg() != 1 {
			return fmt.Errorf("%d arguments, want one file", c.NArg())
		}
		path := c.Args().First()
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := policy.ParseFile(path, data)
		if err != nil {
			return err
		}
		warnings := file.Warnings()
		for _, warning := range warnings {
			fmt.Fprintln(c.App.Writer, warning)
		}
		if len(warnings) > 0 {
			return exitWarnings
		}
		return nil
	},
}

var policyExplainCommand = &cli.Command{
	Name:      "explain",
	Usage:     "print what a container may reach, or one of a bundle would, and where that is said",
	ArgsUsage: "BUNDLE|ID",
	Flags:     []cli.Flag{profileFlag},
	Action: func(c *cli.Context) error {
		if c.NArg() != 1 {
			return fmt.Errorf("%d arguments, want one bundle or container id", c.NArg())
		}
		subject := c.Args().First()
		if _, err := os.Stat(filepath.Join(subject, "config.json")); err != nil && filepath.Base(subject) == subject {
			return withContainer(c, container.Open, func(ctr *container.Container) error {
				p, err := ctr.Policy()
				if err != nil {
					return err
				}
				return printPolicy(c.App.Writer, p)
			})
		}
		config, err := spec.Load(subject)
		if err != nil {
			return err
		}
		asker := asker(c, "")
		p, err := container.ResolvePolicy(config, &asker)
		if err != nil {
			return err
		}
		return printPolicy(c.App.Writer, p)
	},
}

// profile returns the value of the verb's own flag, or else of the global one,
// which engines can be made to give: docker by runtimeArgs, podman by
// --runtime-flag.
func profile(c *cli.Context) string {
	for _, level := range c.Lineage() {
		if name := level.String(profileFlag.Name); name != "" {
			return name
		}
	}
	return ""
}

// asker takes what the policy may depend on beside the annotations.
func asker(c *cli.Context, id string) container.Asker {
	return container.Asker{
		Profile: profile(c),
		Argv0:   filepath.Base(os.Args[0]),
		Engine:  container.Engine(id, c.String("root"), c.String("log"), os.Getenv),
	}
}

// printPolicy prints each line of a policy and where it comes from.
func printPolicy(out io.Writer, p *policy.Policy) error {
	if p == nil {
		_, err := fmt.Fprintln(out, "not walled in: it reaches what its network namespace reaches")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 1, 2, ' ', 0)
	if p.Profile != "" {
		fmt.Fprintf(w, "profile\t%s\t\n", p.Profile)
	}
	for _, o := range p.Origins {
		// It may be a path of whoever wrote config.json.
		value := cmp.Or(printable(o.Value), "-")
		fmt.Fprintf(w, "%s\t%s\t%s\n", o.Key, value, o.From)
	}
	return w.Flush()
}
