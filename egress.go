package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"eggrun/container"
	"eggrun/egress"
	"eggrun/policy"

	"github.com/urfave/cli/v2"
)

var egressCommand = &cli.Command{
	Name:      "egress",
	Usage:     "look at what a container with a policy reaches, and change it",
	ArgsUsage: "show|log|learn|reload|top|metrics ID",
	Subcommands: []*cli.Command{
		egressShowCommand, egressLogCommand, egressLearnCommand, egressReloadCommand, egressTopCommand, egressMetricsCommand,
	},
}

var egressShowCommand = &cli.Command{
	Name:      "show",
	Usage:     "print the policy that holds, and which containers share it",
	ArgsUsage: "ID",
	Action: func(c *cli.Context) error {
		if _, err := oneID(c); err != nil {
			return err
		}
		return withContainer(c, container.Open, func(ctr *container.Container) error {
			status, _, err := ctr.EgressStatus()
			if err != nil {
				return err
			}
			fmt.Fprintf(c.App.Writer, "containers: %s\naudit: %s\n", strings.Join(status.Members, " "), status.Container)
			return printPolicy(c.App.Writer, status.Policy)
		})
	},
}

var egressMetricsCommand = &cli.Command{
	Name:      "metrics",
	Usage:     "print the proxy's counters in the text format of Prometheus",
	ArgsUsage: "ID",
	Action: func(c *cli.Context) error {
		if _, err := oneID(c); err != nil {
			return err
		}
		return withContainer(c, container.Open, func(ctr *container.Container) error {
			_, metrics, err := ctr.EgressStatus()
			if err == nil {
				_, err = io.WriteString(c.App.Writer, metrics)
			}
			return err
		})
	},
}

var egressLogCommand = &cli.Command{
	Name:      "log",
	Usage:     "print what was asked for and decided, also of a container that is deleted",
	ArgsUsage: "ID",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "denied", Usage: "only what was refused, or would be if the policy did not only observe"},
		&cli.BoolFlag{Name: "json", Usage: "as it was written, JSON lines"},
	},
	Action: func(c *cli.Context) error {
		return readAudit(c, func(l *egress.AuditLine) error {
			if c.Bool("denied") && !l.IsRefusal() {
				return nil
			}
			line := l.Raw
			if !c.Bool("json") {
				line = printable(auditText(l))
			}
			_, err := fmt.Fprintln(c.App.Writer, line)
			return err
		})
	},
}

// auditText is a line of an audit for people.
func auditText(l *egress.AuditLine) string {
	text := l.Time.Local().Format(time.DateTime) + " "
	user := ""
	if l.UID != nil {
		user = fmt.Sprintf(" uid %d", *l.UID)
	}
	switch {
	case l.Event == "close":
		return text + fmt.Sprintf("end   %s %s, %d bytes up, %d down, %.1f s, %s", l.Proto, l.Target(), l.BytesUp, l.BytesDown, l.Duration/1000, l.CloseReason)
	case l.WouldDeny:
		return text + fmt.Sprintf("pass  %s %s%s, would be refused: %s", l.Proto, l.Target(), user, l.Reason)
	case l.Decision == "deny":
		return text + fmt.Sprintf("deny  %s %s%s: %s", l.Proto, l.Target(), user, l.Reason)
	}
	return text + fmt.Sprintf("allow %s %s%s by %s", l.Proto, l.Target(), user, l.Rule)
}

// readAudit reads the audit of the container that the only argument names.
func readAudit(c *cli.Context, each func(*egress.AuditLine) error) error {
	id, err := oneID(c)
	if err != nil {
		return err
	}
	where, err := egressWhere(c)
	if err != nil {
		return err
	}
	path, err := egress.FindAudit(id, where, c.String("root") == "")
	if err != nil {
		return err
	}
	return egress.ReadAudit(path, each)
}

func egressWhere(c *cli.Context) (where egress.Where, err error) {
	if where.RuntimeRoot, err = runtimeRoot(c); err == nil {
		where.Rootless, err = rootless(c)
	}
	return where, err
}

var egressLearnCommand = &cli.Command{
	Name:      "learn",
	Usage:     "print the annotation that would allow what was asked for; read it before you use it",
	ArgsUsage: "ID",
	Action: func(c *cli.Context) error {
		asked := map[string]bool{}
		err := readAudit(c, func(l *egress.AuditLine) error {
			// What is no entry, a name that no host has, is none that anybody needs.
			if entry := entryFor(l); l.Event == "decision" {
				if _, err := policy.ParseAllowlist([]string{entry}); err == nil {
					asked[entry] = true
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.App.Writer, "eggrun.domains=%s\n", strings.Join(learned(asked), " "))
		return err
	},
}

// entryFor is the entry of a list that allows what a line is about.
func entryFor(l *egress.AuditLine) string {
	if l.Port == 80 || l.Port == 443 {
		return l.Host
	}
	return l.Target()
}

// learned are the entries without those that others say already, sorted.
func learned(asked map[string]bool) []string {
	all := slices.Sorted(maps.Keys(asked))
	var entries []string
	for _, entry := range all {
		// A name was asked for before it was connected to at another port.
		hasPort := slices.ContainsFunc(all, func(other string) bool { return strings.HasPrefix(other, entry+":") })
		if !hasPort {
			entries = append(entries, entry)
		}
	}
	return entries
}

var egressReloadCommand = &cli.Command{
	Name:      "reload",
	Usage:     "read the policy files again, change annotations, and let the result hold at once",
	ArgsUsage: "ID",
	Flags: []cli.Flag{
		&cli.StringSliceFlag{Name: "annotation", Usage: "`KEY=VALUE` in the place of the container's own annotation"},
		profileFlag,
	},
	Action: func(c *cli.Context) error {
		id, err := oneID(c)
		if err != nil {
			return err
		}
		changed := map[string]string{}
		for _, annotation := range c.StringSlice("annotation") {
			key, value, ok := strings.Cut(annotation, "=")
			if !ok {
				return fmt.Errorf("option --annotation %q: want KEY=VALUE", annotation)
			}
			changed[key] = value
		}
		asker := asker(c, id)
		return withContainer(c, container.Lock, func(ctr *container.Container) error {
			p, err := ctr.ReloadEgress(changed, &asker)
			if err != nil {
				return err
			}
			return printPolicy(c.App.Writer, p)
		})
	},
}

var egressTopCommand = &cli.Command{
	Name:      "top",
	Usage:     "print what was reached and refused, the most bytes first",
	ArgsUsage: "ID",
	Action: func(c *cli.Context) error {
		totals := map[string]*total{}
		err := readAudit(c, func(l *egress.AuditLine) error {
			t := totals[l.Target()]
			if t == nil {
				t = &total{target: l.Target()}
				totals[l.Target()] = t
			}
			t.add(l)
			return nil
		})
		if err != nil {
			return err
		}
		return printTop(c.App.Writer, totals)
	},
}

// total is what an audit says of one target.
type total struct {
	target          string
	allowed, denied int
	up, down        int64
}

func (t *total) add(l *egress.AuditLine) {
	switch {
	case l.Event == "close":
		t.up += l.BytesUp
		t.down += l.BytesDown
	case l.Decision == "deny":
		t.denied++
	default:
		t.allowed++
	}
}

func printTop(w io.Writer, totals map[string]*total) error {
	var list []*total
	for _, t := range totals {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *total) int {
		return cmp.Or(cmp.Compare(b.up+b.down, a.up+a.down), cmp.Compare(b.allowed+b.denied, a.allowed+a.denied), cmp.Compare(a.target, b.target))
	})
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TARGET\tALLOWED\tDENIED\tBYTES UP\tBYTES DOWN")
	for _, t := range list {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\n", printable(t.target), t.allowed, t.denied, t.up, t.down)
	}
	return table.Flush()
}

// maxRefusals is how many a summary names.
const maxRefusals = 5

// summarise says on w in one line what a container was refused since a moment,
// so that who runs it in the foreground knows why something in it failed. That
// there is nothing to read is no reason to fail.
func summarise(w io.Writer, id string, where egress.Where, since time.Time) {
	targets, err := egress.Refusals(id, where, since)
	if err != nil || len(targets) == 0 {
		return
	}
	more := ""
	if len(targets) > maxRefusals {
		more = fmt.Sprintf(" and %d more", len(targets)-maxRefusals)
		targets = targets[:maxRefusals]
	}
	fmt.Fprintf(w, "eggrun: refused: %s%s; see eggrun egress log %s, and add what is needed to eggrun.domains\n", printable(strings.Join(targets, ", ")), more, id)
}

// byEngine tells whether an engine calls run or exec, which takes all that is
// written for the container's own output: BuildKit has a log, CRI-O a process
// from a file.
func byEngine(c *cli.Context) bool { return c.String("log") != "" || c.String("process") != "" }

// printable is text from a container without anything that a terminal obeys.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
