package syncsocket

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestListenerNotice writes the message the way init does.
func TestListenerNotice(t *testing.T) {
	t.Parallel()
	host, inner, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	defer inner.Close()
	notice, err := NewListenerNotice()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{0, 7, 1 << 30, 42} {
		notice.SetFD(want)
		if _, err := unix.Write(int(inner.File().Fd()), notice.Message); err != nil {
			t.Fatal(err)
		}
		message, err := host.Expect(Seccomp, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := message.ListenerFD(); err != nil || got != want {
			t.Errorf("got %d, %v, want %d", got, err, want)
		}
	}
	for _, body := range []string{`7`, `"x"`, ``} {
		if got, err := (&Message{Body: []byte(body)}).ListenerFD(); err == nil {
			t.Errorf("%s: got %d and no error", body, got)
		}
	}
}

func TestSetFDDoesNotAllocate(t *testing.T) {
	// Not parallel: AllocsPerRun counts the whole process.
	notice, err := NewListenerNotice()
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(10, func() { notice.SetFD(1234) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
