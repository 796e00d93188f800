package container

import (
	"errors"
	"fmt"
	"os"

	"eggrun/internal/state"
	"eggrun/sandbox"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
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
		init, walled := other.state.Init, other.state.Walled
		other.Close()
		if !walled || !init.Alive() {
			continue
		}
		proc := fmt.Sprintf("/proc/%d/ns/", init.PID)
		shared, err := samePlace(path, proc+"pid")
		if shared {
			if network, _ := plan.HasNamespace(specs.NetworkNamespace); network != "" {
				shared, err = samePlace(network, proc+"net")
				shared = !shared
			}
		}
		if errors.Is(err, os.ErrNotExist) && !init.Alive() {
			continue
		}
		if err != nil {
			return fmt.Errorf("pid namespace: %w", err)
		}
		if shared {
			return &sandbox.EnforcementError{
				Gaps:     []string{fmt.Sprintf("domains of container %s: its pid namespace is to be shared with a container on another network", id)},
				Platform: "run without --pid, or with the network of that container",
			}
		}
	}
	return nil
}
