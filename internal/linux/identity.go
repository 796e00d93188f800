package linux

import (
	"os"
	"strings"

	"github.com/moby/sys/capability"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// SetUID sets the real, effective and saved user id of the calling thread, and
// of no other. EINVAL: not mapped in this user namespace. See setresuid(2).
func SetUID(uid uint32) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return os.NewSyscallError("setuid", errno)
	}
	return nil
}

// SetEffectiveUID sets the effective user id of the calling thread, by which the
// kernel decides what it may open, and no other. [SetUID] may then set them all
// to it without a capability.
func SetEffectiveUID(uid uint32) error {
	const same = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
		return os.NewSyscallError("setuid", errno)
	}
	return nil
}

// SetGID is [SetUID] for the group id, see setresgid(2).
func SetGID(gid uint32) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); errno != 0 {
		return os.NewSyscallError("setgid", errno)
	}
	return nil
}

// CapabilitySets are the five capability sets of a thread, a bit a capability.
type CapabilitySets struct {
	bounding, effective, permitted, inheritable, ambient uint64
}

// NewCapabilitySets takes the names of config.json, in any case; nil stands for
// five empty sets. A name that nobody knows is no capability.
func NewCapabilitySets(c *specs.LinuxCapabilities) *CapabilitySets {
	if c == nil {
		return &CapabilitySets{}
	}
	bits := make(map[string]uint64)
	for _, known := range capability.ListKnown() {
		bits["CAP_"+strings.ToUpper(known.String())] = 1 << known
	}
	mask := func(names []string) (m uint64) {
		for _, name := range names {
			m |= bits[strings.ToUpper(name)]
		}
		return m
	}
	return &CapabilitySets{
		bounding:    mask(c.Bounding),
		effective:   mask(c.Effective),
		permitted:   mask(c.Permitted),
		inheritable: mask(c.Inheritable),
		ambient:     mask(c.Ambient),
	}
}

// DropBounding takes all others from the calling thread's bounding set. It needs
// CAP_SETPCAP.
func (c *CapabilitySets) DropBounding() error {
	for bit := range uintptr(64) {
		if c.bounding&(1<<bit) != 0 {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, bit, 0, 0, 0)
		if err == unix.EINVAL { // past the last one that this kernel knows
			return nil
		}
		if err != nil {
			return os.NewSyscallError("drop bounding capability", err)
		}
	}
	return nil
}

// HasCapability tells whether the calling thread has a capability, a number of
// capabilities(7), in its user namespace.
func HasCapability(number int) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return false, os.NewSyscallError("capget", err)
	}
	return sets[number/32].Effective&(1<<(number%32)) != 0, nil
}

// Apply sets the other four sets of the calling thread; keep are further bits of
// the effective and permitted sets, which a second call takes away. It makes raw
// system calls only, see [HoldThread], and allocates nothing, unless it returns
// an error.
//
// A capability that the thread does not have cannot be given, nor can one that
// is not in the bounding set be inheritable; as in every other runtime it is
// left out.
func (c *CapabilitySets) Apply(keep uint64) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have, want [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	held := uint64(have[0].Permitted) | uint64(have[1].Permitted)<<32
	permitted, effective := (c.permitted|keep)&held, (c.effective&c.permitted|keep)&held
	// What is inheritable already may stay so, permitted or not.
	inheritable := inBounding(c.inheritable & (held | uint64(have[0].Inheritable) | uint64(have[1].Inheritable)<<32))
	for i := range want {
		shift := 32 * i
		want[i] = unix.CapUserData{
			Effective:   uint32(effective >> shift),
			Permitted:   uint32(permitted >> shift),
			Inheritable: uint32(inheritable >> shift),
		}
	}
	if err := unix.Capset(&header, &want[0]); err != nil {
		return os.NewSyscallError("capset", err)
	}
	if _, errno := rawPrctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); errno != 0 {
		return os.NewSyscallError("clear ambient capabilities", errno)
	}
	for bit := range uintptr(64) {
		if c.ambient&permitted&inheritable&(1<<bit) == 0 {
			continue
		}
		if _, errno := rawPrctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, bit); errno != 0 {
			return os.NewSyscallError("raise ambient capability", errno)
		}
	}
	return nil
}

// inBounding returns those of mask that are in the calling thread's bounding
// set: capset refuses to make others inheritable.
func inBounding(mask uint64) uint64 {
	for bit := range uintptr(64) {
		if mask&(1<<bit) == 0 {
			continue
		}
		if is, errno := rawPrctl(unix.PR_CAPBSET_READ, bit, 0); errno != 0 || is == 0 {
			mask &^= 1 << bit
		}
	}
	return mask
}

func rawPrctl(option int, arg2, arg3 uintptr) (uintptr, unix.Errno) {
	r, _, errno := unix.RawSyscall6(unix.SYS_PRCTL, uintptr(option), arg2, arg3, 0, 0, 0)
	return r, errno
}
