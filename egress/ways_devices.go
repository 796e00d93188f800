package egress

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Devices of a container with a policy are a list of the allowed: behind a disk
// is the host's file system, behind a serial line a modem, behind /dev/mem and
// the like all there is, and vhost, vsock and RDMA are networks that no network
// namespace confines.
//
// A tun device belongs to the network namespace in which it is opened, and
// without CAP_NET_ADMIN nobody can make an interface of it.

// allowedMinors are character devices with fixed numbers, see
// Documentation/admin-guide/devices.txt of Linux.
var allowedMinors = map[uint32][]uint32{
	1: {3, 5, 7, 8, 9}, // null, zero, full, random, urandom
	5: {0, 1, 2},       // tty, console, ptmx
}

// allowedMisc are devices of major number 10 by their names in /proc/misc.
var allowedMisc = []string{"tun", "fuse", "kvm", "hw_random", "dxg"}

// allowedDrivers are majors by their names in /proc/devices: pseudo terminals,
// graphics, computing, sound, cameras.
var allowedDrivers = []string{"pts", "drm", "accel", "kfd", "dma_heap", "habanalabs", "alsa", "sound", "video4linux", "media"}

// deviceNames are the host's character devices.
type deviceNames struct {
	drivers map[uint32][]string // by major
	misc    map[uint32][]string // by minor, of miscMajor
}

const miscMajor = 10

func readDeviceNames() *deviceNames {
	return &deviceNames{drivers: readNumbers("/proc/devices"), misc: readNumbers("/proc/misc")}
}

// readNumbers reads lines of a number and a name, up to the block devices. A
// file that cannot be read has none: nothing is then allowed by its name.
func readNumbers(file string) map[uint32][]string {
	names := make(map[uint32][]string)
	f, err := os.Open(file)
	if err != nil {
		return names
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := strings.Fields(lines.Text())
		if len(line) == 2 && line[0] == "Block" {
			break
		}
		if len(line) != 2 {
			continue
		}
		if n, err := strconv.ParseUint(line[0], 10, 32); err == nil {
			names[uint32(n)] = append(names[uint32(n)], line[1])
		}
	}
	return names
}

// allow tells whether a device node may be in a container. format is its S_IFMT
// bits.
func (names *deviceNames) allow(format, major, minor uint32) bool {
	switch {
	case format == unix.S_IFIFO:
		return true
	case format != unix.S_IFCHR:
		return false
	case major == miscMajor:
		return slices.ContainsFunc(names.misc[minor], func(name string) bool { return slices.Contains(allowedMisc, name) })
	}
	return slices.Contains(allowedMinors[major], minor) || names.allowAll(major)
}

// allowAll tells whether every device of a major number may be there.
func (names *deviceNames) allowAll(major uint32) bool {
	const firstPTS, lastPTS = 136, 143
	if major >= firstPTS && major <= lastPTS {
		return true
	}
	drivers := names.drivers[major]
	return len(drivers) > 0 && !slices.ContainsFunc(drivers, func(name string) bool {
		return !slices.Contains(allowedDrivers, name) && !strings.HasPrefix(name, "nvidia")
	})
}

// checkDevices refuses nodes of other devices and rules that allow them. One
// finding stands for all: a privileged container has every device of the host.
func checkDevices(g *gaps, plan *spec.Plan) {
	names := readDeviceNames()
	var hostile []string
	for i := range plan.Devices {
		d := &plan.Devices[i]
		if !names.allow(d.Mode&unix.S_IFMT, d.Major, d.Minor) {
			hostile = append(hostile, d.Path)
		}
	}
	if len(hostile) > 0 {
		g.add("run without --privileged and --device", "linux.devices: %s", few(hostile))
	}
	if plan.Resources == nil {
		return
	}
	if hostile := hostileRules(plan.Resources.Devices, names); len(hostile) > 0 {
		g.add("run without --privileged and --device-cgroup-rule", "linux.resources.devices allows %s", few(hostile))
	}
}

// few names the first of some.
func few(list []string) string {
	if len(list) == 1 {
		return fmt.Sprintf("%q", list[0])
	}
	return fmt.Sprintf("%q and %d more", list[0], len(list)-1)
}

// hostileRules returns those rules that let a device be used which may not be
// there. That a node may be made is no use yet. A rule that denies everything
// takes back what came before.
func hostileRules(rules []specs.LinuxDeviceCgroup, names *deviceNames) []string {
	var hostile []string
	for _, rule := range rules {
		all := (rule.Type == "" || rule.Type == "a") && number(rule.Major) < 0 && number(rule.Minor) < 0
		switch {
		case !rule.Allow && all && strings.Contains(rule.Access, "r") && strings.Contains(rule.Access, "w"):
			hostile = nil
		case rule.Allow && (rule.Access == "" || strings.ContainsAny(rule.Access, "rw")) && !names.allowRule(&rule):
			hostile = append(hostile, fmt.Sprintf("%s %s:%s %s", rule.Type, star(rule.Major), star(rule.Minor), rule.Access))
		}
	}
	return hostile
}

func (names *deviceNames) allowRule(rule *specs.LinuxDeviceCgroup) bool {
	major, minor := number(rule.Major), number(rule.Minor)
	if rule.Type != "c" || major < 0 {
		return false
	}
	if minor < 0 {
		return names.allowAll(uint32(major))
	}
	return names.allow(unix.S_IFCHR, uint32(major), uint32(minor))
}

// number returns a device number of a rule, -1 for every one.
func number(n *int64) int64 {
	if n == nil {
		return -1
	}
	return *n
}

func star(n *int64) string {
	if number(n) < 0 {
		return "*"
	}
	return strconv.FormatInt(*n, 10)
}
