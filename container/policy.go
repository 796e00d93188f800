package container

import (
	"path/filepath"
	"strings"

	"eggrun/egress"
	"eggrun/policy"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Asker is who asks for a container, for the policy.
type Asker struct {
	// Profile is the profile of policy.toml that the caller picks, "" for none.
	Profile string
	// Argv0 is the base name under which this program was called.
	Argv0 string
	// Engine is as in [policy.Caller]; see [Engine].
	Engine string
}

// ResolvePolicy returns what a container of this config.json may reach, by its
// annotations and the policy files of this host; nil for one of which nobody says
// anything.
func ResolvePolicy(config *specs.Spec, asker *Asker) (*policy.Policy, error) {
	files, err := egress.ReadPolicyFiles()
	if err != nil {
		return nil, err
	}
	return policy.Resolve(policy.Request{
		Annotations: config.Annotations,
		Profile:     asker.Profile,
		Caller:      policy.Caller{UID: files.UID, Engine: asker.Engine, Argv0: asker.Argv0},
		Admin:       files.Admin,
		User:        files.User,
	})
}

// Policy returns what a container may reach; nil for one that is not walled in.
func (c *Container) Policy() (*policy.Policy, error) {
	if !c.state.Walled {
		return nil, nil
	}
	var base execBase
	if err := c.dir.LoadExec(&base); err != nil {
		return nil, err
	}
	return &base.Policy, nil
}

// conmonVariable is set by conmon, which podman and CRI-O call us through.
const conmonVariable = "_OCI_SYNCPIPE"

// Engine tells which engine calls create or run, or "", by what engines do alike
// since many versions and a container's annotations can't feign: root and log are
// the global flags, "" where they are not given.
func Engine(id, root, log string, getenv func(string) string) string {
	switch conmon := getenv(conmonVariable) != ""; {
	case strings.HasPrefix(id, "buildah-"):
		return "buildah"
	case conmon && root == "":
		return "podman"
	case conmon:
		return "cri-o"
	case filepath.Base(root) == "moby", root == "" && filepath.Base(log) == "runc-log.json":
		return "docker" // the second is its builder, BuildKit
	case root != "" && filepath.Base(log) == "log.json":
		return "containerd" // its shim logs into the bundle
	}
	return ""
}
