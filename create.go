package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"eggrun/container"
	"eggrun/internal/linux"

	"github.com/urfave/cli/v2"
)

// createFlags are those of create and run.
var createFlags = []cli.Flag{
	&cli.StringFlag{Name: "bundle", Aliases: []string{"b"}, Usage: "`DIR` of the bundle; default the working directory"},
	&cli.StringFlag{Name: "pid-file", Usage: "write the pid of the container's init to `FILE`"},
	&cli.StringFlag{Name: "console-socket", Usage: "send the master of the container's terminal to this unix `SOCKET`"},
	&cli.StringFlag{Name: "pidfd-socket", Usage: "send a pidfd of the container's init to this unix `SOCKET`"},
	&cli.IntFlag{Name: "preserve-fds", Usage: "pass `N` further descriptors, from 3 on and those of $LISTEN_FDS among them, to the container"},
	profileFlag,
	&cli.BoolFlag{Name: "no-new-keyring", Usage: "keep the caller's session keyring"},
	&cli.BoolFlag{Name: "no-pivot", Usage: "insecure: leave the host's root below the container's, where pivot_root does not work, as on an initramfs"},
}

var profileFlag = &cli.StringFlag{Name: "egress-profile", Usage: "take what the container may reach from the profile `NAME` of policy.toml"}

var createCommand = &cli.Command{
	Name:      "create",
	Usage:     "make a container from a bundle, ready to be started",
	ArgsUsage: "ID",
	Flags:     createFlags,
	Action: func(c *cli.Context) error {
		if _, err := oneID(c); err != nil {
			return err
		}
		options, err := createOptions(c)
		if err != nil {
			return err
		}
		if done, err := asRoot(options.Preserve); done || err != nil {
			return err
		}
		ctr, err := container.Create(options)
		if err != nil {
			return err
		}
		return ctr.Close()
	},
}

// asRoot lets another process do what this one was called for where the caller
// lacks the privileges; see [container.AsRoot].
func asRoot(preserve []int) (done bool, err error) {
	return doneBy(container.AsRoot(nil, preserve))
}

// doneBy passes on the exit status of a process that did it all.
func doneBy(done bool, status int, err error) (bool, error) {
	if err == nil && status != 0 {
		err = exitStatus(status)
	}
	return done, err
}

// asRootOf is asRoot for what is done to a container that exists.
func asRootOf(ctr *container.Container, preserve []int) (done bool, err error) {
	return doneBy(container.AsRoot(ctr.OuterUserNamespace(), preserve))
}

// createOptions takes the flags of create and run.
func createOptions(c *cli.Context) (*container.CreateOptions, error) {
	sockets, names, err := listenFDs(os.Getenv)
	if err != nil {
		return nil, err
	}
	count, preserve, err := preservedFDs(c, sockets)
	if err != nil {
		return nil, err
	}
	o := &container.CreateOptions{
		ID:            c.Args().First(),
		Asker:         asker(c, c.Args().First()),
		PIDFile:       c.String("pid-file"),
		PreserveFDs:   count,
		Preserve:      preserve,
		ListenFDs:     sockets,
		ListenFDNames: names,
		NoNewKeyring:  c.Bool("no-new-keyring"),
		NoPivot:       c.Bool("no-pivot"),
		NotifySocket:  os.Getenv("NOTIFY_SOCKET"),
	}
	if o.RuntimeRoot, err = runtimeRoot(c); err != nil {
		return nil, err
	}
	if o.Bundle, err = filepath.Abs(c.String("bundle")); err != nil {
		return nil, err
	}
	if o.CgroupManager, err = cgroupManager(c); err != nil {
		return nil, err
	}
	if o.Rootless, err = rootless(c); err != nil {
		return nil, err
	}
	if socket := c.String("console-socket"); socket != "" {
		o.Console = func(master *os.File) error { return sendConsole(socket, master) }
	}
	if socket := c.String("pidfd-socket"); socket != "" {
		o.Pidfd = func(pidfd *os.File) error { return sendPidfd(socket, pidfd) }
	}
	return o, nil
}

// preservedFDs returns how many descriptors from 3 on the program keeps, and
// those of them that are open. It comes before anything is opened.
func preservedFDs(c *cli.Context, sockets int) (count int, open []int, err error) {
	count = c.Int("preserve-fds")
	if count < 0 || count > maxPreserve {
		return 0, nil, fmt.Errorf("option --preserve-fds %d: want 0 to %d", count, maxPreserve)
	}
	// podman counts the sockets in --preserve-fds too.
	count = max(count, sockets)
	open, err = linux.FillHoles(3, count)
	// The soft limit that Go raised for itself is not the container's.
	linux.RestoreNOFILE()
	return count, open, err
}

func sendConsole(socket string, master *os.File) error {
	err := errors.Join(linux.SendFile(socket, master.Name(), master), master.Close())
	if err != nil {
		return fmt.Errorf("console socket: %w", err)
	}
	return nil
}

func sendPidfd(socket string, pidfd *os.File) error {
	if err := linux.SendFile(socket, pidfd.Name(), pidfd); err != nil {
		return fmt.Errorf("pidfd socket: %w", err)
	}
	return nil
}
