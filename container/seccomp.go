package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// handOverListener gives the listener of init's seccomp filter to the agent,
// then lets init go on.
func handOverListener(socket *syncsocket.Socket, init *linux.Child, message *syncsocket.Message, agent *specs.LinuxSeccomp, state *specs.State) error {
	fd, err := message.ListenerFD()
	if err != nil {
		return err
	}
	listener, err := linux.PidfdGetFD(init.Pidfd, fd)
	if errors.Is(err, unix.EPERM) {
		return errors.New("linux.seccomp: SCMP_ACT_NOTIFY: fetching the listener needs CAP_SYS_PTRACE over the container (EPERM)")
	}
	if err != nil {
		return fmt.Errorf("linux.seccomp: SCMP_ACT_NOTIFY: %w", err)
	}
	defer listener.Close()
	if err := tellAgent(agent, init.PID, state, listener); err != nil {
		return fmt.Errorf("linux.seccomp.listenerPath: %w; start the agent first", err)
	}
	return socket.Send(syncsocket.Proceed, nil)
}

// tellAgent sends the container process state of the specification, which has a
// connection of its own each time.
func tellAgent(profile *specs.LinuxSeccomp, pid int, state *specs.State, listener *os.File) error {
	payload, err := json.Marshal(specs.ContainerProcessState{
		Version:  specs.Version,
		Fds:      []string{specs.SeccompFdName},
		Pid:      pid,
		Metadata: profile.ListenerMetadata,
		State:    *state,
	})
	if err != nil {
		return err
	}
	return linux.SendFile(profile.ListenerPath, string(payload), listener)
}
