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
	Text        string       `json:"text"`
	Errno       int          `json:"errno,omitempty"`
	Enforcement *enforcement `json:"enforcement,omitempty"`
}

// enforcement is a [sandbox.EnforcementError] among the causes of a failure.
type enforcement struct {
	Gaps     []string `json:"gaps,omitempty"`
	Platform string   `json:"platform,omitempty"`
}

// SendFailure sends err. Its text and its errno, and that it is an
// EnforcementError, survive.
func (s *Socket) SendFailure(err error) error {
	f := failure{Text: err.Error()}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		f.Errno = int(errno)
	}
	var refused *sandbox.EnforcementError
	if errors.As(err, &refused) {
		f.Enforcement = &enforcement{Gaps: refused.Gaps, Platform: refused.Platform}
	}
	return s.Send(Failed, f)
}

// Failure returns the error that a Failed message carries.
func (m *Message) Failure() error {
	var f failure
	if err := json.Unmarshal(m.Body, &f); err != nil {
		return fmt.Errorf("parse sync message: %w", err)
	}
	failed := &remoteError{text: f.Text}
	if f.Errno != 0 {
		failed.cause = syscall.Errno(f.Errno)
	}
	if f.Enforcement != nil {
		failed.cause = &sandbox.EnforcementError{
			Gaps: f.Enforcement.Gaps, Platform: f.Enforcement.Platform, Err: failed.cause,
		}
	}
	return failed
}

// remoteError reads like the error that init had and unwraps to what is known
// of its causes.
type remoteError struct {
	text  string
	cause error
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Unwrap() error { return e.cause }
