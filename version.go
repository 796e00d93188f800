package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"eggrun/internal/seccomp"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v2"
)

// version is the release.
const version = "0.1.0"

// printVersion prints what engines parse: runc's lines.
func printVersion(c *cli.Context) {
	fmt.Fprintf(c.App.Writer, "eggrun version %s\n", version)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				fmt.Fprintf(c.App.Writer, "commit: %s\n", setting.Value)
			}
		}
	}
	fmt.Fprintf(c.App.Writer, "spec: %s\ngo: %s\nlibseccomp: %s\n", specs.Version, runtime.Version(), seccomp.LibseccompVersion())
}
