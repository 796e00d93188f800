package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"

	"eggrun/container"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
)

var checkpointCommand = &cli.Command{
	Name:      "checkpoint",
	Usage:     "write a running container to files, and remove it",
	ArgsUsage: "ID",
	Flags: append([]cli.Flag{
		&cli.StringFlag{Name: "parent-path", Usage: "`DIR` of an earlier pre-dump, relative to the images"},
		&cli.BoolFlag{Name: "leave-running", Usage: "let the container go on, and keep it"},
		&cli.BoolFlag{Name: "tcp-skip-in-flight", Usage: "leave out TCP connections that are being made"},
		&cli.BoolFlag{Name: "link-remap", Usage: "give files that have lost their name one again"},
		&cli.IntFlag{Name: "status-fd", Value: -1, Usage: "write a zero byte to descriptor `N` when lazy pages can be asked for"},
		&cli.StringFlag{Name: "page-server", Usage: "send memory to, or with lazy pages serve it at, `ADDRESS:PORT`"},
		&cli.BoolFlag{Name: "pre-dump", Usage: "write memory only, while the container goes on"},
	}, criuFlags...),
	// See helpOfCheckpoint.
	HideHelp: true,
	Action: func(c *cli.Context) error {
		if _, err := oneID(c); err != nil {
			return err
		}
		options, err := criuOptions(c)
		if err != nil {
			return err
		}
		if options.Status, err = statusFile(c.Int("status-fd")); err != nil {
			return err
		}
		return withContainer(c, container.Lock, func(ctr *container.Container) error {
			if err := ctr.Checkpoint(options); err != nil || options.LeaveRunning || options.PreDump {
				return err
			}
			return remove(ctr, true)
		})
	},
}

// criuFlags are those of checkpoint and restore.
var criuFlags = []cli.Flag{
	&cli.StringFlag{Name: "image-path", Usage: "`DIR` of the images; default checkpoint"},
	&cli.StringFlag{Name: "work-path", Usage: "`DIR` of criu's log; default that of the images"},
	&cli.BoolFlag{Name: "tcp-established", Usage: "allow open TCP connections"},
	&cli.BoolFlag{Name: "ext-unix-sk", Usage: "allow unix sockets that lead out of the container"},
	&cli.BoolFlag{Name: "shell-job", Usage: "allow a terminal that is not the container's own"},
	&cli.BoolFlag{Name: "file-locks", Usage: "allow file locks"},
	&cli.BoolFlag{Name: "lazy-pages", Usage: "fetch memory only when it is needed"},
	&cli.BoolFlag{Name: "auto-dedup", Usage: "drop from earlier images what later ones have"},
	&cli.StringFlag{Name: "manage-cgroups-mode", Usage: "what becomes of cgroups: soft, full, strict or ignore; default soft"},
	&cli.StringSliceFlag{Name: "empty-ns", Usage: "leave a namespace of this `TYPE` empty: network, which is always left so"},
}

// helpOfCheckpoint shows the verb's help where containers can be checkpointed and
// fails with the reason elsewhere: that is how engines ask. Package cli, which
// has no help of its own for this verb, takes the option for an unknown one.
func helpOfCheckpoint(usage cli.OnUsageErrorFunc) cli.OnUsageErrorFunc {
	return func(c *cli.Context, err error, sub bool) error {
		if !errors.Is(err, flag.ErrHelp) {
			return usage(c, err, sub)
		}
		if err = needHostRoot(); err == nil {
			err = container.CheckCriu()
		}
		if err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
		return cli.ShowCommandHelp(c, "checkpoint")
	}
}

func needHostRoot() error {
	if isRootless() {
		return errors.New("needs the host's root, as criu does")
	}
	return nil
}

// criuOptions takes the flags of checkpoint and restore.
func criuOptions(c *cli.Context) (*container.CriuOptions, error) {
	if err := needHostRoot(); err != nil {
		return nil, err
	}
	o := &container.CriuOptions{ImagePath: c.String("image-path"), WorkPath: c.String("work-path"), PreDump: c.Bool("pre-dump")}
	if o.ImagePath == "" {
		o.ImagePath = "checkpoint"
	}
	o.ParentPath = c.String("parent-path")
	o.LeaveRunning = c.Bool("leave-running")
	o.TCPEstablished = c.Bool("tcp-established")
	o.TCPClose = c.Bool("tcp-close")
	o.TCPSkipInFlight = c.Bool("tcp-skip-in-flight")
	o.LinkRemap = c.Bool("link-remap")
	o.ExtUnixSockets = c.Bool("ext-unix-sk")
	o.ShellJob = c.Bool("shell-job")
	o.FileLocks = c.Bool("file-locks")
	o.LazyPages = c.Bool("lazy-pages")
	o.AutoDedup = c.Bool("auto-dedup")
	o.LSMProfile = c.String("lsm-profile")
	o.LSMMountContext = c.String("lsm-mount-context")
	o.CgroupsMode = c.String("manage-cgroups-mode")
	if !slices.Contains([]string{"", "soft", "full", "strict", "ignore"}, o.CgroupsMode) {
		return nil, fmt.Errorf("option --manage-cgroups-mode %q: want soft, full, strict or ignore", o.CgroupsMode)
	}
	for _, kind := range c.StringSlice("empty-ns") {
		if kind != "network" {
			return nil, fmt.Errorf("option --empty-ns %q: want network", kind)
		}
	}
	var err error
	o.PageServer, o.PageServerPort, err = pageServer(c.String("page-server"))
	return o, err
}

func pageServer(value string) (address string, port int32, err error) {
	if value == "" {
		return "", 0, nil
	}
	address, text, err := net.SplitHostPort(value)
	number, parseErr := strconv.ParseUint(text, 10, 16)
	if err != nil || parseErr != nil || address == "" || number == 0 {
		return "", 0, fmt.Errorf("option --page-server %q: want ADDRESS:PORT", value)
	}
	return address, int32(number), nil
}

// statusFile returns an open descriptor of the caller's, nil for -1.
func statusFile(fd int) (*os.File, error) {
	if fd == -1 {
		return nil, nil
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, fmt.Errorf("option --status-fd %d: %w", fd, err)
	}
	if flags&unix.O_ACCMODE == unix.O_RDONLY {
		return nil, fmt.Errorf("option --status-fd %d: cannot be written to", fd)
	}
	return os.NewFile(uintptr(fd), "status descriptor"), nil
}
