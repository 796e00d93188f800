// Package linux has one thin function for each system call that the rest of
// eggrun makes: close-on-exec forced on, an error that names the operation and
// its subject and wraps the errno, the kernel version in the comment.
//
// The newest calls are the mount API with mount_setattr (Linux 5.12) and
// close_range with CLOSE_RANGE_CLOEXEC (5.11): 5.12 is what eggrun needs.
package linux
