package initproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"

	"eggrun/egress/inside"
	"eggrun/internal/syncsocket"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// exitFailed is init's exit status when the program was never executed and
// there is nobody to tell the reason; runc's.
const exitFailed = 255

// rootfsTree is the key of the root file system among a container's trees.
const rootfsTree = -1

// containerInit is a container's init, with the sync socket at descriptor
// socketFD. It returns when it has changed the mounts that it was asked to, or
// when the program could not be executed.
func containerInit(socketFD int) int {
	// This process ends in execve; until then it needs no collector.
	debug.SetGCPercent(-1)
	socket := syncsocket.New(os.NewFile(uintptr(socketFD), "sync socket"))
	s, err := newContainerSetup(socket)
	if err == nil {
		err = s.run()
	}
	if err == nil && s.runsProgram() {
		err = s.execute()
	} else if err == nil {
		err = socket.Send(syncsocket.Ready, nil)
	}
	if err == nil {
		return 0
	}
	// After ready nobody listens any more: the user sees it on the
	// container's stderr.
	if sendErr := socket.SendFailure(err); sendErr != nil && !errors.Is(err, io.EOF) {
		fmt.Fprintln(os.Stderr, err)
	}
	return exitFailed
}

func newContainerSetup(socket *syncsocket.Socket) (*setup, error) {
	unix.CloseOnExec(int(socket.File().Fd()))
	// Nobody in a pid namespace that we joined may look into this process.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("set not dumpable", err)
	}
	// Engines signal the process group of init, which must not be theirs.
	if _, err := unix.Setsid(); err != nil {
		return nil, os.NewSyscallError("setsid", err)
	}
	c := &container{socket: socket, trees: make(map[int]*os.File)}
	message, err := socket.Expect(syncsocket.Request, &c.request)
	if err != nil {
		return nil, err
	}
	files := message.Files
	if c.request.Task != syncsocket.Create {
		return &setup{plan: c.request.Plan, container: c}, nil
	}
	if len(files) != 2 && len(files) != 3 {
		return nil, fmt.Errorf("sync message: %d descriptors, want 2 or 3", len(files))
	}
	c.fifo, c.trees[rootfsTree] = files[0], files[1]
	if len(files) == 3 {
		c.place = files[2]
	}
	c.buildWall()
	return &setup{plan: c.request.Plan, container: c}, nil
}

// takeTree returns the tree of a bind mount. Create clones it when asked, along
// with those of the bind mounts that follow. Joined may come in between.
func (c *container) takeTree(index int) (*os.File, error) {
	if tree := c.trees[index]; tree != nil {
		return tree, nil
	}
	if err := c.socket.Send(syncsocket.Trees, index); err != nil {
		return nil, err
	}
	message, err := c.socket.Receive()
	if err == nil && message.Kind == syncsocket.Joined {
		c.joined = message
		message, err = c.socket.Receive()
	}
	if err == nil {
		err = message.Decode(syncsocket.Trees, nil)
	}
	if err == nil && len(message.Files) == 0 {
		err = errors.New("no tree was sent")
	}
	if err != nil {
		return nil, err
	}
	for i, tree := range message.Files {
		c.trees[index+i] = tree
	}
	return c.trees[index], nil
}

// built is the outcome of [inside.Build].
type built struct {
	sockets *inside.Sockets
	err     error
}

// buildWall builds the wall in a network namespace of the container's own. The
// kernel takes milliseconds for its rules, mostly waiting: that is done while the
// mounts are made. Nothing of it depends on them.
func (c *container) buildWall() {
	wall := c.request.Wall
	if wall == nil {
		return
	}
	c.wall = make(chan built, 1)
	go func() {
		sockets, err := inside.Build(wall)
		c.wall <- built{sockets, err}
	}()
}

// setUpNetwork brings up the loopback of a network namespace of the container's
// own, which the kernel leaves down. For a container with a policy it waits for
// the wall and sends the sockets of the way out to create, which builds it itself
// in a namespace that was there before.
func (s *setup) setUpNetwork() error {
	if s.container == nil {
		return nil
	}
	if s.container.wall == nil {
		if path, ok := s.plan.HasNamespace(specs.NetworkNamespace); ok && path == "" && s.plan.Config.ProxyPort == 0 {
			return inside.LoopbackUp()
		}
		return nil
	}
	wall := <-s.container.wall
	if wall.err != nil {
		return wall.err
	}
	sockets := wall.sockets
	// Nobody but the sidecar keeps them: with a copy left, clients of a dead
	// sidecar would hang instead of being refused.
	defer sockets.Close()
	body := syncsocket.Sockets{NoTables: sockets.NoTables}
	var files []*os.File
	for _, socket := range sockets.All {
		body.Names = append(body.Names, socket.Name)
		files = append(files, socket.File)
	}
	return s.container.socket.Send(syncsocket.Listener, body, files...)
}

// parseSyncFD recognises the hidden form of the arguments, "--sync FD".
func parseSyncFD(args []string) (fd int, ok bool) {
	if len(args) != 2 || args[0] != "--sync" {
		return 0, false
	}
	fd, err := strconv.Atoi(args[1])
	return fd, err == nil && fd > 2
}
