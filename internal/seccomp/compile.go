package seccomp

import (
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Compile returns the filter that profile describes, with runc's reading of it:
//
//   - The machine's own architecture is always included; a call of one that is
//     not listed kills the thread.
//   - Names that libseccomp does not know are skipped.
//   - Conditions of one entry must all hold, unless two are on the same
//     argument: then each is a rule of its own.
//   - Without flags (nil, not empty) the filter has SPEC_ALLOW where the kernel
//     knows it. TSYNC is accepted and left to the caller of [Load].
//     WAIT_KILLABLE_RECV is left out where there is no listener.
//   - With SCMP_ACT_NOTIFY the filter has a listener: [Filter.HasListener].
//   - Unless the default action lets calls through, a call that is newer than
//     every call in the profile answers ENOSYS.
//
// A profile that is nil, or that has neither a default action nor rules, means
// no filter: nil, without an error.
//
// cacheDir is where compiled filters are kept and found again, so that
// libseccomp is asked once; "" keeps none. It is created with mode 0700. It is
// not used, in silence, if it does not belong to the effective user or others
// may write to it.
func Compile(profile *specs.LinuxSeccomp, cacheDir string) (*Filter, error) {
	if profile == nil || profile.DefaultAction == "" && len(profile.Syscalls) == 0 {
		return nil, nil
	}
	// Also before a hit: what is wrong with a profile must not depend on the cache.
	rs, err := parse(profile)
	if err != nil {
		return nil, err
	}
	return cached(cacheDir, "profile", profile, func() (*Filter, error) { return build(rs) })
}
