package linux

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sealedVariable is set in the environment of a process that [RunSealed] has
// started anew, to its pid, which an exec does not change.
const sealedVariable = "EGGRUN_SEALED"

// RunSealed makes this process run from a sealed copy of its program, with an
// environment of no more than the variables in keep. It returns at once where it
// does already; else it starts the program anew, in place, with the same
// arguments, and returns only an error.
//
// A process that enters namespaces of others is itself what they see there until
// it has executed something else. Its program would be the host's file, which
// who may look into it could overwrite (CVE-2019-5736), and its environment the
// caller's. preserve are descriptors to hand on; emptyDir is for [SealedSelf].
func RunSealed(emptyDir string, keep []string, preserve []int) error {
	if isSealed() {
		return nil
	}
	exe, err := SealedSelf(emptyDir)
	if err != nil {
		return err
	}
	defer exe.Close()
	env := []string{sealedVariable + "=" + strconv.Itoa(os.Getpid())}
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); slices.Contains(keep, name) {
			env = append(env, variable)
		}
	}
	for _, fd := range preserve {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return os.NewSyscallError("preserve descriptor", err)
		}
	}
	return ExecFile(exe, os.Args, env)
}

// isSealed tells whether this process was started by [RunSealed].
func isSealed() bool { return os.Getenv(sealedVariable) == strconv.Itoa(os.Getpid()) }
