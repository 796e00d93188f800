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
// UID and GID in a nested user and pid namespace, without capabilities and under
// a seccomp filter that keeps it from undoing any of this. The ids are the same
// outside where the caller's user namespace maps them, else the caller's own. A
// missing --writable directory is made with the command's rights.
//
// What is covered is covered at every path at which a mount shows it, and the
// directories above that the command could rename become mount points, so that
// renames across them answer EXDEV. A path that the command could still make,
// replace or reach by another name is an [*sandbox.EnforcementError].
//
// A part that can't be enforced ends it before the command is started. What it
// cannot know are hard links to files in a denied directory, and other file
// systems that show the same files, such as an overlay. A file that is replaced
// from outside while the command runs is no longer covered; its directory would
// be. A command with the ids of the host's root keeps root's rights to files and
// devices that are not covered: root should name another UID.
//
// It forwards signals, and exits with the command's status, 128+n where signal n
// ended it, 125 where it could not be set up, 127 where the command was not
// found, and 126 where it could not be executed. Errors go to PATH of --log,
// where given, but those in the arguments, else to standard error.
//
// Linux 5.12; the guard filter needs 4.14.
func DenyInit(args []string) {
	runtime.LockOSThread()
	if fd, ok := parseSyncFD(args); ok {
		os.Exit(containerInit(fd))
	}
	// Both other forms spend their life waiting, if perhaps for signals without end.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(128 << 20)
	if r, ok := parseReap(args); ok {
		os.Exit(r.main())
	}
	os.Exit(wrapperMain(args))
}
