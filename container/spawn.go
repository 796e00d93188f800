package container

import (
	"fmt"
	"os"
	"strconv"

	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"
)

// startInit starts this program, sealed, as an init process that waits for its
// plan at the other end of the returned socket, which is nil on an error.
// emptyDir is for the seal; place fills in where it is started, with files that
// are closed here.
func startInit(emptyDir string, preserve []int, place func(*linux.SpawnRequest) error) (*linux.Child, *syncsocket.Socket, error) {
	exe, err := linux.SealedSelf(emptyDir)
	if err != nil {
		return nil, nil, fmt.Errorf("seal own program: %w", err)
	}
	defer exe.Close()
	host, inner, err := syncsocket.Pair()
	if err != nil {
		return nil, nil, err
	}
	defer inner.Close()
	request := linux.SpawnRequest{
		Exe:      exe,
		Argv:     []string{"eggrun", "init", "--sync", strconv.Itoa(int(inner.File().Fd()))},
		Env:      []string{},
		Preserve: preserve,
		Keep:     []*os.File{inner.File()},
	}
	var child *linux.Child
	err = place(&request)
	if err == nil {
		child, err = linux.SpawnIn(request)
		err = spawnError(err)
	}
	for _, f := range append(request.Join, request.JoinUser, request.Cgroup) {
		if f != nil {
			f.Close()
		}
	}
	if err != nil {
		host.Close()
		return nil, nil, err
	}
	return child, host, nil
}
