package spec

import (
	"slices"
	"strings"
)

// Annotations of crun's that this runtime honours, see crun(1). Engines set the
// first two by themselves: podman for --group-add keep-groups, and for volumes
// with a label.
const (
	KeyKeepGroups     = "run.oci.keep_original_groups"
	KeyMountContext   = "run.oci.mount_context_type"
	KeySubgroup       = "run.oci.systemd.subgroup"
	KeyDelegateCgroup = "run.oci.delegate-cgroup"
)

// KeyCriuConfig names a configuration file of criu(8), as for runc and crun.
const KeyCriuConfig = "org.criu.config"

// AnnotationKeys are the annotations of other runtimes that change what this one
// does, sorted.
func AnnotationKeys() []string {
	return []string{KeyCriuConfig, KeyDelegateCgroup, KeyKeepGroups, KeyMountContext, KeySubgroup}
}

// translateAnnotations takes no note of others: org.systemd.property.*, which
// runc honours, would let whoever writes a pod's annotations have systemd run
// programs on the host.
func translateAnnotations(src *source, plan *Plan) error {
	_, plan.KeepGroups = src.Annotations[KeyKeepGroups]
	if value, ok := src.Annotations[KeyMountContext]; ok {
		if !slices.Contains([]string{"context", "fscontext", "defcontext", "rootcontext"}, value) {
			return invalidValue(annotation(KeyMountContext), value, "want context, fscontext, defcontext or rootcontext")
		}
		plan.MountContext = value
	}
	plan.Subgroup, plan.DelegateCgroup = src.Annotations[KeySubgroup], src.Annotations[KeyDelegateCgroup]
	for _, key := range []string{KeySubgroup, KeyDelegateCgroup} {
		// An empty one is none.
		if name := src.Annotations[key]; name == "." || name == ".." || strings.ContainsAny(name, "/\n\x00") {
			return invalidValue(annotation(key), name, "want the name of one cgroup")
		}
	}
	if plan.DelegateCgroup != "" && plan.Subgroup == "" {
		return invalid(annotation(KeyDelegateCgroup), "needs "+KeySubgroup+", too")
	}
	return nil
}

func annotation(key string) string { return "annotations." + key }
