package linux

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// NewUserNamespace makes a user namespace that nobody is in and returns its
// file, close-on-exec. mapIDs writes its id maps, into the /proc/PID of the
// process that it is given.
//
// That process has done nothing but been forked into the namespace; it is gone
// and reaped when this returns. The errors are those of [SpawnIn].
func NewUserNamespace(mapIDs func(pid int) error) (*os.File, error) {
	var userNS *os.File
	errDone := errors.New("nothing left to do")
	_, err := SpawnIn(SpawnRequest{
		New: unix.CLONE_NEWUSER,
		// The child waits for the maps before it would execute anything; on
		// an error it is killed instead.
		MapIDs: func(pid int) (err error) {
			if err := mapIDs(pid); err != nil {
				return err
			}
			if userNS, err = os.Open("/proc/" + strconv.Itoa(pid) + "/ns/user"); err != nil {
				return err
			}
			return errDone
		},
	})
	if userNS == nil {
		return nil, err
	}
	return userNS, nil
}
