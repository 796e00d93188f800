// Go's container-aware GOMAXPROCS would keep files of the caller's cgroup open.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command eggrun-criu stands between eggrun and criu(8) for the verbs checkpoint
// and restore: it takes from eggrun, over the socket that is its descriptor 3,
// what was decided, and says it to "criu swrk" in criu's own protocol. It is a
// program of its own because that protocol needs protobuf, which every other
// start of eggrun would pay for.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"
)

// syncFD is where eggrun passes the sync socket.
const syncFD = 3

func main() {
	if err := linux.CloseOnExecFrom(syncFD); err != nil {
		fmt.Fprintf(os.Stderr, "eggrun-criu: %v\n", err)
		os.Exit(1)
	}
	socket := syncsocket.New(os.NewFile(syncFD, "sync socket"))
	var request syncsocket.Criu
	message, err := socket.Expect(syncsocket.Request, &request)
	if err != nil {
		fmt.Fprintf(os.Stderr, "eggrun-criu: %v; it is started by eggrun checkpoint and eggrun restore\n", err)
		os.Exit(1)
	}
	pid, err := serve(socket, &request, message.Files)
	if err == nil {
		err = socket.Send(syncsocket.Ready, syncsocket.CriuStatus{PID: pid})
	} else {
		_ = socket.SendFailure(err) // nobody else is there to be told
	}
	if err != nil {
		os.Exit(1)
	}
}

// serve does what is asked for and returns the pid of a restored container.
func serve(socket *syncsocket.Socket, request *syncsocket.Criu, files []*os.File) (int, error) {
	criu, err := exec.LookPath("criu")
	if err != nil {
		return 0, errors.New("criu: not installed, or not in $PATH; install the package criu")
	}
	s := &session{criu: criu, socket: socket, request: request}
	if request.HasStatus && len(files) > 0 {
		s.status, files = files[0], files[1:]
	}
	s.inherit = files
	if err := s.check(); err != nil || request.Task == syncsocket.CriuCheck {
		return 0, err
	}
	if request.Task == syncsocket.CriuRestore {
		if err := prepareRoot(request); err != nil {
			return 0, err
		}
	}
	err = s.run()
	return s.pid, err
}
