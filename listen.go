package main

import (
	"fmt"
	"os"
	"strconv"

	"eggrun/container"
)

// maxPreserve bounds the number of descriptors that are passed on.
const maxPreserve = 1 << 16

// listenFDs returns how many sockets a service manager has passed to this
// process, from descriptor 3 on, and their names; see sd_listen_fds(3). Who the
// variables are not meant for leaves them alone.
func listenFDs(getenv func(string) string) (count int, names string, err error) {
	pid := os.Getpid()
	if container.IsAsRoot() {
		pid = os.Getppid()
	}
	if getenv("LISTEN_PID") != strconv.Itoa(pid) {
		return 0, "", nil
	}
	text := getenv("LISTEN_FDS")
	count, err = strconv.Atoi(text)
	if err != nil || count < 0 || count > maxPreserve {
		return 0, "", fmt.Errorf("LISTEN_FDS %q: want 0 to %d", text, maxPreserve)
	}
	return count, getenv("LISTEN_FDNAMES"), nil
}
