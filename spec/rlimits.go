package spec

import (
	"math"
	"time"

	"eggrun/sandbox"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// rlimitNames has the names of getrlimit(2), which are runc's too.
var rlimitNames = [...]struct {
	name     string
	resource int
}{
	{"RLIMIT_AS", unix.RLIMIT_AS},
	{"RLIMIT_CORE", unix.RLIMIT_CORE},
	{"RLIMIT_CPU", unix.RLIMIT_CPU},
	{"RLIMIT_DATA", unix.RLIMIT_DATA},
	{"RLIMIT_FSIZE", unix.RLIMIT_FSIZE},
	{"RLIMIT_LOCKS", unix.RLIMIT_LOCKS},
	{"RLIMIT_MEMLOCK", unix.RLIMIT_MEMLOCK},
	{"RLIMIT_MSGQUEUE", unix.RLIMIT_MSGQUEUE},
	{"RLIMIT_NICE", unix.RLIMIT_NICE},
	{"RLIMIT_NOFILE", unix.RLIMIT_NOFILE},
	{"RLIMIT_NPROC", unix.RLIMIT_NPROC},
	{"RLIMIT_RSS", unix.RLIMIT_RSS},
	{"RLIMIT_RTPRIO", unix.RLIMIT_RTPRIO},
	{"RLIMIT_RTTIME", unix.RLIMIT_RTTIME},
	{"RLIMIT_SIGPENDING", unix.RLIMIT_SIGPENDING},
	{"RLIMIT_STACK", unix.RLIMIT_STACK},
}

func rlimitOf(name string) (resource int, ok bool) {
	for _, known := range rlimitNames {
		if known.name == name {
			return known.resource, true
		}
	}
	return 0, false
}

func rlimits(field string, from []specs.POSIXRlimit) ([]Rlimit, error) {
	var limits []Rlimit
	for i, limit := range from {
		resource, ok := rlimitOf(limit.Type)
		if !ok {
			return nil, invalidValue(at(field, i)+".type", limit.Type, "no such limit")
		}
		for _, earlier := range limits {
			if earlier.Resource == resource {
				return nil, invalidValue(at(field, i)+".type", limit.Type, "is there twice")
			}
		}
		if limit.Soft > limit.Hard {
			return nil, invalid(at(field, i), "%s: soft limit %d is above hard limit %d", limit.Type, limit.Soft, limit.Hard)
		}
		limits = append(limits, Rlimit{Resource: resource, Soft: limit.Soft, Hard: limit.Hard})
	}
	return limits, nil
}

// fillLimits sets the limits that a sandbox.Config can say: one value, not 0
// (which means the default there) and not infinity.
func fillLimits(config *sandbox.Config, limits []Rlimit) {
	for _, limit := range limits {
		value := limit.Soft
		if value != limit.Hard || value == 0 || value == unix.RLIM_INFINITY {
			continue
		}
		switch limit.Resource {
		case unix.RLIMIT_CPU:
			if value <= uint64(math.MaxInt64/time.Second) {
				config.CPULimit = time.Duration(value) * time.Second
			}
		case unix.RLIMIT_AS:
			config.MemLimit = value
		case unix.RLIMIT_NOFILE:
			if value <= math.MaxUint32 {
				config.MaxFDs = uint32(value)
			}
		}
	}
}
