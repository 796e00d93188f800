package egress

import (
	"errors"
	"fmt"
	"net"
	"os"

	"eggrun/internal/linux"
	"eggrun/internal/seccomp"
	"eggrun/internal/syncsocket"
	"eggrun/proxy"
)

// Sidecar is the main function of the sidecar process; it returns when the
// container's init has ended. args are those that [Launch] gave it, after its
// name.
func Sidecar(args []string) error {
	if len(args) > 0 && args[0] == cageFlag {
		return cage(args[1:])
	}
	control := syncsocket.New(os.NewFile(controlFD, "sidecar control"))
	defer control.Close()
	serving, err := prepare(control)
	if err != nil {
		return errors.Join(err, control.SendFailure(err))
	}
	// Whichever comes first: the end of the container, or of the proxy, after
	// which clients are to be refused and not kept waiting.
	ended := make(chan error, 2)
	go func() { ended <- serving.proxy.Serve(serving.listener) }()
	go func() {
		_, err := linux.PidfdWait(serving.init, -1)
		ended <- err
	}()
	if err := control.Send(kindServing, nil); err != nil {
		return err
	}
	control.Close()
	return errors.Join(<-ended, serving.proxy.Close())
}

// sidecar is a proxy and what it serves.
type sidecar struct {
	proxy    *proxy.DomainProxy
	listener net.Listener
	init     *os.File
}

func prepare(control *syncsocket.Socket) (*sidecar, error) {
	var request serveRequest
	message, err := control.Expect(kindServe, &request)
	if err != nil {
		return nil, err
	}
	if err := seccomp.Load(request.Filter, true); err != nil {
		return nil, err
	}
	if err := checkCaged(request.UID); err != nil {
		return nil, err
	}
	if len(message.Files) != 3 {
		return nil, fmt.Errorf("%d descriptors, want 3", len(message.Files))
	}
	audit, init, inherited := message.Files[0], message.Files[1], message.Files[2]
	listener, err := net.FileListener(inherited)
	if err != nil {
		return nil, err
	}
	// A copy that is left open would keep clients of a closed proxy waiting.
	if err := inherited.Close(); err != nil {
		return nil, err
	}
	p := proxy.New(proxy.Options{
		Policy:    request.Policy,
		Container: request.ID,
		Audit:     audit,
	})
	return &sidecar{proxy: p, listener: listener, init: init}, nil
}
