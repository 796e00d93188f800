package spec

import (
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// defaultDevices returns the devices that the specification demands in every
// container. /dev/console and /dev/ptmx, a bind mount and a link, are init's.
func defaultDevices() []Device {
	const mode = unix.S_IFCHR | 0o666
	return []Device{
		{Path: "/dev/null", Mode: mode, Major: 1, Minor: 3},
		{Path: "/dev/zero", Mode: mode, Major: 1, Minor: 5},
		{Path: "/dev/full", Mode: mode, Major: 1, Minor: 7},
		{Path: "/dev/random", Mode: mode, Major: 1, Minor: 8},
		{Path: "/dev/urandom", Mode: mode, Major: 1, Minor: 9},
		{Path: "/dev/tty", Mode: mode, Major: 5, Minor: 0},
	}
}

func translateDevices(src *source, plan *Plan) error {
	plan.Devices = defaultDevices()
	index := make(map[string]int)
	for i, device := range plan.Devices {
		index[device.Path] = i
	}
	for i := range src.linux.Devices {
		device, err := deviceOf(at("linux.devices", i), &src.linux.Devices[i])
		if err != nil {
			return err
		}
		if device.Path == "/dev/ptmx" {
			// The specification makes it a link to the container's own
			// pts/ptmx; a node would reach the host's terminals.
			continue
		}
		if earlier, ok := index[device.Path]; ok {
			plan.Devices[earlier] = device
			continue
		}
		index[device.Path] = len(plan.Devices)
		plan.Devices = append(plan.Devices, device)
	}
	return nil
}

func deviceOf(field string, from *specs.LinuxDevice) (Device, error) {
	device := Device{Mode: 0o666}
	if err := absolute(field+".path", from.Path); err != nil {
		return device, err
	}
	device.Path = filepath.Clean(from.Path)
	if device.Path == "/" {
		return device, invalidValue(field+".path", from.Path, "must not be the root")
	}
	if from.FileMode != nil {
		// Engines copy st_mode, with the type in it.
		device.Mode = uint32(*from.FileMode) & 0o7777
	}
	switch from.Type {
	case "c", "u":
		device.Mode |= unix.S_IFCHR
	case "b":
		device.Mode |= unix.S_IFBLK
	case "p":
		device.Mode |= unix.S_IFIFO
	default:
		return device, invalidValue(field+".type", from.Type, "want c, u, b or p")
	}
	if from.Type != "p" {
		// A dev_t of the kernel has 12 bits for the major number, 20 for the
		// minor; mknod(2) would refuse more, or cut it.
		if from.Major < 0 || from.Major >= 1<<12 {
			return device, invalidValue(field+".major", from.Major, "must be from 0 to %d", 1<<12-1)
		}
		if from.Minor < 0 || from.Minor >= 1<<20 {
			return device, invalidValue(field+".minor", from.Minor, "must be from 0 to %d", 1<<20-1)
		}
		device.Major, device.Minor = uint32(from.Major), uint32(from.Minor)
	}
	for _, id := range []struct {
		name string
		from *uint32
		to   *uint32
	}{{".uid", from.UID, &device.UID}, {".gid", from.GID, &device.GID}} {
		if id.from == nil {
			continue
		}
		if *id.from == noID {
			return device, invalidValue(field+id.name, *id.from, "not an id")
		}
		*id.to = *id.from
	}
	return device, nil
}
