package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"

	"eggrun/internal/syncsocket"

	"github.com/checkpoint-restore/go-criu/v8/rpc"
	"golang.org/x/sys/unix"
)

// session is one job of eggrun.
type session struct {
	criu    string // its path
	socket  *syncsocket.Socket
	request *syncsocket.Criu
	// status is nil where nobody waits at its other end.
	status  *os.File
	inherit []*os.File
	images  *os.File
	work    *os.File // nil for images
	// pid is the restored first process, once criu has told it.
	pid int
}

// oldest is the version of criu from which on everything is there that this
// program asks for: 3.16, with which LSM profiles can be changed.
const oldest = 31600

// check asks criu for its version and whether it can do what is wanted. What it
// writes to its standard error is the only thing it says where it does not even
// come that far.
func (s *session) check() error {
	response, err := s.ask(&rpc.CriuReq{Type: rpc.CriuReqType_VERSION.Enum()})
	if err != nil {
		return err
	}
	if version := response.GetVersion(); version.GetMajorNumber()*10000+version.GetMinorNumber()*100 < oldest {
		return fmt.Errorf("criu %d.%d: too old; install 3.16 or newer", version.GetMajorNumber(), version.GetMinorNumber())
	}
	if s.request.Task == syncsocket.CriuCheck {
		return checkKernel(s.criu)
	}
	wantsTracking, wantsLazy := s.request.Task == syncsocket.CriuPreDump, s.request.Options.LazyPages
	if !wantsTracking && !wantsLazy {
		return nil
	}
	response, err = s.ask(&rpc.CriuReq{
		Type:     rpc.CriuReqType_FEATURE_CHECK.Enum(),
		Features: &rpc.CriuFeatures{MemTrack: &wantsTracking, LazyPages: &wantsLazy},
	})
	switch features := response.GetFeatures(); {
	case err != nil:
		return err
	case wantsTracking && !features.GetMemTrack():
		return errors.New("option --pre-dump: this kernel does not track changed memory")
	case wantsLazy && !features.GetLazyPages():
		return errors.New("option --lazy-pages: this kernel has no userfaultfd that can be used")
	}
	return nil
}

// checkKernel runs "criu check": to the same question in its protocol criu says
// no without a reason.
func checkKernel(criu string) error {
	said, err := exec.Command(criu, "check").CombinedOutput()
	if err == nil {
		return nil
	}
	if reason := firstError(bytes.NewReader(said)); reason != "" {
		return fmt.Errorf("criu check: %s", reason)
	}
	return fmt.Errorf("criu check: %w", err)
}

// ask makes a request that criu answers at once.
func (s *session) ask(request *rpc.CriuReq) (*rpc.CriuResp, error) {
	var said bytes.Buffer
	cmd := exec.Command(s.criu)
	cmd.Stdout, cmd.Stderr = &said, &said
	conn, err := start(cmd)
	if err != nil {
		return nil, err
	}
	response, err := exchange(conn, request)
	conn.Close()
	_ = cmd.Wait() // the response says how it went
	if err == nil && response.GetSuccess() {
		return response, nil
	}
	if reason := firstError(&said); reason != "" {
		return nil, fmt.Errorf("criu: %s", reason)
	}
	if err != nil {
		return nil, fmt.Errorf("criu: %w", err)
	}
	return nil, fmt.Errorf("criu: %s: no; see criu check", request.GetType())
}

// start starts "criu swrk", whose end of the returned connection is the first
// of the command's further files.
func start(cmd *exec.Cmd) (*net.UnixConn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "criu"), os.NewFile(uintptr(fds[1]), "criu")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	cmd.Args = []string{"criu", "swrk", "3"}
	cmd.ExtraFiles = append([]*os.File{theirs}, cmd.ExtraFiles...)
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// exchange sends a request and returns the response.
func exchange(conn *net.UnixConn, request *rpc.CriuReq) (*rpc.CriuResp, error) {
	if err := send(conn, request); err != nil {
		return nil, err
	}
	response, _, err := receive(conn)
	return response, err
}

func send(conn *net.UnixConn, request *rpc.CriuReq) error {
	data, err := request.MarshalVT()
	if err != nil {
		return err
	}
	_, err = conn.Write(data)
	return err
}

// receive returns the next response, with the descriptor that came with it, nil
// for none.
func receive(conn *net.UnixConn) (*rpc.CriuResp, *os.File, error) {
	data, control := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4))
	n, controlLength, flags, _, err := conn.ReadMsgUnix(data, control)
	if err != nil {
		return nil, nil, err
	}
	f, err := receivedFile(control[:controlLength])
	if err != nil {
		return nil, nil, err
	}
	response := &rpc.CriuResp{}
	switch {
	case n == 0:
		err = errors.New("ended without an answer")
	case flags&unix.MSG_TRUNC != 0:
		err = errors.New("answer too long")
	default:
		err = response.UnmarshalVT(data[:n])
	}
	if err != nil && f != nil {
		f.Close()
		f = nil
	}
	return response, f, err
}

func receivedFile(control []byte) (*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return nil, err
	}
	unix.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "orphan-pts-master"), nil
}
