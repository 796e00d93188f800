package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"eggrun/internal/syncsocket"

	"github.com/checkpoint-restore/go-criu/v8/rpc"
)

// run dumps or restores.
func (s *session) run() error {
	if err := s.openDirs(); err != nil {
		return err
	}
	cmd := exec.Command(s.criu)
	if s.request.Task == syncsocket.CriuRestore {
		// The streams of a restored container are criu's. What criu itself
		// would say there is in its log.
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	}
	cmd.ExtraFiles = s.inherit
	conn, err := start(cmd)
	if err != nil {
		return err
	}
	err = s.converse(conn)
	// Where eggrun is gone or has refused, criu takes back what it did.
	conn.Close()
	waitErr := cmd.Wait()
	// After a pre-dump criu waits for the next one, and ends without it.
	if err == nil && s.request.Task != syncsocket.CriuPreDump {
		err = waitErr
	}
	var refused *refusal
	if err == nil || errors.As(err, &refused) {
		return err
	}
	log := filepath.Join(cmp.Or(s.request.Work, s.request.Images), logName(s.request.Task))
	if reason := loggedError(log); reason != "" {
		err = errors.New(reason)
	}
	return fmt.Errorf("criu %s: %w; see %q", s.request.Task, err, log)
}

func (s *session) openDirs() (err error) {
	if s.images, err = os.Open(s.request.Images); err != nil {
		return fmt.Errorf("option --image-path: %w", err)
	}
	if s.request.Work == "" {
		return nil
	}
	if s.work, err = os.Open(s.request.Work); err != nil {
		return fmt.Errorf("option --work-path: %w", err)
	}
	return nil
}

// refusal is an error of eggrun's or of ours, about which criu's log has nothing
// to say.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

func refuse(err error) error {
	if err == nil {
		return nil
	}
	return &refusal{err}
}

// converse makes the request and answers criu until it is done.
func (s *session) converse(conn *net.UnixConn) error {
	kind := map[syncsocket.CriuTask]rpc.CriuReqType{
		syncsocket.CriuDump:    rpc.CriuReqType_DUMP,
		syncsocket.CriuPreDump: rpc.CriuReqType_PRE_DUMP,
		syncsocket.CriuRestore: rpc.CriuReqType_RESTORE,
	}[s.request.Task]
	request := &rpc.CriuReq{Type: &kind, Opts: s.options()}
	for {
		if err := send(conn, request); err != nil {
			return err
		}
		response, master, err := receive(conn)
		if err != nil {
			return err
		}
		if response.GetType() != rpc.CriuReqType_NOTIFY {
			if !response.GetSuccess() {
				return fmt.Errorf("error %d", response.GetCrErrno())
			}
			return nil
		}
		err = s.notified(response.GetNotify(), master)
		if master != nil {
			master.Close()
		}
		if err != nil {
			return refuse(err)
		}
		request = &rpc.CriuReq{Type: rpc.CriuReqType_NOTIFY.Enum(), NotifySuccess: new(true)}
	}
}

// notified does what is to be done in the middle of criu's work.
func (s *session) notified(notify *rpc.CriuNotify, master *os.File) error {
	switch notify.GetScript() {
	case "orphan-pts-master":
		if master == nil {
			return errors.New("criu: no terminal came with its message")
		}
		if err := s.socket.Send(syncsocket.Console, nil, master); err != nil {
			return err
		}
		_, err := s.socket.Expect(syncsocket.Proceed, nil)
		return err
	case "setup-namespaces":
		s.pid = int(notify.GetPid())
		if err := s.socket.Send(syncsocket.Hooks, syncsocket.CriuStatus{PID: s.pid}); err != nil {
			return err
		}
		_, err := s.socket.Expect(syncsocket.Proceed, nil)
		return err
	case "status-ready":
		if s.status == nil {
			return nil
		}
		// Whoever waits at the other end is told by one zero byte.
		_, err := s.status.Write([]byte{0})
		return errors.Join(err, s.status.Close())
	}
	return nil
}

func logName(task syncsocket.CriuTask) string {
	if task == syncsocket.CriuRestore {
		return "restore.log"
	}
	return "dump.log"
}
