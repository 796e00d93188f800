// Package seccomp turns the seccomp profile of a config.json into the classic
// BPF program that seccomp(2) takes, builds the guard filter of containers with
// a policy, and loads both.
//
// Compiling happens on the host: [Compile] and [Guard] ask libseccomp, the only
// C library of this module, unless the program is in the cache already. The
// result, a [Filter], is plain data that travels to the init process inside its
// plan. Loading needs neither libseccomp nor an allocation: see [Prog].
//
// A container's filters stack: the kernel runs all of them and obeys the
// strictest answer, and of two equal answers the newer filter's errno. So the
// order does not matter for what is denied. But the guard has to be loaded
// first: it leaves seccomp(2) alone, while a profile may deny it. Of all filters
// of a thread one may have a listener, that of the profile: what the guard denies
// no agent gets to see.
package seccomp
