package initproc

import (
	"os"
	"slices"
	"strconv"
	"testing"

	"eggrun/internal/syncsocket"
)

func TestListenEnv(t *testing.T) {
	t.Parallel()
	pid := "LISTEN_PID=" + strconv.Itoa(os.Getpid())
	of := []string{"LISTEN_FDS=9", "A=1", "LISTEN_PID=7", "LISTEN_FDNAMES=x", "LISTEN_FDSX=1"}
	for _, test := range []struct {
		request syncsocket.Setup
		want    []string
	}{
		{syncsocket.Setup{ListenFDNames: "a"}, of},
		{syncsocket.Setup{ListenFDs: 2}, []string{"A=1", "LISTEN_FDSX=1", "LISTEN_FDS=2", pid}},
		{syncsocket.Setup{ListenFDs: 2, ListenFDNames: "a:b"}, []string{"A=1", "LISTEN_FDSX=1", "LISTEN_FDS=2", pid, "LISTEN_FDNAMES=a:b"}},
	} {
		env := slices.Clone(of)
		if got := listenEnv(env, &test.request); !slices.Equal(got, test.want) {
			t.Errorf("%+v: got %q, want %q", test.request, got, test.want)
		}
		if !slices.Equal(env, of) {
			t.Errorf("%+v: the given list has become %q", test.request, env)
		}
	}
}
