package syncsocket

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func pair(t testing.TB) (host, inner *Socket) {
	t.Helper()
	host, inner, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		host.Close()
		inner.Close()
	})
	return host, inner
}

// sent runs send beside the test, for it waits when the socket is full.
func sent(send func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- send() }()
	return done
}

func wantEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

type body struct {
	Name string `json:"name"`
	N    int    `json:"n"`
}

func TestMessages(t *testing.T) {
	t.Parallel()
	host, inner := pair(t)
	for _, s := range []*Socket{host, inner} {
		flags, err := unix.FcntlInt(s.File().Fd(), unix.F_GETFD, 0)
		if err != nil || flags != unix.FD_CLOEXEC {
			t.Errorf("descriptor flags %d, error %v", flags, err)
		}
	}
	big := body{Name: strings.Repeat("x", 1<<20), N: 1}
	done := sent(func() error {
		// One after the other, before anything is read.
		return errors.Join(
			host.Send(Request, body{"a", 1}), host.Send(Proceed, nil), host.Send(Joined, big), host.Send(Ready, nil))
	})
	for _, want := range []struct {
		kind Kind
		body body
	}{{Request, body{"a", 1}}, {Proceed, body{}}, {Joined, big}, {Ready, body{}}} {
		m, err := inner.Receive()
		if err != nil {
			t.Fatal(err)
		}
		wantEqual(t, "kind", m.Kind, want.kind)
		wantEqual(t, "files", len(m.Files), 0)
		var got body
		if want.body != got {
			if err := json.Unmarshal(m.Body, &got); err != nil {
				t.Fatal(err)
			}
		}
		if got != want.body {
			t.Errorf("body of %s differs", m.Kind)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	// And the other way.
	if err := inner.Send(Ready, nil); err != nil {
		t.Fatal(err)
	}
	if m, err := host.Receive(); err != nil || m.Kind != Ready {
		t.Errorf("message %v, error %v", m, err)
	}
	// What Encode made is one whole message.
	data, err := Encode(Failed, body{"b", 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inner.File().Write(data); err != nil {
		t.Fatal(err)
	}
	if m, err := host.Receive(); err != nil || m.Kind != Failed || string(m.Body) != `{"name":"b","n":2}` {
		t.Errorf("message %v, error %v", m, err)
	}
}

// TestFiles sends more descriptors than one message of the kernel holds.
func TestFiles(t *testing.T) {
	t.Parallel()
	for _, count := range []int{1, maxFiles, maxFiles + 1, 2*maxFiles + 50} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			t.Parallel()
			host, inner := pair(t)
			dir := t.TempDir()
			var files []*os.File
			for i := range count {
				f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				files = append(files, f)
			}
			done := sent(func() error {
				return errors.Join(
					host.Send(Request, body{"files", count}, files...), host.Send(Joined, nil, files[0]), host.Send(Proceed, nil))
			})
			var got body
			m, err := inner.Expect(Request, &got)
			if err != nil {
				t.Fatal(err)
			}
			wantEqual(t, "body", got, body{"files", count})
			second, err := inner.Expect(Joined, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := inner.Expect(Proceed, nil); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			wantEqual(t, "number of files", []int{len(m.Files), len(second.Files)}, []int{count, 1})
			for i, f := range append(m.Files, second.Files...) {
				infoSent, err := files[i%count].Stat()
				if err != nil {
					t.Fatal(err)
				}
				info, err := f.Stat()
				if err != nil || !os.SameFile(info, infoSent) {
					t.Errorf("file %d is another one (%v)", i, err)
				}
				flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
				if err != nil || flags != unix.FD_CLOEXEC {
					t.Errorf("descriptor flags %d, error %v", flags, err)
				}
				f.Close()
			}
		})
	}
}

func TestEOF(t *testing.T) {
	t.Parallel()
	whole, err := Encode(Ready, body{"x", 1})
	if err != nil {
		t.Fatal(err)
	}
	withFile, err := encode(Ready, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"nothing":             nil,
		"half of the length":  whole[:2],
		"the length":          whole[:4],
		"half of the message": whole[:len(whole)-3],
		"no descriptor":       withFile,
		"a byte for it":       append(withFile, 0),
	} {
		for _, how := range []string{"close", "shutdown", "reset"} {
			host, inner := pair(t)
			if how == "reset" {
				// Closed with something unread in it.
				if err := host.Send(Request, nil); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := inner.File().Write(data); err != nil {
				t.Fatal(err)
			}
			if how == "shutdown" {
				inner.Shutdown()
				if err := inner.Send(Ready, nil); !errors.Is(err, unix.EPIPE) {
					t.Errorf("send after shutdown: %v", err)
				}
			} else {
				inner.Close()
			}
			if m, err := host.Receive(); !errors.Is(err, io.EOF) {
				t.Errorf("%s, %s: message %v, error %v, want EOF", name, how, m, err)
			}
			if err := host.Send(Ready, nil); !errors.Is(err, unix.EPIPE) {
				t.Errorf("send to nobody: %v", err)
			}
		}
	}
}

func TestTooLong(t *testing.T) {
	t.Parallel()
	host, inner := pair(t)
	if _, err := host.File().Write(binary.NativeEndian.AppendUint32(nil, maxLength+1)); err != nil {
		t.Fatal(err)
	}
	_, err := inner.Receive()
	wantEqual(t, "error", fmt.Sprint(err), "sync message of 67108865 bytes: too long")
	if err := host.Send(Request, make(chan int)); err == nil {
		t.Error("sent what JSON can't hold")
	}
}

func TestExpect(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		send func(*Socket) error
		want string
	}{
		{"right kind", func(s *Socket) error { return s.Send(Joined, body{"a", 1}) }, "<nil>"},
		{"wrong kind", func(s *Socket) error { return s.Send(Proceed, body{"a", 1}) }, `sync message "proceed", want "joined"`},
		{"failure", func(s *Socket) error { return s.SendFailure(errors.New("it failed")) }, "it failed"},
		{"wrong body", func(s *Socket) error { return s.Send(Joined, 7) }, "parse sync message: json: cannot unmarshal number into Go value of type syncsocket.body"},
		{"no body", func(s *Socket) error { return s.Send(Joined, nil) }, "parse sync message: unexpected end of JSON input"},
		{"no message", func(s *Socket) error { _, err := s.File().Write([]byte{2, 0, 0, 0, '[', 'x'}); return err }, "parse sync message: invalid character 'x' looking for beginning of value"},
		{"nothing", func(s *Socket) error { return s.Close() }, "EOF"},
	} {
		host, inner := pair(t)
		if err := tt.send(host); err != nil {
			t.Fatal(err)
		}
		var got body
		_, err := inner.Expect(Joined, &got)
		wantEqual(t, tt.name, fmt.Sprint(err), tt.want)
		if err == nil {
			wantEqual(t, "body", got, body{"a", 1})
		}
	}
}

// FuzzReceive needs any bytes to be a message, an error or the end.
func FuzzReceive(f *testing.F) {
	for _, m := range []string{`{"kind":"ready"}`, `{"kind":"failed","body":{"text":"x","errno":2}}`, `{"fileCount":-1}`, `{"fileCount":9}`, `null`, `{`} {
		f.Add(uint32(len(m)), []byte(m))
	}
	f.Add(uint32(1<<31), []byte(nil))
	f.Fuzz(func(t *testing.T, length uint32, data []byte) {
		if length > 1<<20 && length <= maxLength || len(data) > 1<<16 {
			return // only slow
		}
		host, inner := pair(t)
		if err := host.write(append(binary.NativeEndian.AppendUint32(nil, length), data...)); err != nil {
			t.Fatal(err)
		}
		host.Shutdown()
		for {
			m, err := inner.Receive()
			if err != nil {
				return
			}
			if m.FileCount > 0 {
				t.Errorf("%d descriptors out of nothing", m.FileCount)
			}
			if m.Kind == Failed && m.Failure() == nil {
				t.Error("a failure that is none")
			}
		}
	})
}
