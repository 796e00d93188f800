package initproc

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"eggrun/internal/syncsocket"
)

// listenEnv returns env with what sd_listen_fds(3) reads, where sockets were
// passed to the runtime: whatever config.json says of them was said of another
// process. The pid is the one that the program sees itself.
func listenEnv(env []string, request *syncsocket.Setup) []string {
	if request.ListenFDs == 0 {
		return env
	}
	env = slices.DeleteFunc(slices.Clone(env), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name == "LISTEN_FDS" || name == "LISTEN_PID" || name == "LISTEN_FDNAMES"
	})
	env = append(env, "LISTEN_FDS="+strconv.Itoa(request.ListenFDs), "LISTEN_PID="+strconv.Itoa(os.Getpid()))
	if request.ListenFDNames != "" {
		env = append(env, "LISTEN_FDNAMES="+request.ListenFDNames)
	}
	return env
}
