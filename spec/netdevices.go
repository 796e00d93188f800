package spec

import (
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// NetDevice is a network device of the host that moves into the container.
type NetDevice struct {
	// HostName is its name before.
	HostName string
	// Name is its name in the container, or a pattern with one "%d" for which
	// the kernel puts the first number that is free.
	Name string
}

// IsPattern tells whether the kernel chooses the name.
func (d *NetDevice) IsPattern() bool { return strings.Contains(d.Name, "%d") }

func translateNetDevices(src *source, plan *Plan) error {
	const field = "linux.netDevices"
	if len(src.linux.NetDevices) == 0 {
		return nil
	}
	if _, ok := plan.HasNamespace(specs.NetworkNamespace); !ok {
		return invalid(field, "needs a network namespace in linux.namespaces")
	}
	// Sorted, for which of two clashing devices is refused must not change.
	for _, hostName := range slices.Sorted(maps.Keys(src.linux.NetDevices)) {
		device := NetDevice{HostName: hostName, Name: src.linux.NetDevices[hostName].Name}
		if err := checkDeviceName(field, hostName); err != nil {
			return err
		}
		if strings.Contains(hostName, "%") {
			return invalidValue(field, hostName, "must be the name of one device")
		}
		name := field + "." + hostName + ".name"
		if device.Name == "" {
			device.Name = hostName
		} else if err := checkDeviceName(name, device.Name); err != nil {
			return err
		}
		if rest := strings.Replace(device.Name, "%d", "", 1); strings.Contains(rest, "%") {
			return invalidValue(name, device.Name, "must have no %% but one %%d")
		}
		isSame := func(other NetDevice) bool { return other.Name == device.Name && !device.IsPattern() }
		if slices.ContainsFunc(plan.NetDevices, isSame) {
			return invalidValue(name, device.Name, "is there twice")
		}
		plan.NetDevices = append(plan.NetDevices, device)
	}
	return nil
}

// checkDeviceName refuses what the kernel's dev_valid_name does.
func checkDeviceName(field, name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return invalidValue(field, name, "not the name of a network device")
	case len(name) >= unix.IFNAMSIZ:
		return invalidValue(field, name, "longer than %d bytes", unix.IFNAMSIZ-1)
	case strings.ContainsAny(name, "/: \t\n\v\f\r\x00"):
		return invalidValue(field, name, "must have no slash, colon, space or NUL byte")
	}
	return nil
}
