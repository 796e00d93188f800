package spec

import (
	"maps"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TimeOffset is how far a clock of a new time namespace is ahead of the host's.
type TimeOffset struct {
	// Clock is monotonic or boottime, the names of time_namespaces(7).
	Clock    string
	Secs     int64
	Nanosecs uint32
}

func translateTimeOffsets(src *source, plan *Plan) error {
	const field = "linux.timeOffsets"
	if len(src.linux.TimeOffsets) == 0 {
		return nil
	}
	// Those of an existing one can't be changed any more.
	if path, ok := plan.HasNamespace(specs.TimeNamespace); !ok || path != "" {
		return invalid(field, "needs a new time namespace in linux.namespaces")
	}
	for _, clock := range slices.Sorted(maps.Keys(src.linux.TimeOffsets)) {
		if clock != "monotonic" && clock != "boottime" {
			return invalidValue(field, clock, "want monotonic or boottime")
		}
		offset := src.linux.TimeOffsets[clock]
		if offset.Nanosecs >= 1e9 {
			return invalidValue(field+"."+clock+".nanosecs", offset.Nanosecs, "must be less than 1000000000")
		}
		plan.TimeOffsets = append(plan.TimeOffsets, TimeOffset{Clock: clock, Secs: offset.Secs, Nanosecs: offset.Nanosecs})
	}
	return nil
}
