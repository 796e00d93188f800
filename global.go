package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"eggrun/container"

	"github.com/moby/sys/userns"
	"github.com/urfave/cli/v2"
)

const description = `A bundle is a directory with a config.json (make one with "eggrun spec") and a
root file system. Engines call eggrun for you: podman --runtime eggrun run …

Give a container a list of domains with the annotation eggrun.domains, and it
reaches those domains and nothing else, with a network of its own or without:

   podman --runtime eggrun run --network none \
       --annotation 'eggrun.domains=api.example.com *.example.org' IMAGE`

var globalFlags = []cli.Flag{
	&cli.StringFlag{Name: "root", Usage: "`DIR` of the containers' state; default /run/eggrun, rootless $XDG_RUNTIME_DIR/eggrun"},
	&cli.StringFlag{Name: "log", Usage: "append errors to `FILE` too"},
	&cli.StringFlag{Name: "log-format", Value: "text", Usage: "format of the log: text or json"},
	&cli.BoolFlag{Name: "debug", Usage: "also log what is called"},
	&cli.BoolFlag{Name: "systemd-cgroup", Usage: "manage cgroups through systemd; cgroupsPath is slice:prefix:name"},
	&cli.StringFlag{Name: "cgroup-manager", Usage: "cgroupfs, systemd or disabled"},
	&cli.StringFlag{Name: "rootless", Value: "auto", Usage: "tolerate missing rights over cgroups: true, false or auto"},
	profileFlag,
}

// runtimeRoot returns the directory of the containers' state.
func runtimeRoot(c *cli.Context) (string, error) {
	if root := c.String("root"); root != "" {
		return filepath.Abs(root)
	}
	// Engines set the variable for real root too, sometimes and to nothing:
	// create and delete would look in different places.
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" && isRootless() {
		return filepath.Join(dir, "eggrun"), nil
	}
	if os.Geteuid() != 0 {
		return "", errors.New("no directory for the containers' state; set XDG_RUNTIME_DIR or give --root")
	}
	return "/run/eggrun", nil
}

// isRootless tells whether this is not the host's root, whatever uid it shows.
func isRootless() bool { return os.Geteuid() != 0 || userns.RunningInUserNS() }

func rootless(c *cli.Context) (bool, error) {
	switch value := c.String("rootless"); value {
	case "true":
		return true, nil
	case "false":
		return false, nil
	case "auto", "":
		return isRootless(), nil
	default:
		return false, fmt.Errorf("option --rootless %q: want true, false or auto", value)
	}
}

func cgroupManager(c *cli.Context) (string, error) {
	manager := c.String("cgroup-manager")
	switch manager {
	case "":
		if c.Bool("systemd-cgroup") {
			return container.ManagerSystemd, nil
		}
		return container.ManagerCgroupfs, nil
	case container.ManagerCgroupfs, container.ManagerSystemd, container.ManagerDisabled:
		return manager, nil
	}
	return "", fmt.Errorf("option --cgroup-manager %q: want cgroupfs, systemd or disabled", manager)
}

// oneID returns the only argument.
func oneID(c *cli.Context) (string, error) {
	if c.NArg() != 1 {
		return "", fmt.Errorf("%d arguments, want one container id", c.NArg())
	}
	return c.Args().First(), nil
}

// withContainer opens the container that the first argument names, locked where
// it is to be changed, for the duration of use.
func withContainer(c *cli.Context, open func(root, id string) (*container.Container, error), use func(*container.Container) error) error {
	root, err := runtimeRoot(c)
	if err != nil {
		return err
	}
	ctr, err := open(root, c.Args().First())
	if err != nil {
		return err
	}
	return errors.Join(use(ctr), ctr.Close())
}
