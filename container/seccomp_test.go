package container

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestTellAgent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agent")
	profile := &specs.LinuxSeccomp{ListenerPath: path, ListenerMetadata: "meta"}
	// More than a console socket would take.
	state := &specs.State{ID: "c1", Pid: 7, Status: specs.StateCreating, Annotations: map[string]string{"long": strings.Repeat("x", 10000)}}
	if err := tellAgent(profile, 7, state, os.Stdin); err == nil {
		t.Error("no error without an agent")
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := tellAgent(profile, 7, state, os.Stdin); err != nil {
		t.Fatal(err)
	}
	conn, err := listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	data, control := make([]byte, 1<<16), make([]byte, unix.CmsgSpace(4))
	n, nControl, _, _, err := conn.ReadMsgUnix(data, control)
	if err != nil || nControl != len(control) {
		t.Fatalf("%d bytes of descriptors, %v, want one", nControl, err)
	}
	var got specs.ContainerProcessState
	if err := json.Unmarshal(data[:n], &got); err != nil {
		t.Fatal(err)
	}
	want := specs.ContainerProcessState{Version: specs.Version, Fds: []string{"seccompFd"}, Pid: 7, Metadata: "meta", State: *state}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := conn.Read(data); err == nil {
		t.Error("the connection goes on")
	}
}
