package spec

import (
	"fmt"
	"path/filepath"

	"eggrun/policy"
	"eggrun/sandbox"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// source is a config.json with what its optional sections default to, so that
// no step has to ask whether they are there.
type source struct {
	*specs.Spec
	bundle string
	// linux and process are empty where config.json has none.
	linux   *specs.Linux
	process *specs.Process
}

// Translate turns a decoded config.json into a [Plan]. bundle is the bundle's
// absolute path, against which relative paths are resolved. pol is what the
// container may reach, nil for no policy: the container then gets exactly the
// network of its network namespace ([sandbox.NetworkFull]), as with any other
// runtime.
//
// The error is a [*FieldError] about the first field that is invalid or that
// this runtime doesn't apply. The plan shares memory with config, which must
// not be changed afterwards.
func Translate(config *specs.Spec, bundle string, pol *policy.Policy) (*Plan, error) {
	if !filepath.IsAbs(bundle) {
		return nil, fmt.Errorf("bundle %q: must be absolute", bundle)
	}
	if config == nil {
		return nil, invalid("root", "must be set")
	}
	src := &source{Spec: config, bundle: bundle, linux: config.Linux, process: config.Process}
	if src.linux == nil {
		src.linux = &specs.Linux{}
	}
	if src.process == nil {
		src.process = &specs.Process{}
	}
	plan := &Plan{
		OCIVersion:  config.Version,
		Annotations: config.Annotations,
		CgroupsPath: src.linux.CgroupsPath,
		Resources:   src.linux.Resources,
	}
	// Namespaces come before everything that asks for one, mappings before the
	// user that must be mapped.
	for _, step := range []func(*source, *Plan) error{
		checkUnsupported,
		translateAnnotations,
		translateRoot,
		translateNamespaces,
		translateMappings,
		translateTimeOffsets,
		translateHostnames,
		translateMounts,
		translateDevices,
		translatePaths,
		translateSysctl,
		translatePersonality,
		translateMemoryPolicy,
		translateSeccomp,
		translateNetDevices,
		translateIntelRdt,
		translateProcess,
		translateHooks,
	} {
		if err := step(src, plan); err != nil {
			return nil, err
		}
	}
	fillConfig(&plan.Config, plan, pol)
	if err := policyPaths(plan, pol); err != nil {
		return nil, err
	}
	return plan, nil
}

func policyPaths(plan *Plan, pol *policy.Policy) (err error) {
	if pol == nil {
		return nil
	}
	if plan.PolicyDeny, err = containerPaths("policy: deny", pol.Deny); err == nil {
		plan.PolicyDenyWrite, err = containerPaths("policy: deny-write", pol.DenyWrite)
	}
	return err
}

// fillConfig computes what Config shows of the plan.
func fillConfig(config *sandbox.Config, plan *Plan, pol *policy.Policy) {
	plan.SetMounts(plan.Mounts)
	if plan.Process != nil {
		fillLimits(config, plan.Process.Rlimits)
	}
	config.NetworkNeed = sandbox.NetworkFull
	if pol != nil {
		config.NetworkNeed = pol.NetworkNeed
		config.Domains = pol.Domains
	}
}

func translateRoot(src *source, plan *Plan) error {
	if src.Root == nil {
		return invalid("root", "must be set")
	}
	path := src.Root.Path
	if path == "" {
		return invalid("root.path", "must not be empty")
	}
	if err := noNUL("root.path", path); err != nil {
		return err
	}
	plan.Rootfs = resolve(src.bundle, path)
	plan.RootReadonly = src.Root.Readonly
	if name := src.linux.RootfsPropagation; name != "" {
		propagation, ok := propagationOf(name)
		if !ok {
			return invalidValue("linux.rootfsPropagation", name, "want shared, slave, private, unbindable, or one of these with r before it")
		}
		plan.RootPropagation = propagation
	}
	return nil
}

// resolve makes path absolute and clean, against the bundle where relative.
func resolve(bundle, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(bundle, path)
}

// maxUTSName is __NEW_UTS_LEN of the kernel: longer names are EINVAL.
const maxUTSName = 64

func translateHostnames(src *source, plan *Plan) error {
	_, hasUTS := plan.HasNamespace(specs.UTSNamespace)
	for _, name := range []struct{ field, value string }{
		{"hostname", src.Hostname},
		{"domainname", src.Domainname},
	} {
		if name.value == "" {
			continue
		}
		if !hasUTS {
			return invalidValue(name.field, name.value, "needs a uts namespace in linux.namespaces")
		}
		if len(name.value) > maxUTSName {
			return invalidValue(name.field, name.value, "longer than %d bytes", maxUTSName)
		}
		if err := noNUL(name.field, name.value); err != nil {
			return err
		}
	}
	plan.Hostname, plan.Domainname = src.Hostname, src.Domainname
	return nil
}

// translatePaths reads the paths to mask and to make read-only.
func translatePaths(src *source, plan *Plan) (err error) {
	plan.Config.Deny, err = containerPaths("linux.maskedPaths", src.linux.MaskedPaths)
	if err != nil {
		return err
	}
	plan.Config.DenyWrite, err = containerPaths("linux.readonlyPaths", src.linux.ReadonlyPaths)
	return err
}

func containerPaths(field string, paths []string) ([]string, error) {
	var clean []string
	seen := make(map[string]bool, len(paths))
	for i, path := range paths {
		if err := absolute(at(field, i), path); err != nil {
			return nil, err
		}
		path = filepath.Clean(path)
		if path == "/" {
			return nil, invalidValue(at(field, i), path, "must not be the root; see root.readonly")
		}
		if !seen[path] {
			seen[path] = true
			clean = append(clean, path)
		}
	}
	return clean, nil
}

// propagationOf returns the MS_* bits of a propagation option.
func propagationOf(name string) (bits uint64, ok bool) {
	switch name {
	case "private":
		return unix.MS_PRIVATE, true
	case "rprivate":
		return unix.MS_PRIVATE | unix.MS_REC, true
	case "slave":
		return unix.MS_SLAVE, true
	case "rslave":
		return unix.MS_SLAVE | unix.MS_REC, true
	case "shared":
		return unix.MS_SHARED, true
	case "rshared":
		return unix.MS_SHARED | unix.MS_REC, true
	case "unbindable":
		return unix.MS_UNBINDABLE, true
	case "runbindable":
		return unix.MS_UNBINDABLE | unix.MS_REC, true
	}
	return 0, false
}
