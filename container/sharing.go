package container

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"eggrun/internal/state"
	"eggrun/sandbox"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// checkSharing refuses a container without a policy that joins the pid namespace
// of one that has: by /proc the other could write to the memory of the programs
// of this one, which are on another network, without any capability. Those in the
// other's network namespace are behind its wall.
func checkSharing(runtimeRoot string, plan *spec.Plan) error {
	path, _ := plan.HasNamespace(specs.PIDNamespace)
	if path == "" {
		return nil
	}
	return eachLiving(runtimeRoot, func(id string, other *state.State) error {
		if !other.Walled {
			return nil
		}
		proc := fmt.Sprintf("/proc/%d/ns/", other.Init.PID)
		shared, err := samePlace(path, proc+"pid")
		if shared {
			if network, _ := plan.HasNamespace(specs.NetworkNamespace); network != "" {
				shared, err = samePlace(network, proc+"net")
				shared = !shared
			}
		}
		if err != nil || !shared {
			return err
		}
		return &sandbox.EnforcementError{
			Gaps:     []string{fmt.Sprintf("domains of container %s: its pid namespace is to be shared with a container on another network", id)},
			Platform: "run without --pid, or with the network of that container",
		}
	})
}

// checkRulers refuses a container with a policy in a network namespace in which
// one without has CAP_NET_ADMIN: it could take the wall down. Who comes later is
// clamped.
func checkRulers(runtimeRoot string, plan *spec.Plan) error {
	path, _ := plan.HasNamespace(specs.NetworkNamespace)
	if path == "" {
		return nil
	}
	return eachLiving(runtimeRoot, func(id string, other *state.State) error {
		if other.Walled {
			return nil
		}
		shared, err := samePlace(path, fmt.Sprintf("/proc/%d/ns/net", other.Init.PID))
		if err != nil || !shared {
			return err
		}
		can, err := hasRuler(other)
		if err != nil || !can {
			return err
		}
		return &sandbox.EnforcementError{
			Gaps:     []string{fmt.Sprintf("domains: container %s, without a policy, may change the rules of the network namespace", id)},
			Platform: "give it the policy too, or run it without NET_ADMIN",
		}
	})
}

// hasRuler tells whether a process of a container can have CAP_NET_ADMIN: its init,
// or one that exec has given more than that has.
func hasRuler(s *state.State) (bool, error) {
	pids := []int{s.Init.PID}
	m, err := openCgroup(s)
	if err != nil {
		return false, err
	}
	if m != nil {
		all, err := allPids(m)
		if err != nil {
			return false, err
		}
		pids = append(pids, all...)
	}
	for _, pid := range pids {
		can, err := canHaveNetAdmin(fmt.Sprintf("/proc/%d/status", pid))
		if can || err != nil && !isGone(err) && !errors.Is(err, unix.ESRCH) {
			return can, err
		}
	}
	return false, nil
}

// canHaveNetAdmin reads from a file /proc/PID/status whether the process, or a
// program that it executes, can have CAP_NET_ADMIN.
func canHaveNetAdmin(status string) (bool, error) {
	text, err := os.ReadFile(status)
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(text)) {
		mask, ok := strings.CutPrefix(line, "CapBnd:\t")
		if !ok {
			continue
		}
		bounding, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
		return bounding&(1<<unix.CAP_NET_ADMIN) != 0, err
	}
	return false, fmt.Errorf("%s: no CapBnd", status)
}

// eachLiving calls check with the state of every container whose init lives, until
// an error. One that ends meanwhile is none.
func eachLiving(runtimeRoot string, check func(id string, other *state.State) error) error {
	ids, err := state.List(runtimeRoot)
	if err != nil {
		return err
	}
	for _, id := range ids {
		other, err := Open(runtimeRoot, id)
		if errors.Is(err, state.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		other.Close()
		if !other.state.Init.Alive() {
			continue
		}
		err = check(id, other.state)
		if err != nil && !errors.As(err, new(*sandbox.EnforcementError)) {
			if !other.state.Init.Alive() {
				continue
			}
			return fmt.Errorf("container %s: %w", id, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
