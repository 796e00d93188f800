package initproc

import (
	"os"
	"runtime"
	"runtime/debug"
)

// DenyInit is the first process of a sandbox; it never returns. It is called
// early in main, with the arguments after the name under which it was called.
//
// With the hidden "--sync FD" it is the init process of a container that
// eggrun create made: it receives its plan over that descriptor.
//
// Otherwise it is a stand-alone wrapper for a command, as root of a user
// namespace or of the host:
//
//	--uid UID --gid GID [--log PATH] [--deny PATH...] [--deny-write PATH...] [--home PATH] [--writable PATH...] -- CMD ARGS...
//
// Each option takes the next argument; --deny, --deny-write and --writable may
// be given several times. In a mount namespace of its own it makes --home
// read-only but for the --writable paths, hides the --deny paths (no reading, no
// writing), makes the --deny-write paths read-only, and starts the command with
// UID and GID in a nested user and pid namespace, under a seccomp filter that
// keeps it from undoing any of this. A part that can't be enforced ends it
// before the command is started. It forwards signals, and exits with the
// command's status, 128+n where signal n ended it, 125 where it could not be
// set up, 127 where the command was not found, and 126 where it could not be
// executed. Errors go to PATH of --log, where given, else to standard error.
//
// Linux 5.12; the guard filter needs 4.14.
func DenyInit(args []string) {
	runtime.LockOSThread()
	// Both forms spend their life waiting.
	debug.SetGCPercent(-1)
	if fd, ok := parseSyncFD(args); ok {
		os.Exit(containerInit(fd))
	}
	if r, ok := parseReap(args); ok {
		os.Exit(r.main())
	}
	os.Exit(wrapperMain(args))
}
