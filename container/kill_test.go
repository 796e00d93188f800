package container

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// forker is a cgroup in which a process forks and ends between two looks.
type forker struct {
	fakeCgroup
	next        int
	cannotPause bool
}

func (f *forker) GetAllPids() ([]int, error) {
	if !f.frozen {
		f.next++
	}
	return []int{1<<30 + f.next}, nil // there is no such process
}

func (f *forker) Freeze(state cgroups.FreezerState) error {
	f.told = append(f.told, string(state))
	if f.cannotPause {
		return errors.New("no freezer")
	}
	f.frozen = state == cgroups.Frozen
	return nil
}

func TestSignalAllForking(t *testing.T) {
	t.Parallel()
	f := &forker{}
	if err := signalAll(f, unix.SIGTERM); err != nil || !slices.Equal(f.told, []string{"FROZEN", "THAWED"}) {
		t.Errorf("error %v, freezer told %q", err, f.told)
	}
	f = &forker{cannotPause: true}
	if err := signalAll(f, unix.SIGTERM); fmt.Sprint(err) != "processes: new ones appear all the time; limit their number" {
		t.Errorf("without a freezer: error %v", err)
	}
	// What does not fork is left alone.
	still := &forker{fakeCgroup: fakeCgroup{frozen: true}}
	if err := signalAll(still, unix.SIGTERM); err != nil || still.told != nil {
		t.Errorf("no forks: error %v, freezer told %q", err, still.told)
	}
}
