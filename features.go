package main

import (
	"fmt"
	"strconv"

	"eggrun/container"
	"eggrun/internal/seccomp"
	"eggrun/policy"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"
	"github.com/urfave/cli/v2"
)

var featuresCommand = &cli.Command{
	Name:  "features",
	Usage: "print what this runtime supports, as JSON",
	Action: func(c *cli.Context) error {
		if c.NArg() > 0 {
			return fmt.Errorf("unexpected argument %q", c.Args().First())
		}
		yes := true
		var namespaces []string
		for _, kind := range spec.NamespaceTypes() {
			namespaces = append(namespaces, string(kind))
		}
		return printJSON(c.App.Writer, &features.Features{
			OCIVersionMin: "1.0.0",
			OCIVersionMax: specs.Version,
			Hooks:         []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"},
			MountOptions:  spec.MountOptions(),
			Linux: &features.Linux{
				Namespaces:      namespaces,
				Capabilities:    spec.CapabilityNames(),
				Cgroup:          &features.Cgroup{V1: &yes, V2: &yes, Systemd: &yes, SystemdUser: &yes, Rdma: &yes},
				Seccomp:         seccomp.Features(),
				Apparmor:        &features.Apparmor{Enabled: &yes},
				Selinux:         &features.Selinux{Enabled: &yes},
				IntelRdt:        &features.IntelRdt{Enabled: &yes, Schemata: &yes, Monitoring: &yes},
				MemoryPolicy:    &features.MemoryPolicy{Modes: spec.MemoryPolicyModes(), Flags: spec.MemoryPolicyFlags()},
				MountExtensions: &features.MountExtensions{IDMap: &features.IDMap{Enabled: &yes}},
				NetDevices:      &features.NetDevices{Enabled: &yes},
			},
			Annotations: map[string]string{
				"org.eggrun.version":                   version,
				"io.github.seccomp.libseccomp.version": seccomp.LibseccompVersion(),
				// runc's name, which engines look for.
				"org.opencontainers.runc.checkpoint.enabled": strconv.FormatBool(container.HasCriuProgram()),
			},
			PotentiallyUnsafeConfigAnnotations: append(spec.AnnotationKeys(), policy.AnnotationKeys()...),
		})
	},
}
