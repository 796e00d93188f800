package container

import (
	"errors"
	"testing"

	"eggrun/sandbox"
	"eggrun/spec"
)

func TestCheckNetDevices(t *testing.T) {
	t.Parallel()
	if err := checkNetDevices(nil); err != nil {
		t.Errorf("none: %v", err)
	}
	err := checkNetDevices([]spec.NetDevice{{HostName: "eth0", Name: "eth0"}, {HostName: "wwan0", Name: "lo1"}})
	var enforcement *sandbox.EnforcementError
	if !errors.As(err, &enforcement) || len(enforcement.Gaps) != 2 {
		t.Fatalf("got %v, want an EnforcementError with two gaps", err)
	}
	if want := `domains: linux.netDevices gives the container "eth0"`; enforcement.Gaps[0] != want {
		t.Errorf("got %q, want %q", enforcement.Gaps[0], want)
	}
}
