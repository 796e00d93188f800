package container

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"eggrun/internal/linux"
	"eggrun/sandbox"
	"eggrun/spec"

	"golang.org/x/sys/unix"
)

// checkNetDevices refuses network devices for a container with a policy: each
// would be a way around the proxy.
func checkNetDevices(devices []spec.NetDevice) error {
	if len(devices) == 0 {
		return nil
	}
	var gaps []string
	for _, d := range devices {
		gaps = append(gaps, fmt.Sprintf("domains: linux.netDevices gives the container %q", d.HostName))
	}
	return &sandbox.EnforcementError{Gaps: gaps, Platform: "drop linux.netDevices or the policy"}
}

// moveNetDevices moves devices of the caller's network namespace into that of a
// process, renames them there, gives them their lasting addresses back, which
// the kernel takes from a device that moves, and brings them up. The kernel
// moves physical devices back when that namespace ends.
func moveNetDevices(pid int, devices []spec.NetDevice) error {
	if len(devices) == 0 {
		return nil
	}
	netNS, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/net")
	if err != nil {
		return err
	}
	defer netNS.Close()
	for _, d := range devices {
		if err := moveNetDevice(netNS, d); err != nil {
			return fmt.Errorf("linux.netDevices %q: %w", d.HostName, err)
		}
	}
	return nil
}

func moveNetDevice(netNS *os.File, d spec.NetDevice) error {
	links, err := linux.Links()
	if err != nil {
		return err
	}
	index, ok := links[d.HostName]
	if !ok {
		return errors.New("no such device on the host")
	}
	// Read before the move: to be down is enough to lose IPv6 addresses.
	addresses, err := linux.LastingAddresses(index)
	if err != nil {
		return err
	}
	var before map[string]uint32
	err = inNetNS(netNS, func() (err error) {
		before, err = linux.Links()
		return err
	})
	if err != nil {
		return err
	}
	// Asked before the move, for the kernel would move it and then not rename
	// it.
	if _, taken := before[d.Name]; taken {
		return fmt.Errorf("name %q: taken by a device of the container", d.Name)
	}
	err = linux.MoveLink(index, netNS, d.Name)
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("move: %w; it may be of a kind that stays in its namespace", err)
	}
	if err != nil {
		return fmt.Errorf("move: %w", err)
	}
	return inNetNS(netNS, func() error { return setUpMoved(before, addresses) })
}

// setUpMoved sets up the device that was not there before.
func setUpMoved(before map[string]uint32, addresses []linux.Address) error {
	now, err := linux.Links()
	if err != nil {
		return err
	}
	for name, index := range now {
		if _, wasThere := before[name]; wasThere {
			continue
		}
		for _, address := range addresses {
			if err := linux.AddAddress(index, address); err != nil {
				return fmt.Errorf("address of %q: %w", name, err)
			}
		}
		if err := linux.SetLinkUp(index); err != nil {
			return fmt.Errorf("bring up %q: %w", name, err)
		}
	}
	return nil
}

// inNetNS calls f in a network namespace.
func inNetNS(netNS *os.File, f func() error) error {
	result := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(int(netNS.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- os.NewSyscallError("join network namespace", err)
			return
		}
		result <- f()
	}()
	return <-result
}
