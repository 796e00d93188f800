package syncsocket

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"eggrun/sandbox"

	"golang.org/x/sys/unix"
)

// TestFailure needs the host to be able to tell apart what init could.
func TestFailure(t *testing.T) {
	t.Parallel()
	refused := &sandbox.EnforcementError{Gaps: []string{"domains: a", "deny: b"}, Platform: "do c"}
	for _, tt := range []struct {
		name        string
		err         error
		errno       syscall.Errno
		enforcement *sandbox.EnforcementError
	}{
		{"plain", errors.New(`mount "a": no; do this`), 0, nil},
		{"errno", unix.ENOENT, unix.ENOENT, nil},
		{"wrapped errno", fmt.Errorf("exec %q: %w", "x", &os.PathError{Op: "open", Path: "/x", Err: unix.EACCES}), unix.EACCES, nil},
		{"joined", fmt.Errorf("%w; and then: %w", errors.New("a"), unix.EBUSY), unix.EBUSY, nil},
		{"enforcement", refused, 0, refused},
		{"wrapped enforcement", fmt.Errorf("network: %w", refused), 0, refused},
		{
			"enforcement with a cause", &sandbox.EnforcementError{Gaps: []string{"g"}, Err: unix.EPERM}, unix.EPERM,
			&sandbox.EnforcementError{Gaps: []string{"g"}, Err: unix.EPERM},
		},
		{
			"enforcement without a gap", &sandbox.EnforcementError{Platform: "p", Err: unix.ENOSYS}, unix.ENOSYS,
			&sandbox.EnforcementError{Platform: "p", Err: unix.ENOSYS},
		},
		{"several lines", errors.New("a\nb"), 0, nil},
		{"no UTF-8", errors.New("a\xffb"), 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			host, inner := pair(t)
			if err := inner.SendFailure(tt.err); err != nil {
				t.Fatal(err)
			}
			m, err := host.Receive()
			if err != nil {
				t.Fatal(err)
			}
			wantEqual(t, "kind", m.Kind, Failed)
			got := m.Failure()
			wantEqual(t, "text", got.Error(), strings.ToValidUTF8(tt.err.Error(), "\ufffd"))
			var errno syscall.Errno
			wantEqual(t, "has an errno", errors.As(got, &errno), tt.errno != 0)
			wantEqual(t, "errno", errno, tt.errno)
			var enforcement *sandbox.EnforcementError
			errors.As(got, &enforcement)
			if !reflect.DeepEqual(enforcement, tt.enforcement) {
				t.Errorf("enforcement error %#v, want %#v", enforcement, tt.enforcement)
			}
		})
	}
	m := &Message{Kind: Failed, Body: []byte(`"text"`)}
	if err := m.Failure(); err == nil || !strings.HasPrefix(err.Error(), "parse sync message: ") {
		t.Errorf("error %v", err)
	}
}
