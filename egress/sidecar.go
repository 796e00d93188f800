package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"eggrun/internal/linux"
	"eggrun/policy"
	"eggrun/proxy"

	"golang.org/x/sys/unix"
)

// Sidecar is the main function of the sidecar process; it returns when the
// container's init has ended. Its descriptors are those that [StartSidecar]
// gave it.
func Sidecar() error {
	control := os.NewFile(controlFD, "sidecar control")
	defer control.Close()
	serving, err := prepare(control)
	if err != nil {
		_, writeErr := fmt.Fprintln(control, err)
		return errors.Join(err, writeErr)
	}
	// Whichever comes first: the end of the container, or of the proxy, after
	// which clients are to be refused and not kept waiting.
	ended := make(chan error, 2)
	go func() { ended <- serving.proxy.Serve(serving.listener) }()
	go func() {
		_, err := linux.PidfdWait(os.NewFile(initFD, "init"), -1)
		ended <- err
	}()
	if _, err := control.WriteString("serving\n"); err != nil {
		return err
	}
	control.Close()
	return errors.Join(<-ended, serving.proxy.Close())
}

// sidecar is a proxy and what it serves.
type sidecar struct {
	proxy    *proxy.DomainProxy
	listener net.Listener
}

func prepare(control io.Reader) (*sidecar, error) {
	if err := checkBare(); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(control)
	if err != nil {
		return nil, err
	}
	var config sidecarConfig
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, err
	}
	allowlist, err := policy.ParseAllowlist(config.Domains)
	if err != nil {
		return nil, err
	}
	inherited := os.NewFile(listenerFD, "proxy listener")
	listener, err := net.FileListener(inherited)
	if err != nil {
		return nil, err
	}
	// A copy that is left open would keep clients of a closed proxy waiting.
	if err := inherited.Close(); err != nil {
		return nil, err
	}
	p := proxy.New(proxy.Options{
		Policy:    &policy.Policy{Domains: config.Domains, Allowlist: allowlist},
		Container: config.ID,
		Audit:     os.NewFile(auditFD, "audit log"),
	})
	return &sidecar{proxy: p, listener: listener}, nil
}

// checkBare makes sure that this process can do nothing that its launcher took
// care to take away, and that nobody looks into it.
func checkBare() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	if data[0].Permitted|data[1].Permitted|data[0].Inheritable|data[1].Inheritable != 0 {
		return errors.New("the sidecar has capabilities")
	}
	noNewPrivs, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || noNewPrivs != 1 {
		return errors.New("the sidecar lacks no_new_privs")
	}
	return os.NewSyscallError("set not dumpable", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}
