package spec

import (
	"github.com/opencontainers/runtime-spec/specs-go"
)

// NamespaceTypes returns the namespace types that linux.namespaces may name.
func NamespaceTypes() []specs.LinuxNamespaceType {
	return []specs.LinuxNamespaceType{
		specs.CgroupNamespace, specs.IPCNamespace, specs.MountNamespace, specs.NetworkNamespace,
		specs.PIDNamespace, specs.TimeNamespace, specs.UserNamespace, specs.UTSNamespace,
	}
}

func translateNamespaces(src *source, plan *Plan) error {
	const field = "linux.namespaces"
	plan.Namespaces = make([]Namespace, 0, len(src.linux.Namespaces))
	for i, ns := range src.linux.Namespaces {
		if err := checkNamespaceType(at(field, i)+".type", ns.Type); err != nil {
			return err
		}
		if _, ok := plan.HasNamespace(ns.Type); ok {
			return invalidValue(at(field, i)+".type", ns.Type, "is there twice")
		}
		if ns.Path != "" {
			if err := absolute(at(field, i)+".path", ns.Path); err != nil {
				return err
			}
		}
		plan.Namespaces = append(plan.Namespaces, Namespace{Type: ns.Type, Path: ns.Path})
	}
	// Without one the mounts are made on the host, where only root may.
	_, hasUser := plan.HasNamespace(specs.UserNamespace)
	if _, ok := plan.HasNamespace(specs.MountNamespace); !ok && hasUser {
		return invalid(field, "must have a mount namespace along with a user namespace")
	}
	return nil
}

func checkNamespaceType(field string, kind specs.LinuxNamespaceType) error {
	for _, known := range NamespaceTypes() {
		if kind == known {
			return nil
		}
	}
	return invalidValue(field, kind, "no such type")
}

func translateMappings(src *source, plan *Plan) error {
	uids, gids := src.linux.UIDMappings, src.linux.GIDMappings
	path, hasUser := plan.HasNamespace(specs.UserNamespace)
	isNew := hasUser && path == ""
	for _, list := range []struct {
		field    string
		mappings []specs.LinuxIDMapping
	}{
		{"linux.uidMappings", uids},
		{"linux.gidMappings", gids},
	} {
		switch {
		case len(list.mappings) > 0 && !hasUser:
			return invalid(list.field, "needs a user namespace in linux.namespaces")
		case len(list.mappings) == 0 && isNew:
			return invalid(list.field, "must be set for a new user namespace")
		case len(list.mappings) == 0:
			continue
		}
		if err := checkMappings(list.field, list.mappings); err != nil {
			return err
		}
		// Init starts as that.
		if !isMapped(list.mappings, 0) {
			return invalid(list.field, "must map container id 0")
		}
	}
	plan.UIDMappings, plan.GIDMappings = uids, gids
	return nil
}

// maxMappings is UID_GID_MAP_MAX_EXTENTS, since Linux 4.15; see
// user_namespaces(7).
const maxMappings = 340

// checkMappings refuses what the kernel refuses with EINVAL when the map is
// written.
func checkMappings(field string, mappings []specs.LinuxIDMapping) error {
	if len(mappings) > maxMappings {
		return invalid(field, "has %d entries, Linux takes %d", len(mappings), maxMappings)
	}
	for i, m := range mappings {
		if m.Size == 0 {
			return invalid(at(field, i)+".size", "must not be 0")
		}
		// 4294967295 is no id, but "leave it as it is": it can't be mapped.
		if uint64(m.ContainerID)+uint64(m.Size) > noID || uint64(m.HostID)+uint64(m.Size) > noID {
			return invalid(at(field, i), "reaches beyond the last id, %d", uint32(noID-1))
		}
		for j, other := range mappings[:i] {
			if overlap(m.ContainerID, m.Size, other.ContainerID, other.Size) ||
				overlap(m.HostID, m.Size, other.HostID, other.Size) {
				return invalid(at(field, i), "overlaps with entry %d", j)
			}
		}
	}
	return nil
}

func overlap(a, aSize, b, bSize uint32) bool {
	return uint64(a) < uint64(b)+uint64(bSize) && uint64(b) < uint64(a)+uint64(aSize)
}

// isMapped tells whether a container id has a host id.
func isMapped(mappings []specs.LinuxIDMapping, id uint32) bool {
	for _, m := range mappings {
		if id >= m.ContainerID && id-m.ContainerID < m.Size {
			return true
		}
	}
	return false
}
