package container

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// startInit starts this program, sealed, as an init process that waits for its
// plan at the other end of the returned socket, which is nil on an error.
// emptyDir is for the seal; place fills in where it is started, with files that
// are closed here.
func startInit(emptyDir string, preserve []int, place func(*linux.SpawnRequest) error) (*linux.Child, *syncsocket.Socket, error) {
	host, inner, err := syncsocket.Pair()
	if err != nil {
		return nil, nil, err
	}
	defer inner.Close()
	request := linux.SpawnRequest{
		Argv:     []string{"eggrun", "init", "--sync", strconv.Itoa(int(inner.File().Fd()))},
		Env:      []string{},
		Preserve: preserve,
		Keep:     []*os.File{inner.File()},
	}
	var child *linux.Child
	err = place(&request)
	if err == nil {
		request.Exe, err = sealedSelf(emptyDir, request.JoinUser != nil)
	}
	if err == nil {
		child, err = linux.SpawnIn(request)
		err = spawnError(err)
	}
	for _, f := range append(request.Join, request.JoinUser, request.Cgroup, request.Exe) {
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

// sealedSelf returns this program to be run as an init process. In a user
// namespace that is there already somebody may be waiting who may trace all that
// is in it.
func sealedSelf(emptyDir string, joinsUser bool) (exe *os.File, err error) {
	if joinsUser {
		exe, err = linux.UnreadableSelf()
	} else {
		exe, err = linux.SealedSelf(emptyDir)
	}
	if err != nil {
		return nil, fmt.Errorf("seal own program: %w", err)
	}
	return exe, nil
}

// setUmask gives this process, and init, which leaves it to the program unless
// process.user.umask says otherwise, the umask that other runtimes do. By the
// caller's, perhaps 077, a program that is not root could not read its
// resolv.conf, nor enter a directory that was made for it.
func setUmask() { unix.Umask(0o022) }

// ownVariables are those of the caller's environment that this program reads.
var ownVariables = []string{
	"HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "DBUS_SESSION_BUS_ADDRESS",
	conmonVariable, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "EGGRUN_CRASH_AT", asRootVariable,
}

// entersOthers tells whether init joins namespaces in which somebody may be
// waiting who can see other processes.
func entersOthers(plan *spec.Plan) bool {
	return slices.ContainsFunc(plan.Namespaces, func(ns spec.Namespace) bool {
		return ns.Path != "" && (ns.Type == specs.PIDNamespace || ns.Type == specs.UserNamespace)
	})
}
