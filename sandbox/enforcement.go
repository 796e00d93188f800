package sandbox

import "strings"

// EnforcementError says that this system cannot hold a container to what was
// asked, so that none was started.
type EnforcementError struct {
	// Gaps lists everything that cannot be enforced. Each one says what and why:
	// "domains: host network requested".
	Gaps []string
	// Platform is what to do about it on this system, or empty.
	Platform string
	// Err is the cause, for [errors.Is] and [errors.As]. Its text is not part of
	// the message: the gap tells it in the user's words.
	Err error
}

// Error returns "cannot enforce GAP, GAP; PLATFORM" on one line.
func (e *EnforcementError) Error() string {
	gaps := strings.Join(e.Gaps, ", ")
	if gaps == "" {
		gaps = "the sandbox"
		if e.Err != nil {
			gaps += ": " + e.Err.Error()
		}
	}
	msg := "cannot enforce " + gaps
	if e.Platform != "" {
		msg += "; " + e.Platform
	}
	return msg
}

// Unwrap returns the cause, or nil.
func (e *EnforcementError) Unwrap() error { return e.Err }
