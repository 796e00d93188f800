//go:build crashtest

package container

import (
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

var stepsTaken atomic.Int64

// step kills this process at the step whose number is in EGGRUN_CRASH_AT, as a
// crash or kill -9 there would.
func step() {
	if strconv.FormatInt(stepsTaken.Add(1), 10) == os.Getenv("EGGRUN_CRASH_AT") {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
}
