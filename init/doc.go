// Package initproc is the init process of a container: everything between
// clone and execve, in one ordered list of steps. Its folder is called init.
//
// Init decides nothing: what it does is in the plan that create sent. It runs on
// one locked thread, the one that becomes the container's program, because
// capabilities, keyring, filters and namespaces belong to a thread.
package initproc
