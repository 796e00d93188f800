package integration

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

var buildSocketcall = sync.OnceValues(func() (string, error) { return buildProgram("socketcall", "GOARCH=386") })

// TestSocketcall has a 32-bit program, whose way to make a socket no filter can look
// into: it is as if the kernel had none, which C libraries are used to. The other
// way is held to the same families as that of 64 bits.
func TestSocketcall(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	path, err := buildSocketcall()
	if err != nil {
		t.Fatal(err)
	}
	need(t, "a kernel that runs 32-bit programs", func() error {
		if runtime.GOARCH != "amd64" {
			return fmt.Errorf("%s", runtime.GOARCH)
		}
		_, err := suite.reaper.output(exec.Command(path))
		return err
	})
	withIt := addMounts(specs.Mount{Destination: "/socketcall", Type: "bind", Source: path, Options: []string{"bind", "ro"}})
	outcomes := func(edits ...edit) string {
		return l.output("/socketcall", append(edits, withIt, addCapabilities("CAP_NET_RAW"))...)
	}
	control := outcomes()
	for _, made := range []string{"socketcall 2 ok", "socket 2 ok", "socketcall 17 ok", "socket 17 ok"} {
		contains(t, "control", control, made)
	}
	want := []string{
		"socketcall 2 function not implemented", "socket 2 ok",
		"socketcall 17 function not implemented", "socket 17 address family not supported by protocol",
		"socketcall 40 function not implemented", "socket 40 address family not supported by protocol",
	}
	equal(t, "with a policy", outcomes(domains(allowedName)), strings.Join(want, "\n"))
}
