package syncsocket

import (
	"encoding/json"
	"errors"
	"fmt"
	"syscall"

	"eggrun/sandbox"
)

// failure is an error on its way from init to the host: its text, and what the
// host must be able to tell apart.
type failure struct {
	Text  string   `json:"text"`
	Errno int      `json:"errno,omitempty"`
	Gaps  []string `json:"gaps,omitempty"`
	Fix   string   `json:"fix,omitempty"`
}

// SendFailure sends err. Its errno, or that it is an EnforcementError, survives.
func (s *Socket) SendFailure(err error) error {
	f := failure{Text: err.Error()}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		f.Errno = int(errno)
	}
	var enforcement *sandbox.EnforcementError
	if errors.As(err, &enforcement) {
		f.Gaps, f.Fix = enforcement.Gaps, enforcement.Platform
	}
	return s.Send(Failed, f)
}

// Failure returns the error that a Failed message carries.
func (m *Message) Failure() error {
	var f failure
	if err := json.Unmarshal(m.Body, &f); err != nil {
		return fmt.Errorf("parse sync message: %w", err)
	}
	if f.Gaps != nil {
		return &sandbox.EnforcementError{Gaps: f.Gaps, Platform: f.Fix}
	}
	return &remoteError{text: f.Text, errno: syscall.Errno(f.Errno)}
}

// remoteError reads like the error that init had and unwraps to its errno.
type remoteError struct {
	text  string
	errno syscall.Errno
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}
