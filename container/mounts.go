package container

import (
	"errors"
	"io"
	"path/filepath"

	"eggrun/egress"
	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// AddMounts makes further mounts in a container, in their order and by the rules
// of create. On an error those before the one that is named stay.
func (c *Container) AddMounts(mounts []specs.Mount) error {
	return c.changeMounts(syncsocket.Mount, mounts)
}

// RemoveMounts removes what is mounted on the destinations, the last first.
// Their other fields are ignored.
func (c *Container) RemoveMounts(mounts []specs.Mount) error {
	bare := make([]specs.Mount, len(mounts))
	for i := range mounts {
		bare[i] = specs.Mount{Destination: mounts[i].Destination, Type: "tmpfs"}
	}
	return c.changeMounts(syncsocket.Unmount, bare)
}

// changeMounts starts an init process in the container's namespaces that does it
// and ends.
func (c *Container) changeMounts(task syncsocket.Task, mounts []specs.Mount) error {
	switch c.Status() {
	case specs.StateStopped:
		return errors.New("container not running")
	case specs.StateCreating:
		return c.wrongState("running")
	}
	if c.state.HostMount != 0 {
		return errors.New("the container has no mount namespace of its own")
	}
	var base execBase
	if err := c.dir.LoadExec(&base); err != nil {
		return err
	}
	plan := base.Plan
	var err error
	if plan.Mounts, err = spec.TranslateMounts(mounts, c.state.Bundle, plan); err != nil {
		return err
	}
	if task == syncsocket.Mount {
		if err := egress.CheckPolicyMounts(plan.Mounts); err != nil {
			return err
		}
	}
	if c.state.Walled && task == syncsocket.Mount {
		where := egress.Where{RuntimeRoot: filepath.Dir(c.dir.Path()), Rootless: c.state.Cgroup.Rootless}
		if err := egress.CheckMounts(plan, &base.Policy, where); err != nil {
			return err
		}
	}
	if err := linux.RunSealed(c.dir.Path(), ownVariables, nil); err != nil {
		return err
	}
	setUmask()
	child, socket, err := startInit(c.dir.Path(), nil, func(request *linux.SpawnRequest) error {
		return joinNamespaces(request, plan, c.state.Init)
	})
	if err != nil {
		return err
	}
	defer child.Pidfd.Close()
	setup := syncsocket.Setup{ID: c.state.ID, Task: task, Plan: plan}
	if err = socket.Send(syncsocket.Request, &setup); err == nil {
		err = answerMounts(socket, child, plan.Mounts)
	}
	socket.Close() // lets it end
	_, waitErr := unix.Wait4(child.PID, nil, 0, nil)
	return errors.Join(err, waitErr)
}

// answerMounts answers init until it is done.
func answerMounts(socket *syncsocket.Socket, init *linux.Child, mounts []spec.Mount) error {
	for {
		message, err := socket.Receive()
		if errors.Is(err, io.EOF) {
			return errInitEnded
		}
		if err != nil {
			return err
		}
		switch message.Kind {
		case syncsocket.Failed:
			return message.Failure()
		case syncsocket.Trees:
			err = (&sources{init: init}).send(socket, mounts, message)
		case syncsocket.Ready:
			return nil
		default:
			err = unexpected(message)
		}
		if err != nil {
			return err
		}
	}
}
