package spec

import "github.com/opencontainers/runtime-spec/specs-go"

// IDMap says how a mount shows the owners of what is in it.
type IDMap struct {
	// UIDs and GIDs map the ids that the file system has, called container
	// ids, to those that the host sees in the mount, called host ids. Both
	// are empty where the mappings of the container's user namespace are
	// meant.
	UIDs []specs.LinuxIDMapping `json:"uids,omitempty"`
	GIDs []specs.LinuxIDMapping `json:"gids,omitempty"`
	// Recursive is set for ridmap: all mounts below are mapped too.
	Recursive bool `json:"recursive,omitempty"`
}

// idMapOf returns what mappings and options ask for, nil for nothing. Mappings
// without an option mean idmap, as in runc.
func idMapOf(field string, from *specs.Mount, option *IDMap) (*IDMap, error) {
	idMap := option
	if len(from.UIDMappings) == 0 && len(from.GIDMappings) == 0 {
		return idMap, nil
	}
	if idMap == nil {
		idMap = &IDMap{}
	}
	for _, list := range []struct {
		field    string
		mappings []specs.LinuxIDMapping
	}{
		{field + ".uidMappings", from.UIDMappings},
		{field + ".gidMappings", from.GIDMappings},
	} {
		if len(list.mappings) == 0 {
			return nil, invalid(list.field, "must be set along with the other one")
		}
		if err := checkMappings(list.field, list.mappings); err != nil {
			return nil, err
		}
	}
	idMap.UIDs, idMap.GIDs = from.UIDMappings, from.GIDMappings
	return idMap, nil
}

// checkIDMap refuses what create could not carry out: the trees of bind mounts
// it has in its own hands, other file systems are mounted by init, which may not
// be privileged over them.
func checkIDMap(field string, mount *Mount, plan *Plan) error {
	if mount.IDMap == nil {
		return nil
	}
	if !mount.IsBind() {
		return unsupportedValue(field+".type", mount.Type, "an id-mapped mount is "+notYet+" but for a bind mount")
	}
	if _, ok := plan.HasNamespace(specs.UserNamespace); !ok && mount.IDMap.UIDs == nil {
		return invalid(field+".uidMappings", "must be set for an id-mapped mount of a container without a user namespace")
	}
	return nil
}
