//go:build !crashtest

package container

// step marks a point after something has changed on the host. The tests of
// crash safety, built with the tag crashtest, end the process at each of them.
func step() {}
